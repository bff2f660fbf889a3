/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The beginning and the end of a group, monitored_barrier, coalescing.
 */
#pragma once

#include <thread>

#include <pybind11/pybind11.h>

#include "sparse.hpp"

#if PY_VERSION_HEX >= 0x030d0000
#define TUTTI_TORCH_PYTHON_ENDS Py_IsFinalizing
#else
#define TUTTI_TORCH_PYTHON_ENDS _Py_IsFinalizing
#endif

namespace tutti_torch {

/* ---- connecting ---- */

/*
 * torch's store as a tutti_store_t. If the store throws, the functions of the table return 1, and
 * `error` keeps the text until the next call of one of them.
 *
 * Groups with the same keys may follow each other: torch repeats its prefixes after
 * destroy_process_group, and torchrun keeps its store when it restarts the ranks. So rank 0 counts
 * its groups in the store, and writes this number, the generation, in front of its place. The other
 * ranks do not count: a rank that has failed before it made its group would count differently.
 */
struct StoreAdapter {
    using Clock = std::chrono::steady_clock;
    static constexpr auto kPoll = milliseconds(20); /* Chosen: a store may be a server. */

    StorePtr store;
    std::string prefix, error;
    std::string joined_key; /* in the store; other ranks: the last `generation` */
    int64_t generation = 0; /* of rank 0's group; other ranks: of the place that was read last */
    int64_t joined = 0;     /* other ranks: a place that is not newer belongs to an earlier group */
    Clock::time_point end = Clock::time_point::max(); /* of all waits for a place */
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
        return self->guarded([&] {
            std::string number = std::to_string(self->generation) + " ";
            std::vector<uint8_t> data(number.begin(), number.end());
            data.insert(data.end(), first, first + bytes);
            self->store->set(key, data);
        });
    }

    /* Wait for a place that is newer than `joined`. An attempt to connect uses one place, even if
       it reads the place several times. If there is a still newer place, the next attempt uses
       it. */
    std::vector<uint8_t> read_place(const std::string &key, int timeout_ms)
    {
        auto until = std::min(Clock::now() + milliseconds(timeout_ms), end);
        auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now());

        store->wait({ key }, std::max(left, milliseconds(1)));
        for (;;) {
            std::vector<uint8_t> data = store->get(key);
            auto space = std::find(data.begin(), data.end(), ' ');
            TORCH_CHECK(space != data.end(), key, " was written by another version");
            int64_t number = std::stoll(std::string(data.begin(), space));
            if (number > joined && (generation == joined || number == generation)) {
                /* Store the number now: later, rank 0 and its store may have ended. */
                if (number > generation)
                    store->add(joined_key, number - generation);
                generation = number;
                return { space + 1, data.end() };
            }
            TORCH_CHECK(Clock::now() < until, key, " is of an earlier group");
            std::this_thread::sleep_for(kPoll);
        }
    }

    static int get(void *context, const char *key, void *value, size_t room, size_t *ret_bytes,
                   int timeout_ms)
    {
        auto *self = static_cast<StoreAdapter *>(context);
        return self->guarded([&] {
            std::vector<uint8_t> data = self->read_place(key, timeout_ms);
            TORCH_CHECK(data.size() <= room, "the value of ", key, " is too long");
            std::copy(data.begin(), data.end(), static_cast<uint8_t *>(value));
            *ret_bytes = data.size();
        });
    }
};

/* Connect once. ret_error is the exception of a failure. */
inline tutti_status_t connect(Group &group, StoreAdapter &adapter, std::exception_ptr &ret_error)
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
        ret_error = error_of(status, text);
    }
    return status;
}

/*
 * A rank other than 0. The place in the store may be that of an earlier rank 0, which has ended or
 * has given up. So after TUTTI_ERR_TRANSPORT or TUTTI_ERR_TIMEOUT, wait for a newer place. If there
 * is none within the group's timeout, the first error is thrown.
 */
inline void join(Group &group, StoreAdapter &adapter)
{
    std::exception_ptr error, first;
    tutti_status_t status;

    if (group.timeout_ms > 0)
        adapter.end = StoreAdapter::Clock::now() + milliseconds(group.timeout_ms);
    adapter.joined_key = c10::str("tutti/joined/", group.rank);
    adapter.generation = adapter.store->add(adapter.joined_key, 0);
    for (;;) {
        adapter.joined = adapter.generation;
        status = connect(group, adapter, error);
        if (status == TUTTI_OK)
            return;
        if (adapter.generation == adapter.joined)
            std::rethrow_exception(first ? first : error);
        if ((status != TUTTI_ERR_TRANSPORT && status != TUTTI_ERR_TIMEOUT) ||
            StoreAdapter::Clock::now() >= adapter.end)
            std::rethrow_exception(error);
        first = first ? first : error;
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
    Pool::get().begin();
    StoreAdapter adapter(store, name.empty() ? "world" : name);
    if (rank == 0) {
        std::exception_ptr error;
        adapter.generation = store->add("tutti/generation", 1);
        if (connect(*group_, adapter, error) != TUTTI_OK)
            std::rethrow_exception(error);
    } else {
        join(*group_, adapter);
    }
    prefix_ = c10::str(adapter.prefix, "#", adapter.generation);
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
    std::shared_lock<std::shared_mutex> lock(group_->using_comm);

    if (group_->comm != nullptr)
        (void)lib.abort(group_->comm, "the program has aborted the process group");
}

#if TUTTI_TORCH_AT_LEAST(2, 8)
inline c10d::ErrorType TuttiBackend::getError()
{
    std::shared_lock<std::shared_mutex> lock(group_->using_comm);
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
    group_->has_new_timeout = true;
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
    void *memory = nullptr;
    size_t bytes;

    TORCH_CHECK_VALUE(size >= 0, "tutti: allocate_tensor: size is ", size);
    TORCH_CHECK_VALUE(!__builtin_mul_overflow(size, options.dtype().itemsize(), &bytes),
                      "tutti: allocate_tensor: ", size, " elements are too many");
    auto used = group_->use();
    if (!options.device().is_cpu() || lib.mem_free_local == nullptr ||
        lib.mem_alloc_local(group_->comm, bytes, &memory) != TUTTI_OK || memory == nullptr)
        return at::empty({ size }, options);
    return at::from_blob(memory, { size }, [](void *p) { lib.mem_free_local(p); }, options);
}

} // namespace tutti_torch
