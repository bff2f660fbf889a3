/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sum of sparse tensors (COO): each rank gathers the rows of all ranks, and adds them.
 *
 * A row is the coordinates of one value, and the value. The number of rows can differ between the
 * ranks. The call first exchanges these numbers, and waits for this exchange even if the call is
 * asynchronous.
 */
#pragma once

#include "exchanges.hpp"

namespace tutti_torch {

/* The metadata of a sparse tensor, in host memory: the number of rows, the number of sparse
   dimensions, the sizes. */
inline at::Tensor shape_of(const at::Tensor &t)
{
    std::vector<int64_t> metadata = { t._nnz(), t.sparse_dim() };

    metadata.insert(metadata.end(), t.sizes().begin(), t.sizes().end());
    return at::tensor(metadata, at::kLong);
}

/* Append a gather of rows. mine: the rows of this rank. rows: the number of rows of each rank.
   Returns the tensor that will hold the rows of all ranks. */
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
    at::Tensor mine = t;
    try {
        mine = t.coalesce();
    } catch (const c10::Error &) { /* finish() will raise the error, on all ranks */
    }
    at::Tensor shape = shape_of(mine);
    at::Tensor shapes = at::empty({ size_, shape.numel() }, shape.options());
    add_allgather_base(meeting, shapes, shape, size_, rank_);
    run(c10d::OpType::ALLREDUCE, std::move(meeting), {}, timeout_of(opts.timeout));
    at::IntArrayRef ours(shape.data_ptr<int64_t>() + 1, shape.numel() - 1);
    for (int r = 0; r < size_; r++) {
        const int64_t *row = shapes.data_ptr<int64_t>() + r * shape.numel();
        at::IntArrayRef theirs(row + 1, shape.numel() - 1);

        TORCH_CHECK_VALUE(theirs == ours, "tutti: all_reduce: rank ", r, " has another sparse "
                          "tensor: its number of sparse dimensions and its sizes are ", theirs,
                          ", here ", ours);
        rows.push_back(row[0]);
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
