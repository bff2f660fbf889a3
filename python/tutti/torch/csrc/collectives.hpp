/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions, broadcast and barrier.
 */
#pragma once

#include "backend.hpp"

namespace tutti_torch {

inline const at::Tensor &only(const Tensors &tensors, const char *what)
{
    TORCH_CHECK_VALUE(tensors.size() == 1, "tutti: ", what, " takes one tensor, not ",
                      tensors.size());
    return tensors[0];
}

inline WorkPtr TuttiBackend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts)
{
    Calls calls("broadcast");
    const at::Tensor &t = only(tensors, "broadcast");
    Elem elem = elem_of(t);

    check_root(opts.rootRank, "broadcast");
    Entry &e = calls.add(TUTTI_CALL_BROADCAST, elem.dtype);
    /* The root's tensor is only read: it may be one that cannot be written, such as an expanded
       tensor. */
    e.call.recvbuf = opts.rootRank == rank_ ? const_cast<void *>(calls.in(t)) : calls.out(t);
    e.call.count = t.numel() * elem.per;
    e.call.root = static_cast<int>(opts.rootRank);
    return start(c10d::OpType::BROADCAST, "tutti:broadcast", std::move(calls), tensors,
                 opts.timeout, is_async(opts, 0));
}

inline void add_allreduce(Calls &calls, const at::Tensor &t, const Reduction &reduction)
{
    check_tensor(t, "all_reduce");
    Entry &e = calls.add_reduction(TUTTI_CALL_ALLREDUCE, t, reduction);
    e.call.recvbuf = calls.in_out(t);
    e.call.sendbuf = e.call.recvbuf;
    e.call.count = t.numel() * elem_of(t).per;
}

inline WorkPtr TuttiBackend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    Calls calls("all_reduce");
    const at::Tensor &t = only(tensors, "all_reduce");

    if (t.layout() == at::kSparse)
        return allreduce_sparse(tensors, opts); /* sparse.hpp */
    add_allreduce(calls, t, reduction_of(opts.reduceOp));
    return start(c10d::OpType::ALLREDUCE, "tutti:all_reduce", std::move(calls), tensors,
                 opts.timeout, is_async(opts, 0));
}

inline WorkPtr TuttiBackend::allreduce_coalesced(Tensors &tensors,
                                                 const c10d::AllreduceCoalescedOptions &opts)
{
    Calls calls("all_reduce_coalesced");
    Reduction reduction = reduction_of(opts.reduceOp);

    TORCH_CHECK_VALUE(!tensors.empty(), "tutti: all_reduce_coalesced needs a tensor");
    for (const at::Tensor &t : tensors)
        add_allreduce(calls, t, reduction);
    return start(c10d::OpType::ALLREDUCE_COALESCED, "tutti:all_reduce_coalesced",
                 std::move(calls), tensors, opts.timeout, is_async(opts, 0));
}

inline WorkPtr TuttiBackend::reduce(Tensors &tensors, const c10d::ReduceOptions &opts)
{
    Calls calls("reduce");
    const at::Tensor &t = only(tensors, "reduce");
    bool is_root = opts.rootRank == rank_;

    check_root(opts.rootRank, "reduce");
    check_tensor(t, "reduce");
    Entry &e = calls.add_reduction(TUTTI_CALL_REDUCE, t, reduction_of(opts.reduceOp));
    e.call.sendbuf = is_root ? calls.in_out(t) : calls.in(t);
    e.call.recvbuf = is_root ? const_cast<void *>(e.call.sendbuf) : nullptr;
    e.call.count = t.numel() * elem_of(t).per;
    e.call.root = static_cast<int>(opts.rootRank);
    return start(c10d::OpType::REDUCE, "tutti:reduce", std::move(calls), tensors, opts.timeout,
                 is_async(opts, 0));
}

inline WorkPtr TuttiBackend::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                            const c10d::ReduceScatterOptions &opts)
{
    Calls calls("reduce_scatter");
    const at::Tensor &output = only(outputs, "reduce_scatter");

    TORCH_CHECK_VALUE(inputs.size() == 1 && inputs[0].size() == size_t(size_),
                      "tutti: reduce_scatter needs one input for each of ", size_, " ranks");
    check_tensor(output, "reduce_scatter");
    Entry &e = calls.add_reduction(TUTTI_CALL_REDUCE_SCATTER, output, reduction_of(opts.reduceOp));
    Flat flat = calls.flat_in(inputs[0], output);
    size_t count = output.numel() * flat.elem.per;
    TORCH_CHECK_VALUE(flat.counts[rank_] == count, "tutti: reduce_scatter: the output has ",
                      output.numel(), " elements, input ", rank_, " has ",
                      inputs[0][rank_].numel());
    e.call.sendbuf = flat.address;
    e.call.recvbuf = calls.out(output, other_of(flat.address, inputs[0], rank_));
    e.call.count = count;
    for (size_t other : flat.counts) {
        if (other != count)
            e.call.kind = TUTTI_CALL_REDUCE_SCATTERV;
    }
    if (e.call.kind == TUTTI_CALL_REDUCE_SCATTERV) {
        e.recvcounts = flat.counts;
        e.call.count = 0;
    }
    return start(c10d::OpType::REDUCE_SCATTER, "tutti:reduce_scatter", std::move(calls), outputs,
                 opts.timeout, is_async(opts, 0));
}

inline void add_reduce_scatter(Calls &calls, const at::Tensor &output, const at::Tensor &input,
                               int size, int rank, const Reduction &reduction)
{
    check_tensor(output, "reduce_scatter_tensor");
    TORCH_CHECK_VALUE(input.numel() == output.numel() * size &&
                          input.scalar_type() == output.scalar_type(),
                      "tutti: reduce_scatter_tensor: the input has ", input.numel(),
                      " elements of ", input.scalar_type(), ", the output of ",
                      output.scalar_type(), " needs ", output.numel() * size);
    Entry &e = calls.add_reduction(TUTTI_CALL_REDUCE_SCATTER, output, reduction);
    e.call.sendbuf = calls.in(input);
    e.call.recvbuf = calls.out(output, { e.call.sendbuf, input.nbytes(), rank * output.nbytes() });
    e.call.count = output.numel() * elem_of(output).per;
}

inline WorkPtr TuttiBackend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                                  const c10d::ReduceScatterOptions &opts)
{
    Calls calls("reduce_scatter_tensor");

    add_reduce_scatter(calls, output, input, size_, rank_, reduction_of(opts.reduceOp));
    return start(c10d::OpType::_REDUCE_SCATTER_BASE, "tutti:_reduce_scatter_base",
                 std::move(calls), { output }, opts.timeout, is_async(opts, 0));
}

inline WorkPtr
TuttiBackend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                              const c10d::ReduceScatterOptions &opts)
{
    Calls calls("reduce_scatter_tensor_coalesced");
    Reduction reduction = reduction_of(opts.reduceOp);

    TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !outputs.empty(),
                      "tutti: reduce_scatter_tensor_coalesced: ", inputs.size(), " inputs for ",
                      outputs.size(), " outputs");
    for (size_t i = 0; i < outputs.size(); i++)
        add_reduce_scatter(calls, outputs[i], inputs[i], size_, rank_, reduction);
    return start(c10d::OpType::COALESCED, "tutti:reduce_scatter_tensor_coalesced",
                 std::move(calls), outputs, opts.timeout, is_async(opts, 0));
}

inline WorkPtr TuttiBackend::barrier(const c10d::BarrierOptions &opts)
{
    Calls calls("barrier");

    calls.add(TUTTI_CALL_BARRIER, static_cast<tutti_dtype_t>(0));
    return start(c10d::OpType::BARRIER, "tutti:barrier", std::move(calls), {}, opts.timeout,
                 is_async(opts, 0));
}

} // namespace tutti_torch
