/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages between two ranks: their names, receives from any source, and messages to oneself.
 *
 * The library matches messages by name. A name is sender, receiver, tag and a number; both ends
 * count the messages of a tag, so the n-th send matches the n-th receive.
 *
 * The library has no receive from any source. So for recvAnysource() a rank posts a receive from
 * each other rank, into memory of this file. The message that arrives first is copied to the
 * caller's tensor. The other receives stay posted. A later receive with this tag, from any source
 * or from the same rank, takes over a posted receive. Hence the limit: with such a tag, all
 * messages to this rank must have the type and number of elements of the posted receives.
 */
#pragma once

#include <deque>
#include <map>
#include <tuple>

#include "work.hpp"

namespace tutti_torch {

class Messages : public std::enable_shared_from_this<Messages> {
public:
    using Promise = c10::intrusive_ptr<PromiseWork>;

    explicit Messages(std::shared_ptr<Group> group) : group_(std::move(group))
    {
    }

    /* The name of the next message. */
    std::string next_name(int from, int to, int tag)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        return name_locked(from, to, tag);
    }

    /* Take over a receive from `source` that an earlier receive from any source has posted. NULL:
       there is none. */
    Promise take_posted(const at::Tensor &tensor, int source, int tag, int timeout_ms)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        auto found = posted_.find({ source, tag });

        if (found == posted_.end() || found->second.taker.promise)
            return {};
        check_shape(found->second, tensor, source, tag);
        Promise promise = new_promise(c10d::OpType::RECV, "tutti:recv", tensor, timeout_ms);
        found->second.taker = { promise, tensor };
        match(tag, lock);
        return promise;
    }

    WorkPtr receive_any(const at::Tensor &tensor, int tag, int timeout_ms)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        Promise promise =
            new_promise(c10d::OpType::RECVANYSOURCE, "tutti:recvAnySource", tensor, timeout_ms);

        post_all(tensor, tag);
        waiting_[tag].push_back({ promise, tensor });
        match(tag, lock);
        return promise;
    }

    WorkPtr to_self(const at::Tensor &tensor, int tag, bool is_send, int timeout_ms)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        Promise promise = new_promise(is_send ? c10d::OpType::SEND : c10d::OpType::RECV,
                                      is_send ? "tutti:send" : "tutti:recv", tensor, timeout_ms);
        Self &self = self_[tag];

        (is_send ? self.sends : self.receives).push_back({ promise, tensor });
        if (self.sends.empty() || self.receives.empty())
            return promise;
        Taker from = self.sends.front(), to = self.receives.front();
        self.sends.pop_front();
        self.receives.pop_front();
        lock.unlock();
        deliver(to, from.tensor, nullptr, group_->rank);
        from.promise->complete(nullptr, -1);
        return promise;
    }

    /* End the messages to oneself that have no match: the group ends. */
    void close()
    {
        std::map<int, Self> self;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            self.swap(self_);
        }
        std::exception_ptr error =
            error_of(TUTTI_ERR_SHUTDOWN, group_->label + ": the group was shut down");
        for (auto &[tag, queues] : self) {
            for (Taker &t : queues.sends)
                t.promise->complete(error, -1);
            for (Taker &t : queues.receives)
                t.promise->complete(error, -1);
        }
    }

private:
    struct Taker {
        Promise promise;
        at::Tensor tensor;
    };

    /* A receive that was posted for any source. */
    struct Posted {
        at::Tensor memory;
        bool arrived = false;
        std::exception_ptr error;
        Taker taker; /* a receive from this source alone, which has taken over the posted one */
    };

    struct Self {
        std::deque<Taker> sends, receives;
    };

    /* Receives to complete: the caller's receive, the posted one with its message or error, and the
       source. */
    using Ready = std::vector<std::tuple<Taker, Posted, int>>;

    std::string name_locked(int from, int to, int tag)
    {
        uint64_t number = ++counts_[{ from, to, tag }];
        return c10::str("message ", from, ">", to, " tag ", tag, " #", number);
    }

    Promise new_promise(c10d::OpType type, const char *title, const at::Tensor &tensor,
                        int timeout_ms)
    {
        return c10::make_intrusive<PromiseWork>(group_->rank, type, title, Tensors{ tensor },
                                                timeout_ms);
    }

    static void check_shape(const Posted &posted, const at::Tensor &tensor, int source, int tag)
    {
        TORCH_CHECK_VALUE(
            posted.memory.numel() == tensor.numel() &&
                posted.memory.scalar_type() == tensor.scalar_type(),
            "tutti: a receive of ", posted.memory.numel(), " elements of ",
            posted.memory.scalar_type(), " from rank ", source, " with tag ", tag,
            " was posted by an earlier receive from any source; this receive is of ",
            tensor.numel(),
            " elements of ", tensor.scalar_type(), ". Use another tag");
    }

    void post_all(const at::Tensor &like, int tag)
    {
        for (int source = 0; source < group_->size; source++) {
            auto found = posted_.find({ source, tag });
            if (found != posted_.end())
                check_shape(found->second, like, source, tag);
        }
        for (int source = 0; source < group_->size; source++) {
            if (source != group_->rank && posted_.count({ source, tag }) == 0)
                post(like, source, tag);
        }
    }

    void post(const at::Tensor &like, int source, int tag)
    {
        Calls calls("recv");
        at::Tensor memory = new_plain(like, like.sizes());
        Elem elem = elem_of(memory);
        Entry &e = calls.add(TUTTI_CALL_RECV, elem.dtype);

        e.call.root = source;
        e.call.recvbuf = calls.out(memory);
        e.call.count = memory.numel() * elem.per;
        e.name = name_locked(source, group_->rank, tag);
        auto work = c10::make_intrusive<TuttiWork>(group_, c10d::OpType::RECV, nullptr,
                                                   std::move(calls), Tensors{ memory });
        work->then([self = shared_from_this(), source, tag](std::exception_ptr error) {
            self->arrived(source, tag, error);
        });
        posted_[{ source, tag }].memory = memory;
        try {
            work->submit({ "", 0, false }, 0);
        } catch (...) {
            posted_.erase({ source, tag });
            throw;
        }
    }

    void arrived(int source, int tag, std::exception_ptr error)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        Posted &posted = posted_[{ source, tag }];

        posted.arrived = true;
        posted.error = error;
        arrivals_[tag].push_back(source);
        match(tag, lock);
    }

    /* Pass arrived messages to the receives that wait for them. Releases the lock. */
    void match(int tag, std::unique_lock<std::mutex> &lock)
    {
        std::deque<int> &arrivals = arrivals_[tag];
        std::deque<Taker> &waiting = waiting_[tag];
        Ready ready;

        for (size_t i = 0; i < arrivals.size();) {
            auto found = posted_.find({ arrivals[i], tag });
            Posted &posted = found->second;
            if (!posted.taker.promise && waiting.empty()) {
                i++;
                continue;
            }
            Taker taker = posted.taker;
            if (!taker.promise) {
                taker = waiting.front();
                waiting.pop_front();
            }
            ready.emplace_back(taker, posted, arrivals[i]);
            posted_.erase(found);
            arrivals.erase(arrivals.begin() + i);
        }
        repost(waiting, tag, ready);
        lock.unlock();
        for (auto &[taker, posted, source] : ready)
            deliver(taker, posted.memory, posted.error, source);
    }

    /* If receives from any source still wait, post a receive from each rank again. If this fails,
       for example because the group has ended, each receive that is still posted will complete one
       of the waiting receives. The waiting receives beyond that number end with this error. */
    void repost(std::deque<Taker> &waiting, int tag, Ready &ready)
    {
        if (waiting.empty())
            return;
        try {
            post_all(waiting.front().tensor, tag);
        } catch (...) {
            size_t left = 0;

            for (const auto &[key, posted] : posted_)
                left += key.second == tag && !posted.taker.promise;
            for (; waiting.size() > left; waiting.pop_back()) {
                Posted failed;

                failed.error = std::current_exception();
                ready.emplace_back(waiting.back(), failed, -1);
            }
        }
    }

    static void deliver(const Taker &taker, const at::Tensor &from, std::exception_ptr error,
                        int source)
    {
        try {
            if (!error) {
                TORCH_CHECK_VALUE(from.scalar_type() == taker.tensor.scalar_type(),
                                  "tutti: a message of ", from.scalar_type(), " from rank ", source,
                                  " was received into a tensor of ", taker.tensor.scalar_type());
                copy_into(taker.tensor, from.reshape(taker.tensor.sizes()));
            }
        } catch (...) {
            error = std::current_exception();
        }
        taker.promise->complete(error, source);
    }

    std::shared_ptr<Group> group_;
    std::mutex mutex_; /* protects all below */
    std::map<std::tuple<int, int, int>, uint64_t> counts_;
    std::map<std::pair<int, int>, Posted> posted_; /* by source and tag */
    std::map<int, std::deque<int>> arrivals_;      /* by tag: sources of untaken messages */
    std::map<int, std::deque<Taker>> waiting_;     /* by tag: receives from any source */
    std::map<int, Self> self_;                     /* by tag */
};

} // namespace tutti_torch
