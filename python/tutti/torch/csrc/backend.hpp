/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The c10d backend "tutti": each method turns its tensors into calls of the library.
 *
 * All calls of a group go through the asynchronous interface, because the ranks of one call may
 * differ in async_op. Collectives are matched by their order, or by names that contain the group's
 * sequence number (group.hpp): c10d demands one order of the collectives on all ranks. Messages
 * have names of their own (messages.hpp).
 *
 * Method names and signatures are those of torch 2.5. Newer versions forward their new names to
 * them. A method that c10d::Backend does not have in every version of torch is not marked
 * `override`.
 */
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "messages.hpp"

namespace tutti_torch {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

/* The option `asyncOp`, which some structures of older versions do not have. */
template <typename Options> auto is_async(const Options &options, int) -> decltype(options.asyncOp)
{
    return options.asyncOp;
}

template <typename Options> bool is_async(const Options &, long)
{
    return true;
}

class TuttiBackend : public c10d::Backend {
public:
    struct Options : c10d::Backend::Options {
        explicit Options(milliseconds limit) : c10d::Backend::Options("tutti", limit)
        {
        }
    };

    TuttiBackend(const StorePtr &store, int rank, int size, milliseconds timeout,
                 const std::string &name);
    ~TuttiBackend() override;

    const std::string getBackendName() const override
    {
        return "tutti";
    }

    /* ---- collectives.hpp ---- */
    WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override;
    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkPtr allreduce_coalesced(Tensors &tensors,
                                const c10d::AllreduceCoalescedOptions &opts) override;
    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override;
    WorkPtr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                           const c10d::ReduceScatterOptions &opts) override;
    WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                 const c10d::ReduceScatterOptions &opts) override;
    WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::ReduceScatterOptions &opts) override;
    WorkPtr barrier(const c10d::BarrierOptions &opts) override;

    /* ---- exchanges.hpp ---- */
    WorkPtr allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                      const c10d::AllgatherOptions &opts) override;
    WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input,
                            const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &opts) override;
    WorkPtr gather(std::vector<Tensors> &outputs, Tensors &inputs,
                   const c10d::GatherOptions &opts) override;
    WorkPtr gather_into_tensor(at::Tensor &output, at::Tensor &input,
                               const c10d::GatherOptions &opts);
    WorkPtr scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                    const c10d::ScatterOptions &opts) override;
    WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_sizes,
                          std::vector<int64_t> &input_sizes,
                          const c10d::AllToAllOptions &opts) override;
    WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts) override;
    WorkPtr send(Tensors &tensors, int dest, int tag) override;
    WorkPtr recv(Tensors &tensors, int source, int tag) override;
    WorkPtr recvAnysource(Tensors &tensors, int tag) override;

    /* ---- sparse.hpp ---- */
    WorkPtr allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts) override;

    /* ---- lifecycle.hpp ---- */
    void monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all_ranks) override;
    void startCoalescing() override;
    WorkPtr endCoalescing() override;
    void abort();
    void shutdown();
    void setTimeout(milliseconds timeout);
    c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions();
    c10::intrusive_ptr<c10d::Backend> split(const StorePtr &store, const std::vector<int> &ranks,
                                            const c10::intrusive_ptr<c10d::Backend::Options> &opts);
#if TUTTI_TORCH_AT_LEAST(2, 8)
    c10d::ErrorType getError();
#endif

    /* torch passes the index of the tensors' device. A negative index means host memory. */
    bool supportsTensorAlloc(c10::DeviceIndex device)
    {
        std::shared_lock<std::shared_mutex> lock(group_->using_comm);
        return device < 0 && group_->comm != nullptr && lib.mem_free_local != nullptr;
    }
    at::Tensor allocateTensor(long size, at::TensorOptions options);

    void setSequenceNumberForGroup() override
    {
    }

    uint64_t getSequenceNumberForGroup() override
    {
        return sequence_;
    }

    /* Only without a bound device: with a bound device, torch calls a method of NCCL's class. */
    bool supportsSplitting() const override
    {
        return TUTTI_TORCH_AT_LEAST(2, 10) && !bound_device_id_.has_value();
    }

private:
    WorkPtr start(c10d::OpType type, const char *title, Calls &&calls, Tensors outputs,
                  milliseconds timeout, bool is_async);
    WorkPtr run(c10d::OpType type, Calls &&calls, Tensors outputs, int timeout_ms);
    WorkPtr absorb(Calls &&calls, const Tensors &outputs);
    int timeout_of(milliseconds timeout) const;
    void check_open() const;
    void check_root(int64_t root, const char *what) const;
    CallName next_name(const Calls &calls);
    std::string missing_ranks(const std::string &prefix, milliseconds timeout,
                              bool wait_all_ranks);

    StorePtr store_;
    std::string name_;   /* torch's name of the group; "": the world */
    std::string prefix_; /* of the keys in the store */
    std::shared_ptr<Group> group_;
    std::shared_ptr<Messages> messages_;
    std::atomic<uint64_t> sequence_{ 0 }; /* of the collectives */
    std::atomic<uint64_t> monitored_{ 0 };

    std::mutex coalescing_; /* protects the next two */
    std::optional<Calls> batch_;
    Tensors batch_outputs_;
};

/* ---- how every call is made ---- */

/* A call's own timeout in milliseconds. 0: the call has the timeout with which the communicator was
   made. */
inline int TuttiBackend::timeout_of(milliseconds timeout) const
{
    int64_t ms = timeout.count() > 0 ? timeout.count() : group_->timeout_ms.load();
    if (ms == group_->timeout_ms && !group_->has_new_timeout)
        return 0;
    return static_cast<int>(std::min<int64_t>(ms, INT32_MAX));
}

/* The name of the next call. Messages do not advance the sequence number, because the ranks have
   different numbers of them. */
inline CallName TuttiBackend::next_name(const Calls &calls)
{
    if (!calls.has_collective())
        return { "", sequence_, false };
    if (!origin.name.empty())
        return { c10::str(origin.name, "/", ++origin.calls), sequence_, false };
    uint64_t sequence = ++sequence_;
    return { "#" + std::to_string(sequence), sequence, true };
}

inline void TuttiBackend::check_open() const
{
    (void)group_->use();
}

inline void TuttiBackend::check_root(int64_t root, const char *what) const
{
    TORCH_CHECK_VALUE(root >= 0 && root < size_, "tutti: ", what, ": rank ", root,
                      " is not in the group, which has ", size_, " ranks");
}

/* Make the calls and wait for them: no TuttiWork, no callback. */
inline WorkPtr TuttiBackend::run(c10d::OpType type, Calls &&calls, Tensors outputs, int timeout_ms)
{
    CallName name = next_name(calls);
    std::vector<tutti_request_t *> requests(calls.size(), nullptr);
    size_t started = 0;
    std::optional<c10::Stream> stream;
    auto used = group_->use();

    tutti_status_t status = submit_calls(*group_, calls, name, timeout_ms, nullptr, nullptr,
                                         requests.data(), started);
    used.unlock();
    std::string text = status != TUTTI_OK ? text_of(status, group_->label) : "";
    if (calls.is_cuda())
        stream = current_stream(*calls.device());
    for (tutti_request_t *request : requests) {
        if (request == nullptr)
            continue;
        tutti_status_t one = stream ? lib.cuda_wait(request, -1, raw_stream(*stream))
                                    : lib.wait(request, -1);
        if (one != TUTTI_OK && status == TUTTI_OK) {
            status = one;
            text = text_of(one, group_->label);
        }
    }
    if (status != TUTTI_OK)
        std::rethrow_exception(error_of(status, text));
    calls.finish(stream);
#if TUTTI_TORCH_AT_LEAST(2, 8)
    (void)type;
    return nullptr; /* as torch's own backends */
#else
    return TuttiWork::ended(rank_, type, std::move(outputs), name.sequence);
#endif
}

inline WorkPtr TuttiBackend::absorb(Calls &&calls, const Tensors &outputs)
{
    batch_->absorb(std::move(calls));
    batch_outputs_.insert(batch_outputs_.end(), outputs.begin(), outputs.end());
    return nullptr;
}

inline WorkPtr TuttiBackend::start(c10d::OpType type, const char *title, Calls &&calls,
                                   Tensors outputs, milliseconds timeout, bool is_async)
{
    check_open();
    {
        std::lock_guard<std::mutex> lock(coalescing_);
        if (batch_)
            return absorb(std::move(calls), outputs);
    }
    group_->reap();
    if (!is_async) {
        RECORD_FUNCTION(title, std::vector<c10::IValue>{});
        return run(type, std::move(calls), std::move(outputs), timeout_of(timeout));
    }
    auto work = c10::make_intrusive<TuttiWork>(group_, type, title, std::move(calls),
                                               std::move(outputs));
    /* A collective has a deadline of its own: if the program holds only the future, no thread waits
       in the library. A message has a deadline only while a thread waits for it: a program may post
       a receive long before the message is sent. */
    int timeout_ms = 0;
    if (work->calls().has_collective()) {
        timeout_ms = timeout_of(timeout);
        timeout_ms = timeout_ms > 0 ? timeout_ms : group_->timeout_ms.load();
    }
    work->submit(next_name(work->calls()), timeout_ms);
    return work;
}

} // namespace tutti_torch
