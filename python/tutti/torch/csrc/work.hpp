/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Work of an asynchronous call.
 *
 * A Work is completed by one of
 *   - a thread in wait() or isCompleted(). It takes the requests with tutti_wait, and does the
 *     library's work while it waits;
 *   - a thread of the pool, if the future was requested; the requests' callback submits the Work to
 *     the pool.
 * The first thread claims the Work. After the requests have ended, it copies results back, sets the
 * state, and completes the future, whose callbacks may run on this thread.
 *
 * From the submission to the callback the Work holds a reference to itself, because the program may
 * drop its own reference at once. The callback must not drop the self reference: a tensor's
 * destructor may wait for Python's lock, and the callback runs on the library's thread. So the
 * callback passes the reference to the pool, or to the group's list `finished`. Later calls on the
 * group empty this list.
 */
#pragma once

#include <c10/core/StreamGuard.h>

#include "base_work.hpp"
#include "pool.hpp"

namespace tutti_torch {

class TuttiWork : public BaseWork {
public:
    TuttiWork(std::shared_ptr<Group> group, c10d::OpType type, const char *title, Calls &&calls,
              Tensors outputs)
        : BaseWork(group->rank, type, title, std::move(outputs)), group_(std::move(group)),
          calls_(std::move(calls)), has_collective_(calls_.has_collective())
    {
    }

    Calls &calls()
    {
        return calls_;
    }

    /* Submit the calls. If no call could be submitted, throws the error. If only some could, the
       Work ends with the error. */
    void submit(const CallName &name, int timeout_ms);

    /* The group's label and the name of the call. The future's callbacks name their calls after
       it: see origin.py. */
    std::string call_name() const
    {
        return group_->label + " " + name_;
    }

    /* Set a function that the completing thread calls when the Work is completed. Call then()
       before submit(). */
    void then(std::function<void(std::exception_ptr)> function)
    {
        then_ = std::move(function);
    }

    int sourceRank() const override
    {
        return calls_.source >= 0 ? calls_.source : BaseWork::sourceRank();
    }

    bool isCompleted() override
    {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            if (completed_ || !done_)
                return completed_;
        }
        return complete(0); /* torch calls this with Python's lock held: do not wait for a claim */
    }

    bool wait(milliseconds timeout) override
    {
        int limit_ms = limit_of(timeout);
        /* A message has no deadline of its own. If a thread of the pool waits in the library, this
           wait needs a limit. */
        if (limit_ms < 0 && !has_collective_ && (calls_.is_cuda() || group_->has_new_timeout))
            limit_ms = limit_of(milliseconds(group_->timeout_ms));
        if (!(calls_.is_cuda() ? pool_has_completed(limit_ms) : complete(limit_ms)))
            std::rethrow_exception(error_of(
                TUTTI_ERR_TIMEOUT, c10::str(group_->label, ": not done after ", limit_ms,
                                            " ms (Timed out); the call continues")));
        if (exception_)
            std::rethrow_exception(exception_);
        if (calls_.is_cuda())
            future_->wait(); /* orders the caller's stream behind the calls */
        return true;
    }

    FuturePtr getFuture() override
    {
        FuturePtr future, ended;
        bool finish;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            if (!future_) {
                future_ = new_future(calls_.device());
                if (completed_)
                    ended = future_;
            }
            future = future_;
            finish = done_ && !completed_;
        }
        settle(ended);
        if (finish)
            complete(0); /* a thread that has claimed the Work completes the future */
        return future;
    }

    static WorkPtr ended(int rank, c10d::OpType type, Tensors outputs, uint64_t sequence)
    {
        auto work = c10::make_intrusive<PromiseWork>(rank, type, nullptr, std::move(outputs), 0);
        work->sequence_ = sequence;
        work->complete(nullptr, -1);
        return work;
    }

private:
    friend struct Group;

    static constexpr int kHourMs = 3600000;

    static void on_request(void *arg, tutti_status_t)
    {
        auto *work = static_cast<TuttiWork *>(arg);
        if (work->left_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            work->all_done();
    }

    /* Called in the last callback. Passes the self reference to the thread that completes the
       Work. */
    void all_done()
    {
        bool pool;
        auto self = c10::intrusive_ptr<TuttiWork>::reclaim(this);
        count_pending(-1);
        {
            std::lock_guard<std::mutex> lock(mutex_);
            done_ = true;
            pool = (future_ || then_) && !claimed_;
        }
        if (!pool) {
            std::lock_guard<std::mutex> lock(group_->mutex);
            group_->finished.push_back(std::move(self));
            return;
        }
        auto *raw = self.release();
        Pool::get().run([raw] {
            auto work = c10::intrusive_ptr<TuttiWork>::reclaim(raw);
            work->complete(-1);
        });
    }

    /* A receive that was posted for any source may never end, so it does not count. */
    void count_pending(int change)
    {
        if (then_)
            return;
        std::lock_guard<std::mutex> lock(group_->mutex);
        group_->pending += change;
        if (group_->pending == 0)
            group_->ended.notify_all();
    }

    bool claim(int limit_ms);
    tutti_status_t take_requests(int limit_ms, std::string &ret_text, bool &ret_left);
    bool complete(int limit_ms);
    void complete_in_pool();

    bool pool_has_completed(int limit_ms)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        auto over = [this] { return completed_; };

        if (limit_ms >= 0)
            return cv_.wait_for(lock, milliseconds(limit_ms), over);
        cv_.wait(lock, over);
        return true;
    }

    std::shared_ptr<Group> group_;
    std::string name_;
    Calls calls_;
    const bool has_collective_; /* false: only messages */
    std::vector<tutti_request_t *> requests_;
    std::atomic<size_t> left_{ 0 }; /* requests whose callback has not run */
    std::function<void(std::exception_ptr)> then_;
    std::optional<c10::Stream> stream_; /* device tensors: a stream ordered behind the calls */
    tutti_status_t refused_ = TUTTI_OK; /* of a call that could not be submitted */
    std::string refusal_;
    /* Protected by mutex_. */
    bool done_ = false;    /* the last callback has run */
    bool claimed_ = false; /* a thread is taking the requests, or has taken them */
};

/* Wait for the right to complete the Work. False: not within limit_ms. */
inline bool TuttiWork::claim(int limit_ms)
{
    std::unique_lock<std::mutex> lock(mutex_);
    auto free = [this] { return completed_ || !claimed_; };

    if (limit_ms < 0)
        cv_.wait(lock, free);
    else if (!cv_.wait_for(lock, milliseconds(limit_ms), free))
        return false;
    if (!completed_)
        claimed_ = true;
    return true;
}

/* The first error of the requests. ret_left: not all requests have ended within limit_ms. */
inline tutti_status_t TuttiWork::take_requests(int limit_ms, std::string &ret_text, bool &ret_left)
{
    const auto end = std::chrono::steady_clock::now() + milliseconds(limit_ms);
    int left_ms = limit_ms;

    for (tutti_request_t *&request : requests_) {
        if (request == nullptr)
            continue;
        if (limit_ms > 0 && &request != &requests_.front()) {
            auto left = std::chrono::duration_cast<milliseconds>(
                end - std::chrono::steady_clock::now());
            left_ms = std::max<int>(0, static_cast<int>(left.count()));
        }
        tutti_status_t status = stream_ ? lib.cuda_wait(request, left_ms, raw_stream(*stream_))
                                        : lib.wait(request, left_ms);
        if (status == TUTTI_ERR_TIMEOUT && limit_ms >= 0) {
            ret_left = true;
            return refused_;
        }
        request = nullptr;
        if (status != TUTTI_OK && refused_ == TUTTI_OK) {
            refused_ = status;
            refusal_ = text_of(status, group_->label);
        }
    }
    ret_text = refusal_;
    return refused_;
}

/* Returns whether the Work is complete; false: not within limit_ms. */
inline bool TuttiWork::complete(int limit_ms)
{
    std::string text;
    std::exception_ptr error;
    FuturePtr future;
    bool left = false;

    if (!claim(limit_ms))
        return false;
    if (completed_)
        return true;
    tutti_status_t status = take_requests(limit_ms, text, left);
    if (left) {
        bool done;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            claimed_ = false;
            done = done_; /* true: the callback has left the completion to this thread */
            cv_.notify_all();
        }
        return done && complete(-1);
    }
    try {
        if (status == TUTTI_OK)
            calls_.finish(stream_);
        else
            error = error_of(status, text);
    } catch (...) {
        error = std::current_exception();
    }
    auto self = group_->take(this);
    {
        std::lock_guard<std::mutex> lock(mutex_);
        future = set_done(error);
    }
    /* After set_done(): dropping a tensor may wait for Python's lock. The thread that holds this
       lock may be in isCompleted(), and wait in claim() until the Work is completed. */
    calls_.clear();
    settle(future);
    if (then_)
        then_(error);
    return true;
}

/*
 * Device tensors: a thread of the pool waits until the calls are queued on the device, and orders a
 * stream of torch's behind them. The future records that stream. The requests have no callback: for
 * a request with a callback, tutti_cuda_wait waits until the result is complete.
 */
inline void TuttiWork::complete_in_pool()
{
    auto self = c10::intrusive_ptr<TuttiWork>::reclaim_copy(this);

    Pool::get().run([self] {
        c10::impl::VirtualGuardImpl guard(self->calls_.device()->type());
        self->stream_ = guard.getStreamFromGlobalPool(*self->calls_.device());
        c10::StreamGuard in_stream(*self->stream_);
        /* Without a limit the library's deadline would begin, long before the peer sends. */
        while (!self->complete(self->has_collective_ ? -1 : kHourMs))
            continue;
        self->count_pending(-1);
    });
}

inline void TuttiWork::submit(const CallName &name, int timeout_ms)
{
    size_t count = calls_.size(), started = 0;
    auto used = group_->use();

    sequence_ = name.sequence;
    name_ = name.text.empty() && count > 0 ? calls_.entries()[0].name : name.text;
    requests_.assign(count, nullptr);
    if (calls_.is_cuda()) {
        future_ = new_future(calls_.device());
        refused_ = submit_calls(*group_, calls_, name, timeout_ms, nullptr, nullptr,
                                requests_.data(), started);
        if (started == 0)
            check(refused_, group_->label);
        count_pending(1);
        refusal_ = refused_ != TUTTI_OK ? text_of(refused_, group_->label) : "";
        complete_in_pool();
        return;
    }
    left_ = count + 1;
    auto self = c10::intrusive_ptr<TuttiWork>::reclaim_copy(this);
    count_pending(1);
    refused_ = submit_calls(*group_, calls_, name, timeout_ms, on_request, this,
                            requests_.data(), started);
    if (started == 0 && refused_ != TUTTI_OK) {
        std::string text = text_of(refused_, group_->label);
        count_pending(-1);
        std::rethrow_exception(error_of(refused_, text));
    }
    if (refused_ != TUTTI_OK)
        refusal_ = text_of(refused_, group_->label);
    size_t over = count - started + 1;
    auto *kept = self.release();
    if (left_.fetch_sub(over, std::memory_order_acq_rel) == over)
        kept->all_done();
}

inline Group::~Group()
{
    close();
}

/*
 * Wait until the calls that this rank has submitted have ended: the peers need this rank until
 * then. The barrier of say_goodbye() does not ensure this, because it may overtake other calls. The
 * limit is 5 s, because a peer may never make its call.
 */
inline void Group::drain()
{
    std::unique_lock<std::mutex> lock(mutex);
    ended.wait_for(lock, std::chrono::seconds(5), [this] { return pending == 0; });
}

/*
 * Wait for the other ranks to leave as well: after one rank has left, the library accepts no
 * further requests, and the other ranks may still have messages for each other. The limit is 2 s,
 * because a peer may wait for a call that this rank will never make. For 10 s after such a timeout,
 * the process's groups do not wait here.
 */
inline void Group::say_goodbye()
{
    static std::atomic<int64_t> in_vain{ INT64_MIN / 2 };
    auto now = [] {
        return std::chrono::duration_cast<milliseconds>(
                   std::chrono::steady_clock::now().time_since_epoch())
            .count();
    };
    tutti_call_t call = TUTTI_CALL_INIT;
    tutti_request_t *request = nullptr;

    if (size == 1 || now() - in_vain < 10000)
        return;
    call.kind = TUTTI_CALL_BARRIER;
    call.name = "goodbye";
    if (lib.submit(&call, 1, comm, &request) != TUTTI_OK)
        return;
    if (lib.wait(request, 2000) == TUTTI_ERR_TIMEOUT) {
        in_vain = now();
        goodbye = request; /* close() ends it */
    }
}

inline void Group::close()
{
    tutti_comm_t *closing;
    {
        std::unique_lock<std::shared_mutex> lock(using_comm);
        closing = comm;
        comm = nullptr;
    }
    if (closing == nullptr)
        return;
    if (is_world)
        lib.finalize();
    else
        lib.comm_free(closing);
    if (goodbye != nullptr)
        (void)lib.wait(goodbye, -1);
    goodbye = nullptr;
    reap();
}

/* Complete and drop the Work in `finished`. */
inline void Group::reap()
{
    std::vector<c10::intrusive_ptr<TuttiWork>> list;
    {
        std::lock_guard<std::mutex> lock(mutex);
        if (finished.empty())
            return;
        list.swap(finished);
    }
    for (auto &work : list)
        work->complete(-1);
}

/* Remove a Work from `finished`. Returns the list's reference to it. */
inline c10::intrusive_ptr<TuttiWork> Group::take(const TuttiWork *work)
{
    std::lock_guard<std::mutex> lock(mutex);

    for (size_t i = finished.size(); i-- > 0;) {
        if (finished[i].get() == work) {
            auto self = std::move(finished[i]);
            finished.erase(finished.begin() + i);
            return self;
        }
    }
    return {};
}

} // namespace tutti_torch
