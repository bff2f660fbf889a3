/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A group's communicator, and how calls are submitted on it.
 */
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <shared_mutex>

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "calls.hpp"

namespace tutti_torch {

class TuttiWork;

struct Group {
    /* Held shared during calls on `comm`, and exclusively while close() sets `comm` to NULL: while
       the communicator is freed, no other thread may be in a call on it. */
    std::shared_mutex using_comm;
    tutti_comm_t *comm = nullptr;
    bool is_world = false;   /* from tutti_init: an old library */
    bool is_ordered = false; /* the library matches calls without a name by order */
    std::string label;     /* in front of each error */
    int rank = 0, size = 1;
    std::atomic<int> timeout_ms{ 0 };
    std::atomic<bool> has_new_timeout{ false }; /* timeout_ms was set after connecting */
    tutti_request_t *goodbye = nullptr; /* the barrier of say_goodbye(), if it has not ended */

    std::mutex mutex; /* protects the next three */
    std::condition_variable ended;
    size_t pending = 0; /* number of Works for which peers may need this rank */
    std::vector<c10::intrusive_ptr<TuttiWork>> finished; /* see work.hpp */

    /* The right to make calls on `comm`. Throws if the group was shut down. */
    std::shared_lock<std::shared_mutex> use()
    {
        std::shared_lock<std::shared_mutex> lock(using_comm);

        TORCH_CHECK_WITH(DistBackendError, comm != nullptr, label, ": the group was shut down");
        return lock;
    }

    void drain();
    void say_goodbye();
    void close();
    void reap();
    c10::intrusive_ptr<TuttiWork> take(const TuttiWork *work);
    ~Group();
};

template <typename Stream>
auto native_handle(const Stream &stream, int) -> decltype(stream.native_handle())
{
    return stream.native_handle();
}

template <typename Stream> void *native_handle(const Stream &, long)
{
    TORCH_CHECK_NOT_IMPLEMENTED(false, "tutti: the C++ backend needs a newer torch for device "
                                       "tensors; set TORCH_TUTTI=python");
}

/*
 * The future's callback that this thread runs; see origin.py. The calls of a callback are not part
 * of the group's order, because the ranks' threads run callbacks at different times. The
 * calls of a callback are named after the call of the future, which has the same name on all ranks.
 */
struct Origin {
    std::string name; /* "": none */
    uint64_t calls = 0;
};

inline thread_local Origin origin;

inline CUstream_st *raw_stream(const c10::Stream &stream)
{
    return static_cast<CUstream_st *>(native_handle(stream, 0));
}

/* The stream of the calling thread on a device. */
inline c10::Stream current_stream(const at::Device &device)
{
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

/* The name of a collective: "#17"; or "tutti #17/1/2", the second collective in the first callback
   of the future of call 17. */
struct CallName {
    std::string text;
    uint64_t sequence;
    bool is_ordered;
};

/*
 * Submit the calls: collectives as one submission group, each message alone, because the ranks of a
 * coalesced block do not all have the same messages. A single collective has no name: the library
 * matches it by order, and starts it without agreement. Coalesced collectives have names, because
 * only calls with names are fused. The caller holds group.use().
 *
 * callback     of each request, or NULL
 * ret_request  [calls.size()] in the order of the calls, NULL for those that were not submitted
 * ret_started  the number of requests; 0 if the first call was refused
 */
inline tutti_status_t submit_calls(Group &group, Calls &calls, const CallName &call_name,
                                   int timeout_ms,
                                   tutti_callback_t callback, void *arg,
                                   tutti_request_t **ret_request, size_t &ret_started)
{
    std::vector<Entry> &entries = calls.entries();
    std::vector<tutti_call_t> list;
    size_t parts = 0, part = 0;
    tutti_status_t status = TUTTI_OK;
    auto send = [&](const tutti_call_t *call, size_t count, tutti_request_t **requests) {
        tutti_status_t one = calls.is_cuda()
                                 ? lib.cuda_submit(call, count, group.comm,
                                                   raw_stream(current_stream(*calls.device())),
                                                   requests)
                                 : lib.submit(call, count, group.comm, requests);
        ret_started += one == TUTTI_OK ? count : 0;
        return one;
    };

    /* Collectives come first, so that their requests are an array. */
    std::stable_partition(entries.begin(), entries.end(),
                          [](const Entry &e) { return !e.is_message(); });
    for (const Entry &e : entries)
        parts += !e.is_message();
    for (Entry &e : entries) {
        if (!e.is_message())
            e.name = parts > 1 ? c10::str(call_name.text, ".", part++) : call_name.text;
        e.call.name = parts == 1 && !e.is_message() && group.is_ordered && call_name.is_ordered
                          ? nullptr
                          : e.name.c_str();
        e.call.options = &e.options;
        e.call.sendcounts = e.sendcounts.empty() ? nullptr : e.sendcounts.data();
        e.call.recvcounts = e.recvcounts.empty() ? nullptr : e.recvcounts.data();
        e.options.callback = callback;
        e.options.callback_arg = arg;
        /* Beside collectives, messages have no deadline of their own: see TuttiBackend::start. */
        if (timeout_ms > 0 && (parts == 0 || !e.is_message()))
            set_timeout(e.options, timeout_ms);
    }
    if (parts == 1) {
        status = send(&entries[0].call, 1, ret_request);
    } else if (parts > 1) {
        for (size_t i = 0; i < parts; i++)
            list.push_back(entries[i].call);
        status = send(list.data(), parts, ret_request);
    }
    for (size_t i = parts; i < entries.size() && status == TUTTI_OK; i++)
        status = send(&entries[i].call, 1, &ret_request[i]);
    return status;
}

} // namespace tutti_torch
