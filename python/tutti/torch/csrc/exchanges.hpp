/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls that move data without reducing it.
 *
 * gather, scatter and alltoall always use the library's v forms: a rank cannot tell whether the
 * parts of other ranks have the size of its own part.
 */
#pragma once

#include "collectives.hpp"

namespace tutti_torch {

inline void check_parts(const std::vector<Tensors> &parts, int size, const char *what)
{
    TORCH_CHECK_VALUE(parts.size() == 1 && parts[0].size() == size_t(size), "tutti: ", what,
                      " needs one list with a tensor for each of ", size, " ranks");
}

inline void add_allgather(Calls &calls, const Tensors &outputs, const at::Tensor &input, int rank)
{
    check_tensor(input, "all_gather");
    Flat flat = calls.flat_out(outputs, input);
    Entry &e = calls.add(TUTTI_CALL_ALLGATHER, flat.elem.dtype);
    size_t count = input.numel() * flat.elem.per;

    TORCH_CHECK_VALUE(flat.counts[rank] == count, "tutti: all_gather: the input has ",
                      input.numel(), " elements, output ", rank, " has ", outputs[rank].numel());
    e.call.sendbuf = calls.in(input, other_of(flat.address, outputs, rank));
    e.call.recvbuf = flat.address;
    e.call.count = count;
    for (size_t other : flat.counts) {
        if (other != count)
            e.call.kind = TUTTI_CALL_ALLGATHERV;
    }
    if (e.call.kind == TUTTI_CALL_ALLGATHERV)
        e.recvcounts = flat.counts;
}

inline WorkPtr TuttiBackend::allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                                       const c10d::AllgatherOptions &opts)
{
    Calls calls("all_gather");

    check_parts(outputs, size_, "all_gather");
    add_allgather(calls, outputs[0], only(inputs, "all_gather"), rank_);
    return start(c10d::OpType::ALLGATHER, "tutti:all_gather", std::move(calls), outputs[0],
                 opts.timeout, is_async(opts, 0));
}

inline WorkPtr TuttiBackend::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                                 const c10d::AllgatherOptions &opts)
{
    Calls calls("all_gather_coalesced");
    Tensors all;

    TORCH_CHECK_VALUE(outputs.size() == size_t(size_) && !inputs.empty(),
                      "tutti: all_gather_coalesced needs a list of outputs for each of ", size_,
                      " ranks");
    for (size_t i = 0; i < inputs.size(); i++) {
        Tensors parts;
        for (Tensors &of_rank : outputs) {
            TORCH_CHECK_VALUE(of_rank.size() == inputs.size(), "tutti: all_gather_coalesced: ",
                              inputs.size(), " inputs for ", of_rank.size(), " outputs");
            parts.push_back(of_rank[i]);
        }
        add_allgather(calls, parts, inputs[i], rank_);
        all.insert(all.end(), parts.begin(), parts.end());
    }
    return start(c10d::OpType::ALLGATHER_COALESCED, "tutti:all_gather_coalesced",
                 std::move(calls), std::move(all), opts.timeout, is_async(opts, 0));
}

inline void add_allgather_base(Calls &calls, const at::Tensor &output, const at::Tensor &input,
                               int size, int rank)
{
    check_tensor(input, "all_gather_into_tensor");
    TORCH_CHECK_VALUE(output.numel() == input.numel() * size &&
                          input.scalar_type() == output.scalar_type(),
                      "tutti: all_gather_into_tensor: the output has ", output.numel(),
                      " elements of ", output.scalar_type(), ", the input of ",
                      input.scalar_type(), " needs ", input.numel() * size);
    Elem elem = elem_of(input);
    Entry &e = calls.add(TUTTI_CALL_ALLGATHER, elem.dtype);
    e.call.recvbuf = calls.out(output);
    e.call.sendbuf = calls.in(input, { e.call.recvbuf, output.nbytes(), rank * input.nbytes() });
    e.call.count = input.numel() * elem.per;
}

inline WorkPtr TuttiBackend::_allgather_base(at::Tensor &output, at::Tensor &input,
                                             const c10d::AllgatherOptions &opts)
{
    Calls calls("all_gather_into_tensor");

    add_allgather_base(calls, output, input, size_, rank_);
    return start(c10d::OpType::_ALLGATHER_BASE, "tutti:_all_gather_base", std::move(calls),
                 { output }, opts.timeout, is_async(opts, 0));
}

inline WorkPtr TuttiBackend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                             const c10d::AllgatherOptions &opts)
{
    Calls calls("all_gather_into_tensor_coalesced");

    TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !outputs.empty(),
                      "tutti: all_gather_into_tensor_coalesced: ", inputs.size(), " inputs for ",
                      outputs.size(), " outputs");
    for (size_t i = 0; i < outputs.size(); i++)
        add_allgather_base(calls, outputs[i], inputs[i], size_, rank_);
    return start(c10d::OpType::COALESCED, "tutti:all_gather_into_tensor_coalesced",
                 std::move(calls), outputs, opts.timeout, is_async(opts, 0));
}

/* Append a gather. The caller sets its buffers. */
inline Entry &add_gather(Calls &calls, const at::Tensor &input, int64_t root)
{
    check_tensor(input, "gather");
    Elem elem = elem_of(input);
    Entry &e = calls.add(TUTTI_CALL_GATHERV, elem.dtype);

    e.call.count = input.numel() * elem.per;
    e.call.root = static_cast<int>(root);
    return e;
}

inline WorkPtr TuttiBackend::gather(std::vector<Tensors> &outputs, Tensors &inputs,
                                    const c10d::GatherOptions &opts)
{
    Calls calls("gather");
    const at::Tensor &input = only(inputs, "gather");
    Tensors results;

    check_root(opts.rootRank, "gather");
    if (opts.rootRank == rank_) {
        check_parts(outputs, size_, "gather on the destination rank");
        results = outputs[0];
    } else {
        TORCH_CHECK_VALUE(outputs.empty() || outputs[0].empty(),
                          "tutti: gather: only the destination rank may have outputs");
    }
    Entry &e = add_gather(calls, input, opts.rootRank);
    if (opts.rootRank == rank_) {
        Flat flat = calls.flat_out(results, input);
        TORCH_CHECK_VALUE(flat.counts[rank_] == e.call.count, "tutti: gather: the input has ",
                          input.numel(), " elements, output ", rank_, " has ",
                          results[rank_].numel());
        e.call.sendbuf = calls.in(input, other_of(flat.address, results, rank_));
        e.call.recvbuf = flat.address;
        e.recvcounts = flat.counts;
    } else {
        e.call.sendbuf = calls.in(input);
    }
    return start(c10d::OpType::GATHER, "tutti:gather", std::move(calls), std::move(results),
                 opts.timeout, is_async(opts, 0));
}

inline WorkPtr TuttiBackend::gather_into_tensor(at::Tensor &output, at::Tensor &input,
                                                const c10d::GatherOptions &opts)
{
    Calls calls("gather_single");
    Tensors results;

    check_root(opts.rootRank, "gather_single");
    Entry &e = add_gather(calls, input, opts.rootRank);
    if (opts.rootRank == rank_) {
        TORCH_CHECK_VALUE(output.numel() == input.numel() * size_ &&
                              input.scalar_type() == output.scalar_type(),
                          "tutti: gather_single: the output has ", output.numel(),
                          " elements of ", output.scalar_type(), ", the input of ",
                          input.scalar_type(), " needs ", input.numel() * size_);
        e.call.recvbuf = calls.out(output);
        e.call.sendbuf =
            calls.in(input, { e.call.recvbuf, output.nbytes(), rank_ * input.nbytes() });
        e.recvcounts.assign(size_, e.call.count);
        results = { output };
    } else {
        e.call.sendbuf = calls.in(input);
    }
    return start(c10d::OpType::GATHER, "tutti:gather_single", std::move(calls),
                 std::move(results), opts.timeout, is_async(opts, 0));
}

inline WorkPtr TuttiBackend::scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                     const c10d::ScatterOptions &opts)
{
    Calls calls("scatter");
    const at::Tensor &output = only(outputs, "scatter");

    check_root(opts.rootRank, "scatter");
    check_tensor(output, "scatter");
    Elem elem = elem_of(output);
    Entry &e = calls.add(TUTTI_CALL_SCATTERV, elem.dtype);
    e.call.recvbuf = calls.out(output);
    e.call.count = output.numel() * elem.per;
    e.call.root = static_cast<int>(opts.rootRank);
    if (opts.rootRank == rank_) {
        check_parts(inputs, size_, "scatter on the source rank");
        /* In place, the output is this rank's part of the list. The offset of the list from the
           output is then negative, modulo the size of the address space. */
        size_t own = size_t(0) - other_of(nullptr, inputs[0], rank_).own;
        Flat flat = calls.flat_in(inputs[0], output, { e.call.recvbuf, output.nbytes(), own });
        TORCH_CHECK_VALUE(flat.counts[rank_] == e.call.count, "tutti: scatter: the output has ",
                          output.numel(), " elements, input ", rank_, " has ",
                          inputs[0][rank_].numel());
        e.call.sendbuf = flat.address;
        e.sendcounts = flat.counts;
    } else {
        TORCH_CHECK_VALUE(inputs.empty() || inputs[0].empty(),
                          "tutti: scatter: only the source rank may have inputs");
    }
    return start(c10d::OpType::SCATTER, "tutti:scatter", std::move(calls), outputs, opts.timeout,
                 is_async(opts, 0));
}

/* The number of elements of each part of `t`. If `sizes` is empty, the parts are equal. */
inline Counts split_counts(const at::Tensor &t, const std::vector<int64_t> &sizes, int size,
                           const char *what)
{
    size_t per = elem_of(t).per;
    int64_t rows = t.dim() == 0 ? t.numel() : t.size(0), sum = 0;
    size_t row = rows > 0 ? t.numel() / rows * per : 0;
    Counts counts;

    if (sizes.empty()) {
        TORCH_CHECK_VALUE(rows % size == 0, "tutti: all_to_all_single: dimension 0 of the ", what,
                          " is ", rows, ", which ", size, " ranks do not divide");
        return Counts(size, rows / size * row);
    }
    TORCH_CHECK_VALUE(sizes.size() == size_t(size), "tutti: all_to_all_single: ", sizes.size(),
                      " split sizes of the ", what, " for ", size, " ranks");
    for (int64_t part : sizes) {
        TORCH_CHECK_VALUE(part >= 0, "tutti: all_to_all_single: a split size of the ", what,
                          " is ", part);
        counts.push_back(part * row);
        sum += part;
    }
    TORCH_CHECK_VALUE(sum == rows, "tutti: all_to_all_single: the split sizes of the ", what,
                      " add up to ", sum, ", dimension 0 is ", rows);
    return counts;
}

inline WorkPtr TuttiBackend::alltoall_base(at::Tensor &output, at::Tensor &input,
                                           std::vector<int64_t> &output_sizes,
                                           std::vector<int64_t> &input_sizes,
                                           const c10d::AllToAllOptions &opts)
{
    Calls calls("all_to_all_single");

    check_tensor(input, "all_to_all_single");
    TORCH_CHECK_VALUE(input.scalar_type() == output.scalar_type(),
                      "tutti: all_to_all_single: the input is of ", input.scalar_type(),
                      ", the output of ", output.scalar_type());
    Entry &e = calls.add(TUTTI_CALL_ALLTOALLV, elem_of(input).dtype);
    e.sendcounts = split_counts(input, input_sizes, size_, "input");
    e.recvcounts = split_counts(output, output_sizes, size_, "output");
    e.call.recvbuf = calls.out(output);
    size_t own = e.sendcounts == e.recvcounts ? 0 : SIZE_MAX; /* in place needs equal counts */
    e.call.sendbuf = calls.in(input, { e.call.recvbuf, output.nbytes(), own });
    return start(c10d::OpType::ALLTOALL_BASE, "tutti:all_to_all", std::move(calls), { output },
                 opts.timeout, is_async(opts, 0));
}

inline WorkPtr TuttiBackend::alltoall(Tensors &outputs, Tensors &inputs,
                                      const c10d::AllToAllOptions &opts)
{
    Calls calls("all_to_all");

    TORCH_CHECK_VALUE(outputs.size() == size_t(size_) && inputs.size() == size_t(size_),
                      "tutti: all_to_all needs an input and an output for each of ", size_,
                      " ranks");
    check_tensor(inputs[0], "all_to_all");
    Flat to = calls.flat_out(outputs, inputs[0]);
    Other other = other_of(to.address, outputs, size_);
    Flat from = calls.flat_in(inputs, inputs[0], { other.begin, other.bytes, SIZE_MAX });
    Entry &e = calls.add(TUTTI_CALL_ALLTOALLV, from.elem.dtype);
    e.call.sendbuf = from.address;
    e.call.recvbuf = to.address;
    e.sendcounts = from.counts;
    e.recvcounts = to.counts;
    return start(c10d::OpType::ALLTOALL, "tutti:all_to_all", std::move(calls), outputs,
                 opts.timeout, is_async(opts, 0));
}

inline WorkPtr TuttiBackend::send(Tensors &tensors, int dest, int tag)
{
    Calls calls("send");
    const at::Tensor &t = only(tensors, "send");
    Elem elem = elem_of(t);

    check_open();
    check_root(dest, "send");
    if (dest == rank_)
        return messages_->to_self(t, tag, true, group_->timeout_ms);
    Entry &e = calls.add(TUTTI_CALL_SEND, elem.dtype);
    e.call.sendbuf = calls.in(t);
    e.call.count = t.numel() * elem.per;
    e.call.root = dest;
    e.name = messages_->next_name(rank_, dest, tag);
    return start(c10d::OpType::SEND, "tutti:send", std::move(calls), tensors, c10d::kUnsetTimeout,
                 true);
}

inline WorkPtr TuttiBackend::recv(Tensors &tensors, int source, int tag)
{
    Calls calls("recv");
    const at::Tensor &t = only(tensors, "recv");
    Elem elem = elem_of(t);

    check_open();
    check_root(source, "recv");
    if (source == rank_)
        return messages_->to_self(t, tag, false, group_->timeout_ms);
    if (auto posted = messages_->take_posted(t, source, tag, group_->timeout_ms))
        return posted;
    Entry &e = calls.add(TUTTI_CALL_RECV, elem.dtype);
    e.call.recvbuf = calls.out(t);
    e.call.count = t.numel() * elem.per;
    e.call.root = source;
    calls.source = source;
    e.name = messages_->next_name(source, rank_, tag);
    return start(c10d::OpType::RECV, "tutti:recv", std::move(calls), tensors, c10d::kUnsetTimeout,
                 true);
}

inline WorkPtr TuttiBackend::recvAnysource(Tensors &tensors, int tag)
{
    const at::Tensor &t = only(tensors, "recv");

    check_open();
    check_tensor(t, "recv");
    TORCH_CHECK_NOT_IMPLEMENTED(t.is_cpu(), "tutti: a receive from any source needs host memory");
    TORCH_CHECK_VALUE(size_ > 1, "tutti: no other rank can send to this one");
    return messages_->receive_any(t, tag, group_->timeout_ms);
}

} // namespace tutti_torch
