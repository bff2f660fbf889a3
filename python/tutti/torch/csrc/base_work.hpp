/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * BaseWork, the common part of all Work of this backend: outputs, a future, completion. And
 * PromiseWork, a Work that other code completes.
 */
#pragma once

#include <functional>
#include <optional>

#include <ATen/core/ivalue.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "group.hpp"

namespace tutti_torch {

using std::chrono::milliseconds;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

/* A wait without a timeout has the group's timeout, which is the library's own deadline (-1). */
inline int limit_of(milliseconds timeout)
{
    if (timeout.count() <= 0)
        return -1;
    return static_cast<int>(std::min<int64_t>(timeout.count(), INT32_MAX));
}

inline FuturePtr new_future(const std::optional<at::Device> &device)
{
    auto type = c10::ListType::create(c10::TensorType::get());
    if (device && device->is_cuda())
        return c10::make_intrusive<c10::ivalue::Future>(type, std::vector<at::Device>{ *device });
    return c10::make_intrusive<c10::ivalue::Future>(type);
}

/* The common part of the two kinds of Work: outputs and a future. */
class BaseWork : public c10d::Work {
public:
    BaseWork(int rank, c10d::OpType type, const char *title, Tensors outputs)
        : Work(rank, type, title), outputs_(std::move(outputs))
    {
    }

    std::vector<at::Tensor> result() override
    {
        return outputs_;
    }

    uint64_t getSequencenumber() const override
    {
        return sequence_;
    }

    /* torch calls this with Python's lock held. The call may end only after another Python thread
       has run, for example the sender of a message to oneself. So release the lock. */
    void synchronize() override
    {
        std::optional<pybind11::gil_scoped_release> unlocked;

        if (Py_IsInitialized() && PyGILState_Check())
            unlocked.emplace();
        wait(kNoTimeout);
    }

    void abort() override
    {
        TORCH_CHECK_NOT_IMPLEMENTED(false, "tutti: one call cannot be aborted; abort the group");
    }

    uint64_t sequence_ = 0;

protected:
    /* Mark the Work as completed. The caller holds mutex_. Returns the future, which the caller
       completes after it has released mutex_. */
    FuturePtr set_done(std::exception_ptr error)
    {
        completed_ = true;
        exception_ = error;
        if (recordFunctionEndCallback_) {
            recordFunctionEndCallback_();
            recordFunctionEndCallback_ = nullptr;
        }
        cv_.notify_all();
        return future_;
    }

    void settle(const FuturePtr &future)
    {
        if (!future)
            return;
        if (exception_)
            future->setError(exception_);
        else
            future->markCompleted(c10::IValue(outputs_));
    }

    Tensors outputs_;
    FuturePtr future_; /* protected by mutex_ */
};

/* A Work that other code completes: see messages.hpp. */
class PromiseWork : public BaseWork {
public:
    PromiseWork(int rank, c10d::OpType type, const char *title, Tensors outputs, int timeout_ms)
        : BaseWork(rank, type, title, std::move(outputs)), timeout_ms_(timeout_ms)
    {
    }

    void complete(std::exception_ptr error, int source)
    {
        FuturePtr future;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            source_ = source;
            future = set_done(error);
        }
        settle(future);
    }

    bool wait(milliseconds timeout) override
    {
        std::unique_lock<std::mutex> lock(mutex_);
        milliseconds limit = timeout.count() > 0 ? timeout : milliseconds(timeout_ms_);

        if (limit.count() <= 0)
            cv_.wait(lock, [this] { return completed_; });
        else if (!cv_.wait_for(lock, limit, [this] { return completed_; }))
            std::rethrow_exception(error_of(
                TUTTI_ERR_TIMEOUT, c10::str("tutti: no matching message within ", limit.count(),
                                            " ms (Timed out)")));
        if (exception_)
            std::rethrow_exception(exception_);
        return true;
    }

    int sourceRank() const override
    {
        return source_;
    }

    FuturePtr getFuture() override
    {
        std::unique_lock<std::mutex> lock(mutex_);
        if (!future_) {
            std::optional<at::Device> device;
            if (!outputs_.empty())
                device = outputs_[0].device();
            future_ = new_future(device);
            if (completed_) {
                lock.unlock();
                settle(future_);
            }
        }
        return future_;
    }

private:
    int timeout_ms_;
    std::atomic<int> source_{ -1 };
};

} // namespace tutti_torch
