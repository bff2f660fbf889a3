/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The beginning and the end of a group, monitored_barrier, coalescing.
 */
#pragma once

#include <pybind11/pybind11.h>

#include "sparse.hpp"

#if PY_VERSION_HEX >= 0x030d0000
#define TUTTI_TORCH_PYTHON_ENDS Py_IsFinalizing
#else
#define TUTTI_TORCH_PYTHON_ENDS _Py_IsFinalizing
#endif

namespace tutti_torch {

/* ---- connecting ---- */

/* torch's store as a tutti_store_t. If the store throws, the functions of the table return 1, and
   `error` keeps the text until the next call of one of them. */
struct StoreAdapter {
    StorePtr store;
    std::string prefix, error;
    tutti_store_t table = {};

    StoreAdapter(StorePtr from, std::string name) : store(std::move(from)), prefix(std::move(name))
    {
        table.size = sizeof(table);
        table.context = this;
        table.prefix = prefix.c_str();
        table.set = set;
        table.get = get;
    }

    template <typename Function> int guarded(Function function)
    {
        error.clear();
        try {
            function();
            return 0;
        } catch (const std::exception &e) {
            error = e.what();
            error = error.substr(0, error.find('\n'));
        } catch (...) {
            error = "an exception of an unknown type";
        }
        return 1;
    }

    static int set(void *context, const char *key, const void *value, size_t bytes)
    {
        auto *self = static_cast<StoreAdapter *>(context);
        auto *first = static_cast<const uint8_t *>(value);
        return self->guarded(
            [&] { self->store->set(key, std::vector<uint8_t>(first, first + bytes)); });
    }

    static int get(void *context, const char *key, void *value, size_t room, size_t *ret_bytes,
                   int timeout_ms)
    {
        auto *self = static_cast<StoreAdapter *>(context);
        return self->guarded([&] {
            self->store->wait({ key }, milliseconds(std::max(timeout_ms, 1)));
            std::vector<uint8_t> data = self->store->get(key);
            TORCH_CHECK(data.size() <= room, "the value of ", key, " is too long");
            std::copy(data.begin(), data.end(), static_cast<uint8_t *>(value));
            *ret_bytes = data.size();
        });
    }
};

/*
 * A name that no earlier group has used in this store: torch repeats its prefixes after
 * destroy_process_group. Each rank keeps, in the store, a count of the groups that it has made, so
 * the n-th groups of all ranks meet.
 */
inline std::string unique_prefix(c10d::Store &store, int rank, const std::string &name)
{
    int64_t generation = store.add(c10::str("tutti/generation/", rank), 1);
    return c10::str(name.empty() ? "world" : name, "#", generation);
}

inline void connect(Group &group, StoreAdapter &adapter)
{
    tutti_options_t options = TUTTI_OPTIONS_INIT;
    tutti_status_t status;

    options.store = &adapter.table;
    options.rank = group.rank;
    options.nranks = group.size;
    if (lib.comm_connect != nullptr) {
        set_timeout(options, group.timeout_ms.load());
        status = lib.comm_connect(&options, &group.comm);
        group.is_ordered = true;
    } else {
        TORCH_CHECK(lib.world() == nullptr, group.label,
                    ": this libtutti can make one group in a process (it has no "
                    "tutti_comm_connect): install a newer one");
        status = lib.init(&options);
        group.is_world = true;
        group.comm = lib.world();
    }
    if (status != TUTTI_OK) {
        std::string text = text_of(status, group.label);
        if (!adapter.error.empty())
            text += ". The store's error: " + adapter.error;
        std::rethrow_exception(error_of(status, text));
    }
}

inline TuttiBackend::TuttiBackend(const StorePtr &store, int rank, int size, milliseconds timeout,
                                  const std::string &name)
    : Backend(rank, size), store_(store), name_(name), group_(std::make_shared<Group>())
{
    group_->rank = rank;
    group_->size = size;
    group_->label = name.empty() ? "tutti" : "tutti: group " + name;
    group_->timeout_ms = static_cast<int>(std::min<int64_t>(timeout.count(), INT32_MAX));
    StoreAdapter adapter(store, unique_prefix(*store, rank, name));
    connect(*group_, adapter);
    prefix_ = adapter.prefix;
    messages_ = std::make_shared<Messages>(group_);
}

/* ---- the end ---- */

inline void TuttiBackend::shutdown()
{
    if (group_->comm != nullptr) {
        group_->drain();
        group_->say_goodbye();
    }
    group_->close();
    if (messages_)
        messages_->close();
}

/*
 * torch 2.5 destroys a group by dropping it. If Python is ending, the program has not destroyed its
 * groups, perhaps because of an error: then this rank does not wait for the others.
 */
inline TuttiBackend::~TuttiBackend()
{
    bool is_ending = !Py_IsInitialized() || TUTTI_TORCH_PYTHON_ENDS();

    if (!is_ending && PyGILState_Check()) {
        pybind11::gil_scoped_release release;
        shutdown();
    } else if (!is_ending) {
        shutdown();
    }
    group_->close();
    messages_->close();
}

inline void TuttiBackend::abort()
{
    if (group_->comm != nullptr)
        (void)lib.abort(group_->comm, "the program has aborted the process group");
}

#if TUTTI_TORCH_AT_LEAST(2, 8)
inline c10d::ErrorType TuttiBackend::getError()
{
    tutti_status_t state = TUTTI_OK;

    if (group_->comm != nullptr)
        (void)lib.comm_state(group_->comm, &state, nullptr, 0);
    switch (state) {
    case TUTTI_OK: return c10d::ErrorType::SUCCESS;
    case TUTTI_ERR_TIMEOUT: return c10d::ErrorType::TIMEOUT;
    case TUTTI_ERR_PEER_LOST: return c10d::ErrorType::REMOTE_ERROR;
    default: return c10d::ErrorType::COMM_ERROR;
    }
}
#endif

inline void TuttiBackend::setTimeout(milliseconds timeout)
{
    group_->timeout_ms = static_cast<int>(std::min<int64_t>(timeout.count(), INT32_MAX));
    has_new_timeout_ = true;
}

inline c10::intrusive_ptr<c10d::Backend::Options> TuttiBackend::getBackendOptions()
{
    return c10::make_intrusive<Options>(milliseconds(group_->timeout_ms));
}

inline c10::intrusive_ptr<c10d::Backend>
TuttiBackend::split(const StorePtr &store, const std::vector<int> &ranks,
                    const c10::intrusive_ptr<c10d::Backend::Options> &opts)
{
    auto found = std::find(ranks.begin(), ranks.end(), rank_);
    milliseconds timeout = opts ? opts->timeout : milliseconds(group_->timeout_ms);

    if (found == ranks.end())
        return {};
    return c10::make_intrusive<TuttiBackend>(store, static_cast<int>(found - ranks.begin()),
                                             static_cast<int>(ranks.size()), timeout,
                                             (name_.empty() ? "world" : name_) + ".split");
}

/* ---- monitored_barrier ---- */

/*
 * monitored_barrier uses the store, so a missing rank does not damage the group. Each rank sets a
 * key. Rank 0 waits for all keys, and sets the last key to "ok" or to the error text. A rank that
 * comes later reads the same key, so the numbers of the barriers stay equal on all ranks.
 *
 * Returns the error text; "": no rank is missing.
 */
inline std::string TuttiBackend::missing_ranks(const std::string &prefix, milliseconds timeout,
                                               bool wait_all_ranks)
{
    auto end = std::chrono::steady_clock::now() + timeout;
    std::string missing;
    int count = 0;

    for (int rank = 1; rank < size_; rank++) {
        std::vector<std::string> keys = { c10::str(prefix, rank) };
        auto left =
            std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now());
        bool here = store_->check(keys);
        if (!here && left.count() > 0) {
            try {
                store_->wait(keys, left);
                here = true;
            } catch (const std::exception &) {
                here = store_->check(keys);
            }
        }
        if (here)
            continue;
        missing += c10::str(count++ ? ", " : "", rank);
        if (!wait_all_ranks)
            break;
    }
    if (count == 0)
        return "";
    return c10::str("[Rank 0]: Rank", count > 1 ? "s " : " ", missing,
                    " failed to pass monitoredBarrier in ", timeout.count(), " ms");
}

inline void TuttiBackend::monitoredBarrier(const c10d::BarrierOptions &opts, bool wait_all_ranks)
{
    milliseconds timeout =
        opts.timeout == c10d::kUnsetTimeout ? milliseconds(group_->timeout_ms) : opts.timeout;
    std::string prefix = c10::str(prefix_, "/monitored/", ++monitored_, "/"), verdict;
    std::vector<std::string> end = { prefix + "end" };

    check_open();
    if (rank_ == 0) {
        if (timeout.count() <= 0)
            verdict = "[Rank 0]: Rank 0 timed out in monitoredBarrier after 0 ms.";
        else
            verdict = missing_ranks(prefix, timeout, wait_all_ranks);
        store_->set(end[0], verdict.empty() ? "ok" : verdict);
        TORCH_CHECK_WITH(DistBackendError, verdict.empty(), verdict);
        return;
    }
    store_->set(c10::str(prefix, rank_), "here");
    try { /* rank 0 may time out at the same time: wait a second longer for its error text */
        store_->wait(end, timeout + std::chrono::seconds(1));
        verdict = store_->get_to_str(end[0]);
    } catch (const std::exception &) {
        verdict = c10::str("no answer within ", timeout.count(), " ms");
    }
    TORCH_CHECK_WITH(DistBackendError, verdict == "ok", "Rank ", rank_,
                     " successfully reached monitoredBarrier, but received errors while waiting "
                     "for send/recv from rank 0. Please check rank 0 logs for faulty rank: ",
                     verdict);
}

/* ---- coalescing ---- */

inline void TuttiBackend::startCoalescing()
{
    std::lock_guard<std::mutex> lock(coalescing_);

    TORCH_CHECK_VALUE(!batch_, group_->label, ": a coalesced block is open already");
    batch_.emplace("a coalesced call");
    batch_outputs_.clear();
}

inline WorkPtr TuttiBackend::endCoalescing()
{
    std::optional<Calls> calls;
    Tensors outputs;
    {
        std::lock_guard<std::mutex> lock(coalescing_);
        TORCH_CHECK_VALUE(batch_, group_->label, ": no coalesced block is open");
        calls.swap(batch_);
        outputs.swap(batch_outputs_);
    }
    return start(c10d::OpType::COALESCED, "tutti:coalesced", std::move(*calls),
                 std::move(outputs), c10d::kUnsetTimeout, true);
}

/* ---- memory ---- */

/*
 * A tensor that the group's collectives need not copy. torch calls this for the buckets of
 * DistributedDataParallel, and for buffers of FSDP2 if the program has requested that. The tensor
 * may outlive the group. If no shared memory is left, the tensor is in ordinary memory.
 */
inline at::Tensor TuttiBackend::allocateTensor(long size, at::TensorOptions options)
{
    size_t bytes = static_cast<size_t>(size) * options.dtype().itemsize();
    void *memory = nullptr;

    TORCH_CHECK_VALUE(size >= 0, "tutti: allocate_tensor: size is ", size);
    check_open();
    if (!options.device().is_cpu() || lib.mem_free_local == nullptr ||
        lib.mem_alloc_local(group_->comm, bytes, &memory) != TUTTI_OK || memory == nullptr)
        return at::empty({ size }, options);
    return at::from_blob(memory, { size }, [](void *p) { lib.mem_free_local(p); }, options);
}

} // namespace tutti_torch
