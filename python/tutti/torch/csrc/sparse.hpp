/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sum of sparse tensors (COO): each rank gathers the rows of all ranks, and adds them.
 *
 * A row is the coordinates of one value, and the value. The ranks have different numbers of rows,
 * so these are exchanged first, and the call waits for them, also if it is asynchronous.
 */
#pragma once

#include "exchanges.hpp"

namespace tutti_torch {

/* Of a sparse tensor, in host memory: the number of rows, the number of sparse dimensions, the
   sizes. */
inline at::Tensor shape_of(const at::Tensor &t)
{
    std::vector<int64_t> facts = { t._nnz(), t.sparse_dim() };

    facts.insert(facts.end(), t.sizes().begin(), t.sizes().end());
    return at::tensor(facts, at::kLong);
}

/* Append a gather of rows. rows: of each rank. Returns the tensor that will hold all rows. */
inline at::Tensor add_rows(Calls &calls, const at::Tensor &mine, const Counts &rows)
{
    Elem elem = elem_of(mine);
    std::vector<int64_t> sizes = mine.sizes().vec();
    size_t row = c10::multiply_integers(sizes.begin() + 1, sizes.end()) * elem.per;

    sizes[0] = 0;
    for (size_t n : rows)
        sizes[0] += n;
    at::Tensor all = new_plain(mine, sizes);
    Entry &e = calls.add(TUTTI_CALL_ALLGATHERV, elem.dtype);
    for (size_t n : rows)
        e.recvcounts.push_back(n * row);
    e.call.count = mine.size(0) * row;
    e.call.sendbuf = calls.in(mine);
    e.call.recvbuf = calls.out(all);
    return all;
}

inline WorkPtr TuttiBackend::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    const at::Tensor &t = only(tensors, "all_reduce");
    at::AutoDispatchBelowADInplaceOrView guard;
    Calls meeting("all_reduce"), calls("all_reduce");
    Counts rows;

    check_open();
    TORCH_CHECK_NOT_IMPLEMENTED(opts.reduceOp == c10d::ReduceOp::SUM, "tutti: all_reduce of sparse "
                                                                      "tensors can only sum");
    {
        std::lock_guard<std::mutex> lock(coalescing_);
        TORCH_CHECK_NOT_IMPLEMENTED(!batch_, "tutti: all_reduce of sparse tensors cannot be "
                                             "coalesced");
    }
    at::Tensor mine = t.coalesce(), shape = shape_of(mine);
    at::Tensor shapes = at::empty({ size_, shape.numel() }, shape.options());
    add_allgather_base(meeting, shapes, shape, size_, rank_);
    run(c10d::OpType::ALLREDUCE, std::move(meeting), {}, timeout_of(opts.timeout));
    for (int r = 0; r < size_; r++) {
        TORCH_CHECK_VALUE(at::equal(shapes[r].slice(0, 1), shape.slice(0, 1)), "tutti: all_reduce: "
                          "rank ", r, " has another sparse tensor: its number of sparse dimensions "
                          "and its sizes are [", shapes[r].slice(0, 1), "], here [",
                          shape.slice(0, 1), "]");
        rows.push_back(shapes[r][0].item<int64_t>());
    }

    at::Tensor places = add_rows(calls, mine._indices().t().contiguous(), rows);
    at::Tensor values = add_rows(calls, mine._values(), rows);
    calls.then([t, places, values] {
        at::AutoDispatchBelowADInplaceOrView guard;
        t.copy_(at::_sparse_coo_tensor_unsafe(places.t(), values, t.sizes()).coalesce());
    });
    return start(c10d::OpType::ALLREDUCE, "tutti:all_reduce", std::move(calls), tensors,
                 opts.timeout, is_async(opts, 0));
}

} // namespace tutti_torch
