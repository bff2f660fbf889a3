/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One call of c10d as calls of the library: a list of tutti_call_t, with the buffers, copies and
 * arrays that they need.
 *
 * A tensor that is not contiguous is copied to a contiguous one, and the result is copied back in
 * finish(), on the thread that completes the call. A complex tensor is passed as twice as many real
 * numbers. A tensor of a type that the library does not have is passed as bytes.
 */
#pragma once

#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tensors.hpp"

namespace tutti_torch {

using Tensors = std::vector<at::Tensor>;
using Counts = std::vector<size_t>;

struct Entry {
    tutti_call_t call = TUTTI_CALL_INIT;
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;
    Counts sendcounts, recvcounts;
    std::string name; /* of a message; collectives are named when they are submitted */

    bool is_message() const
    {
        return call.kind == TUTTI_CALL_SEND || call.kind == TUTTI_CALL_RECV;
    }
};

/* The other buffer of a call. If a tensor of the call overlaps this buffer, the library accepts the
   tensor only at the offset `own`, where this rank's part is (in place). If `own` is SIZE_MAX, the
   library accepts no tensor that overlaps this buffer. */
struct Other {
    const void *begin;
    size_t bytes, own;
};

inline Other other_of(const void *begin, const Tensors &parts, size_t rank)
{
    Other other = { begin, 0, 0 };

    for (size_t i = 0; i < parts.size(); i++) {
        if (i == rank)
            other.own = other.bytes;
        other.bytes += parts[i].nbytes();
    }
    return other;
}

/* A list of tensors as one buffer. */
struct Flat {
    void *address;
    Elem elem;
    Counts counts; /* of `elem` */
};

class Calls {
public:
    int source = -1; /* of a receive */

    explicit Calls(const char *what) : what_(what)
    {
    }

    size_t size() const
    {
        return entries_.size();
    }

    bool has_collective() const
    {
        for (const Entry &e : entries_) {
            if (!e.is_message())
                return true;
        }
        return false;
    }

    std::vector<Entry> &entries()
    {
        return entries_;
    }

    /* The device of the tensors. It has no value before the first tensor was added. */
    const std::optional<at::Device> &device() const
    {
        return device_;
    }

    bool is_cuda() const
    {
        return device_ && device_->is_cuda();
    }

    /* Append all calls of `other`, which is empty afterwards. */
    void absorb(Calls &&other)
    {
        if (other.device_)
            same_device(*other.device_);
        for (Entry &e : other.entries_)
            entries_.push_back(std::move(e));
        for (at::Tensor &t : other.keep_)
            keep_.push_back(std::move(t));
        for (auto &then : other.after_)
            after_.push_back(std::move(then));
    }

    Entry &add(tutti_call_kind_t kind, tutti_dtype_t dtype)
    {
        Entry &e = entries_.emplace_back();
        e.call.kind = kind;
        e.call.dtype = dtype;
        return e;
    }

    Entry &add_reduction(tutti_call_kind_t kind, const at::Tensor &t, const Reduction &reduction)
    {
        check_reducible(t, reduction);
        Entry &e = add(kind, elem_of(t).dtype);
        e.call.op = reduction.op;
        e.options.prescale = reduction.prescale;
        return e;
    }

    /* The address of a tensor that is read. */
    const void *in(const at::Tensor &t)
    {
        use(t);
        if (is_plain(t))
            return keep(t);
        return keep(plain_copy(t));
    }

    /* The address of a tensor that is read while `other` is written. A tensor that the library
       would refuse is copied. */
    const void *in(const at::Tensor &t, const Other &other)
    {
        use(t);
        if (!is_plain(t) || is_taken(t.data_ptr(), t.nbytes(), other))
            return in(t);
        return keep(plain_copy(t));
    }

    /* The address of a tensor whose elements are all written. */
    void *out(const at::Tensor &t)
    {
        use(t);
        if (is_plain(t))
            return keep(t);
        return keep(back_to(t, new_plain(t, t.sizes())));
    }

    /* The address of the output of a reduce_scatter, which is written while `other` is read. The
       output may also be at the beginning of `other`. */
    void *out(const at::Tensor &t, const Other &other)
    {
        use(t);
        if (!is_plain(t) || is_taken(t.data_ptr(), t.nbytes(), other) ||
            distance(t.data_ptr(), other) == 0)
            return out(t);
        return keep(back_to(t, new_plain(t, t.sizes())));
    }

    /* The address of a tensor that is read, and may be written. */
    void *in_out(const at::Tensor &t)
    {
        use(t);
        if (is_plain(t))
            return keep(t);
        return keep(back_to(t, plain_copy(t)));
    }

    /* A list of tensors, as one buffer that is read, while `other` is written. */
    Flat flat_in(const Tensors &list, const at::Tensor &like, const Other &other = {})
    {
        Flat flat = describe(list, like);
        auto address = adjacent(list);
        if (address && is_taken(*address, total_of(list) * like.element_size(), other)) {
            flat.address = *address;
            return flat;
        }
        at::Tensor whole = new_plain(like, { total_of(list) });
        for_parts(list, whole, [](const at::Tensor &t, const at::Tensor &part) {
            copy_into(part, t);
        });
        flat.address = keep(whole);
        return flat;
    }

    /* A list of tensors, as one buffer that is written. */
    Flat flat_out(const Tensors &list, const at::Tensor &like)
    {
        Flat flat = describe(list, like);
        if (auto address = adjacent(list)) {
            flat.address = *address;
            return flat;
        }
        at::Tensor whole = new_plain(like, { total_of(list) });
        for_parts(list, whole, [this](const at::Tensor &t, const at::Tensor &part) {
            back_to(t, part);
        });
        flat.address = keep(whole);
        return flat;
    }

    /* Append a function that finish() will call. */
    void then(std::function<void()> &&work)
    {
        after_.push_back(std::move(work));
    }

    /* Called after the calls have succeeded: copy results to the caller's tensors. With a stream,
       the allocator does not reuse the memory of the tensors before the stream has reached this
       point. */
    void finish(const std::optional<c10::Stream> &stream)
    {
        for (const auto &work : after_)
            work();
        if (stream) {
            for (at::Tensor &t : keep_)
                t.record_stream(*stream);
        }
    }

    /* Drop all references to tensors. */
    void clear()
    {
        keep_.clear();
        after_.clear();
        entries_.clear();
    }

private:
    /* Bytes from the beginning of `other` to an address, modulo the size of the address space. */
    static uintptr_t distance(const void *begin, const Other &other)
    {
        return reinterpret_cast<uintptr_t>(begin) - reinterpret_cast<uintptr_t>(other.begin);
    }

    static bool is_apart(const void *begin, size_t bytes, const Other &other)
    {
        return bytes == 0 || other.bytes == 0 ||
               (distance(begin, other) >= other.bytes &&
                uintptr_t(0) - distance(begin, other) >= bytes);
    }

    /* Whether the library accepts this memory in a call that also uses `other`. */
    static bool is_taken(const void *begin, size_t bytes, const Other &other)
    {
        return is_apart(begin, bytes, other) ||
               (other.own != SIZE_MAX && distance(begin, other) == other.own);
    }

    void use(const at::Tensor &t)
    {
        check_tensor(t, what_);
        same_device(t.device());
    }

    void same_device(const at::Device &device)
    {
        TORCH_CHECK_VALUE(!device_ || *device_ == device, "tutti: ", what_,
                          ": tensors are on different devices, ", *device_, " and ", device);
        device_ = device;
    }

    void *keep(const at::Tensor &t)
    {
        keep_.push_back(t);
        return t.numel() == 0 ? nullptr : t.data_ptr();
    }

    at::Tensor back_to(const at::Tensor &t, const at::Tensor &plain)
    {
        then([t, plain] { copy_into(t, plain); });
        return plain;
    }

    Flat describe(const Tensors &list, const at::Tensor &like)
    {
        Flat flat = { nullptr, elem_of(like), {} };

        flat.counts.reserve(list.size());
        for (const at::Tensor &t : list) {
            use(t);
            TORCH_CHECK_VALUE(t.scalar_type() == like.scalar_type(), "tutti: ", what_,
                              ": tensors of different types, ", t.scalar_type(), " and ",
                              like.scalar_type());
            keep_.push_back(t);
            flat.counts.push_back(t.numel() * flat.elem.per);
        }
        return flat;
    }

    template <typename Function>
    static void for_parts(const Tensors &list, const at::Tensor &whole, Function function)
    {
        int64_t at = 0;

        for (const at::Tensor &t : list) {
            if (t.numel() > 0)
                function(t, whole.narrow(0, at, t.numel()).view(t.sizes()));
            at += t.numel();
        }
    }

    const char *what_;
    std::optional<at::Device> device_;
    std::vector<Entry> entries_;
    Tensors keep_;
    std::vector<std::function<void()>> after_;
};

} // namespace tutti_torch
