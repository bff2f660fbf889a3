# SPDX-License-Identifier: BSD-3-Clause
"""The calls of Horovod's torch interface. The file has the name of Horovod's file, because programs
import from it. Tutti also runs without MPI.

Names are as in Horovod: calls of one kind with the same name are matched, in any order and from any
thread. Calls without a name are matched by their order, separately for each kind and process set.
The ranks compare types and shapes; of a single allreduce or broadcast that has a name they compare
types and numbers of elements. The default of `op` is Average.

If no gradient must be recorded, a call makes no autograd function.
"""

from ctypes import byref, c_int
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import torch

from ..._lib import lib
from ..common.exceptions import HorovodInternalError, failed
from ..common.job import (ccl_built, cross_rank, cross_size, cuda_built, ddl_built, gloo_built,
                          gloo_enabled, init, is_homogeneous, is_initialized, job, local_rank,
                          local_size, mpi_built, mpi_enabled, mpi_threads_supported, nccl_built,
                          rank, rocm_built, shutdown, size, start_timeline, stop_timeline)
from ..common.names import ALLGATHER, ALLREDUCE, ALLTOALL, REDUCESCATTER, encode_name, group_names
from ..common.ops import Adasum, Average, Max, Min, Product, Sum, choose_op
from ..common.process_sets import (ProcessSet, add_process_set, comm_of, global_process_set,
                                   remove_process_set)
from ..common.shapes import read_splits
from . import dtypes, handles, sized, submit
from .compression import Compression
from .handles import poll, synchronize

_allreduce = submit.allreduce

# The indices come from valid sparse tensors, so they need no check. Without this argument,
# torch >= 2.0 warns that it makes none.
_UNCHECKED = ({"check_invariants": False}
              if hasattr(torch.sparse, "check_sparse_tensor_invariants") else {})


job.before_start.append(submit.bind)
if job.initialized:  # by another front end
    submit.bind()
job.before_end += [handles.settle_done, sized.starter.stop]
job.after_end += [handles.discard_all, submit.forget_repeated]


def _records(*tensors: torch.Tensor) -> bool:
    """Whether autograd must record a call."""
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


# ---- allreduce ----

def allreduce_async(tensor: torch.Tensor, average: Optional[bool] = None,
                    name: Optional[str] = None, op: Optional[int] = None,
                    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                    process_set: ProcessSet = global_process_set) -> int:
    """Start to reduce a tensor over the ranks. Returns a handle; the result is a new tensor.

    average           deprecated: see op
    op                Average (default), Sum, Min, Max, Product
    prescale_factor   of the data before the reduction; integers are scaled in 64 bits
    postscale_factor  of the result
    process_set       the ranks that take part
    """
    op = choose_op(op, average)
    dtypes.check(tensor)
    return _allreduce(tensor, torch.empty_like(tensor, requires_grad=False), name, op,
                      prescale_factor, postscale_factor, process_set)


def allreduce_async_(tensor: torch.Tensor, average: Optional[bool] = None,
                     name: Optional[str] = None, op: Optional[int] = None,
                     prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                     process_set: ProcessSet = global_process_set) -> int:
    """As allreduce_async; the result replaces the tensor."""
    if average is not None:
        op = choose_op(op, average)
    return _allreduce(tensor, tensor, name, Average if op is None else op, prescale_factor,
                      postscale_factor, process_set)


def allreduce_(tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
               op: Optional[int] = None, prescale_factor: float = 1.0,
               postscale_factor: float = 1.0,
               process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """Reduce a tensor in place: see allreduce_async. Returns it."""
    return synchronize(allreduce_async_(tensor, average, name, op, prescale_factor,
                                        postscale_factor, process_set))


class _Allreduce(torch.autograd.Function):
    """The gradient of an allreduce is the same allreduce of the gradients."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: Optional[str], arguments: Tuple) -> Any:
        ctx.arguments = arguments
        return synchronize(allreduce_async(tensor, None, name, *arguments))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return synchronize(allreduce_async(gradient.contiguous(), None, None,
                                           *ctx.arguments)), None, None


def allreduce(tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
              compression: Any = Compression.none, op: Optional[int] = None,
              prescale_factor: float = 1.0, postscale_factor: float = 1.0,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """Reduce a tensor over the ranks; the result is a new tensor. Differentiable.

    compression  of the data on their way: Compression.none, .fp16 or .bf16
    others       see allreduce_async
    """
    arguments = (choose_op(op, average), prescale_factor, postscale_factor, process_set)
    packed, context = compression.compress(tensor)
    if _records(packed):
        result = _Allreduce.apply(packed, name, arguments)
    else:
        result = synchronize(allreduce_async(packed, None, name, *arguments))
    return compression.decompress(result, context)


def _grouped_allreduce(tensors: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor],
                       name: Optional[str], op: int, prescale: float, postscale: float,
                       process_set: ProcessSet) -> int:
    base = ALLREDUCE.text(name, process_set)
    names = group_names(base, len(tensors))
    return handles.add(submit.grouped_allreduce(tensors, outputs, names, op, prescale, postscale,
                                                process_set, compare=True))


def grouped_allreduce_async(tensors: Sequence[torch.Tensor], average: Optional[bool] = None,
                            name: Optional[str] = None, op: Optional[int] = None,
                            prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                            process_set: ProcessSet = global_process_set) -> int:
    """Start to reduce tensors in one submission: none is reduced before all ranks have submitted
    all of them. Returns a handle; the result is a list of new tensors. See allreduce_async."""
    op = choose_op(op, average)
    submit.check_group(tensors)
    outputs = [torch.empty_like(t, requires_grad=False) for t in tensors]
    return _grouped_allreduce(tensors, outputs, name, op, prescale_factor, postscale_factor,
                              process_set)


def grouped_allreduce_async_(tensors: Sequence[torch.Tensor], average: Optional[bool] = None,
                             name: Optional[str] = None, op: Optional[int] = None,
                             prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                             process_set: ProcessSet = global_process_set) -> int:
    """As grouped_allreduce_async; the results replace the tensors."""
    op = choose_op(op, average)
    submit.check_group(tensors)
    return _grouped_allreduce(tensors, tensors, name, op, prescale_factor, postscale_factor,
                              process_set)


def grouped_allreduce_(tensors: Sequence[torch.Tensor], average: Optional[bool] = None,
                       name: Optional[str] = None, op: Optional[int] = None,
                       prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                       process_set: ProcessSet = global_process_set) -> List[torch.Tensor]:
    """Reduce tensors in place, in one submission: see grouped_allreduce_async. Returns them."""
    return synchronize(grouped_allreduce_async_(tensors, average, name, op, prescale_factor,
                                                postscale_factor, process_set))


class _GroupedAllreduce(torch.autograd.Function):
    """As _Allreduce."""

    @staticmethod
    def forward(ctx: Any, name: Optional[str], arguments: Tuple, *tensors: torch.Tensor) -> Any:
        ctx.arguments = arguments
        return tuple(synchronize(grouped_allreduce_async(list(tensors), None, name, *arguments)))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        reduced = synchronize(grouped_allreduce_async([g.contiguous() for g in gradients], None,
                                                      None, *ctx.arguments))
        return (None, None, *reduced)


def grouped_allreduce(tensors: Sequence[torch.Tensor], average: Optional[bool] = None,
                      name: Optional[str] = None, compression: Any = Compression.none,
                      op: Optional[int] = None, prescale_factor: float = 1.0,
                      postscale_factor: float = 1.0,
                      process_set: ProcessSet = global_process_set) -> List[torch.Tensor]:
    """Reduce tensors in one submission; the results are new tensors. Differentiable. See
    allreduce and grouped_allreduce_async."""
    arguments = (choose_op(op, average), prescale_factor, postscale_factor, process_set)
    packed, contexts = _compress_all(tensors, compression)
    if _records(*packed):
        results = _GroupedAllreduce.apply(name, arguments, *packed)
    else:
        results = synchronize(grouped_allreduce_async(packed, None, name, *arguments))
    return [compression.decompress(t, c) for t, c in zip(results, contexts)]


def _compress_all(tensors: Sequence[torch.Tensor], compression: Any) -> Tuple[List, List]:
    pairs = [compression.compress(tensor) for tensor in tensors]
    return [tensor for tensor, _ in pairs], [context for _, context in pairs]


def sparse_allreduce_async(tensor: torch.Tensor, name: str, op: int = Average,
                           process_set: ProcessSet = global_process_set
                           ) -> Callable[[], torch.Tensor]:
    """Start to reduce a sparse tensor: the ranks gather indices and values of all. Duplicate
    indices are not merged. Returns a function that waits and returns the sparse result.

    op  Average or Sum
    """
    if op not in (Average, Sum):
        raise ValueError("sparse_allreduce_async takes op=Average and op=Sum, not %r" % (op,))
    indices = allgather_async(tensor._indices().t().contiguous(), "%s.indices" % name, process_set)
    values = allgather_async(tensor._values().contiguous(), "%s.values" % name, process_set)

    def finish() -> torch.Tensor:
        try:
            all_values = synchronize(values)
        finally:  # after an error as well: a call without a wait keeps its tensors
            all_indices = synchronize(indices)
        if op == Average:
            all_values = all_values / process_set.size()
        return torch.sparse_coo_tensor(all_indices.t(), all_values, tensor.size(),
                                       dtype=tensor.dtype, device=tensor.device, **_UNCHECKED)

    return finish


# ---- allgather ----

def _gather(tensors: Sequence[torch.Tensor], name: Optional[str], process_set: ProcessSet,
            grouped: bool) -> sized.Gathered:
    submit.check_group(tensors)
    for tensor in tensors:
        sized.check_sized(tensor, "allgather")
    comm = comm_of(process_set)
    return sized.Gathered(ALLGATHER.text(name, process_set), tensors, comm, grouped)


def _watched(call: sized.Sized) -> int:
    sized.starter.watch(call)
    return handles.add(call)


def allgather_async(tensor: torch.Tensor, name: Optional[str] = None,
                    process_set: ProcessSet = global_process_set) -> int:
    """Start to concatenate the tensors of all ranks along the first dimension, in which they may
    differ. Returns a handle; the result is a new tensor."""
    return _watched(_gather([tensor], name, process_set, False).call)


def grouped_allgather_async(tensors: Sequence[torch.Tensor], name: Optional[str] = None,
                            process_set: ProcessSet = global_process_set) -> int:
    """As allgather_async, for several tensors in one submission. The result is a list."""
    return _watched(_gather(tensors, name, process_set, True).call)


def _own_rows(gathered: sized.Gathered) -> List[Tuple[int, int]]:
    """First row and number of rows of this rank in each result."""
    return [(sum(rows[:gathered.rank]), rows[gathered.rank]) for rows in gathered.rows]


class _Allgather(torch.autograd.Function):
    """The gradient of an allgather: this rank's rows of the averaged gradient."""

    @staticmethod
    def forward(ctx: Any, name: Optional[str], process_set: ProcessSet, grouped: bool,
                *tensors: torch.Tensor) -> Any:
        gathered = _gather(tensors, name, process_set, grouped)
        gathered.call.result()
        ctx.process_set, ctx.rows = process_set, _own_rows(gathered)
        return tuple(gathered.outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        reduced = synchronize(grouped_allreduce_async([g.contiguous() for g in gradients],
                                                      op=Average, process_set=ctx.process_set))
        own = [g.narrow(0, first, rows) for g, (first, rows) in zip(reduced, ctx.rows)]
        return (None, None, None, *own)


def allgather(tensor: torch.Tensor, name: Optional[str] = None,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """Concatenate the tensors of all ranks along the first dimension, in which they may differ.
    Differentiable."""
    if _records(tensor):
        return _Allgather.apply(name, process_set, False, tensor)[0]
    return _gather([tensor], name, process_set, False).call.result()


def grouped_allgather(tensors: Sequence[torch.Tensor], name: Optional[str] = None,
                      process_set: ProcessSet = global_process_set) -> List[torch.Tensor]:
    """As allgather, for several tensors in one submission. Differentiable."""
    if _records(*tensors):
        return list(_Allgather.apply(name, process_set, True, *tensors))
    return _gather(list(tensors), name, process_set, True).call.result()


def allgather_rows(tensor: torch.Tensor, name: Optional[str], process_set: ProcessSet
                   ) -> Tuple[torch.Tensor, List[int]]:
    """An allgather, with the number of rows of each rank. For objects of different lengths."""
    gathered = _gather([tensor], name, process_set, False)
    return gathered.call.result(), gathered.rows[0]


# ---- broadcast ----

def broadcast_async_(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> int:
    """Start to copy the tensor of a rank into the tensors of all other ranks. Returns a handle.

    root_rank  a rank of the job, as hvd.rank() counts, with process sets as well
    """
    return submit.broadcast(tensor, root_rank, name, process_set)


def broadcast_async(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
                    process_set: ProcessSet = global_process_set) -> int:
    """As broadcast_async_; the result is a new tensor."""
    dtypes.check(tensor)
    copy = (tensor.detach().clone() if job.rank == root_rank
            else torch.empty_like(tensor, requires_grad=False))
    return submit.broadcast(copy, root_rank, name, process_set)


def broadcast_(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
               process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """Copy the tensor of a rank into the tensors of all other ranks: see broadcast_async_. Returns
    it."""
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


class _Broadcast(torch.autograd.Function):
    """The gradient of a broadcast: the average at the root, zero at the others."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, root_rank: int, name: Optional[str],
                process_set: ProcessSet) -> Any:
        ctx.root_rank, ctx.process_set = root_rank, process_set
        return synchronize(broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        reduced = synchronize(allreduce_async(gradient.contiguous(), op=Average,
                                              process_set=ctx.process_set))
        if job.rank != ctx.root_rank:
            reduced.zero_()
        return reduced, None, None, None


def broadcast(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """The tensor of a rank, on all ranks, as a new tensor. Differentiable. See
    broadcast_async_."""
    if _records(tensor):
        return _Broadcast.apply(tensor, root_rank, name, process_set)
    return synchronize(broadcast_async(tensor, root_rank, name, process_set))


# ---- alltoall ----

Splits = Union[None, Sequence[int], torch.Tensor]


def _list_of(splits: Splits) -> Optional[Sequence[int]]:
    if not isinstance(splits, torch.Tensor):
        return splits
    if splits.dtype not in (torch.int32, torch.int64) or splits.dim() != 1:
        raise ValueError("splits is a tensor of one dimension of int32 or int64, not %s of %s"
                         % (list(splits.shape), splits.dtype))
    return splits.tolist()


def _exchange(tensor: torch.Tensor, splits: Splits, name: Optional[str],
              process_set: ProcessSet) -> sized.Sized:
    sized.check_sized(tensor, "alltoall")
    comm = comm_of(process_set)
    rows = read_splits(tensor.shape[0], _list_of(splits), process_set.size() or 1)

    def received(counts: List[int]) -> torch.Tensor:
        like = splits if isinstance(splits, torch.Tensor) else None
        return torch.tensor(counts, dtype=torch.int32 if like is None else like.dtype,
                            device="cpu" if like is None else like.device)

    return sized.Exchanged(ALLTOALL.text(name, process_set), tensor, rows, received,
                           comm).call


def alltoall_async(tensor: torch.Tensor, splits: Splits = None, name: Optional[str] = None,
                   process_set: ProcessSet = global_process_set) -> int:
    """Start to send a part of the tensor to each rank, and to receive a part from each rank.
    Returns a handle; the result is (tensor, received splits).

    splits  rows for each rank: a list, or a tensor of int32 or int64. None: equal parts
    """
    return _watched(_exchange(tensor, splits, name, process_set))


class _Alltoall(torch.autograd.Function):
    """The gradient of an alltoall: the alltoall back."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, splits: Splits, name: Optional[str],
                process_set: ProcessSet) -> Any:
        output, received = _exchange(tensor, splits, name, process_set).result()
        ctx.process_set, ctx.received = process_set, received
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> Any:
        output, _received = _exchange(gradient.contiguous(), ctx.received, None,
                                      ctx.process_set).result()
        return output, None, None, None


def alltoall(tensor: torch.Tensor, splits: Splits = None, name: Optional[str] = None,
             process_set: ProcessSet = global_process_set
             ) -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]:
    """Send a part of the tensor to each rank, and concatenate the received parts: see
    alltoall_async. Returns the tensor; with splits (tensor, received splits). Differentiable."""
    if _records(tensor):
        output, received = _Alltoall.apply(tensor, splits, name, process_set)
    else:
        output, received = _exchange(tensor, splits, name, process_set).result()
    return output if splits is None else (output, received)


# ---- reducescatter ----

def _reducescatter(tensors: Sequence[torch.Tensor], name: Optional[str], op: int,
                   prescale: float, postscale: float, process_set: ProcessSet,
                   grouped: bool) -> handles.Requests:
    submit.check_group(tensors)
    base = REDUCESCATTER.text(name, process_set)
    names = (group_names(base, len(tensors)) if grouped else [encode_name(base)])
    return submit.reducescatter(tensors, names, op, prescale, postscale, process_set)


def reducescatter_async(tensor: torch.Tensor, name: Optional[str] = None, op: int = Average,
                        process_set: ProcessSet = global_process_set,
                        prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> int:
    """Start to reduce a tensor over the ranks. Each rank gets its part of the rows. If the number
    of rows is not a multiple of the number of ranks, the first ranks get one row more. Returns a
    handle. See allreduce_async for the factors.

    op  Average or Sum
    """
    pending = _reducescatter([tensor], name, op, prescale_factor, postscale_factor, process_set,
                             False)
    pending.finish = submit._first_of(pending.finish)
    return handles.add(pending)


def grouped_reducescatter_async(tensors: Sequence[torch.Tensor], name: Optional[str] = None,
                                op: int = Average, process_set: ProcessSet = global_process_set,
                                prescale_factor: float = 1.0,
                                postscale_factor: float = 1.0) -> int:
    """As reducescatter_async, for several tensors in one submission. The result is a list."""
    return handles.add(_reducescatter(tensors, name, op, prescale_factor, postscale_factor,
                                      process_set, True))


class _Reducescatter(torch.autograd.Function):
    """The gradient of a reducescatter: the allgather of the gradients, scaled."""

    @staticmethod
    def forward(ctx: Any, name: Optional[str], arguments: Tuple, grouped: bool,
                *tensors: torch.Tensor) -> Any:
        ctx.arguments, ctx.grouped = arguments, grouped
        op, process_set, prescale, postscale = arguments
        return tuple(_reducescatter(tensors, name, op, prescale, postscale, process_set,
                                    grouped).result())

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        op, process_set, prescale, postscale = ctx.arguments
        factor = prescale * postscale * (process_set.size() if op == Sum else 1)
        gathered = _gather([(g * factor).contiguous() for g in gradients], None, process_set,
                           True).call.result()
        return (None, None, None, *gathered)


def reducescatter(tensor: torch.Tensor, name: Optional[str] = None,
                  compression: Any = Compression.none, op: int = Average,
                  process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                  postscale_factor: float = 1.0) -> torch.Tensor:
    """Reduce a tensor over the ranks and return this rank's part of the rows. Differentiable.
    See reducescatter_async."""
    packed, context = compression.compress(tensor)
    if _records(packed):
        result = _Reducescatter.apply(name, (op, process_set, prescale_factor, postscale_factor),
                                      False, packed)[0]
    else:
        result = synchronize(reducescatter_async(packed, name, op, process_set, prescale_factor,
                                                 postscale_factor))
    return compression.decompress(result, context)


def grouped_reducescatter(tensors: Sequence[torch.Tensor], name: Optional[str] = None,
                          compression: Any = Compression.none, op: int = Average,
                          process_set: ProcessSet = global_process_set,
                          prescale_factor: float = 1.0,
                          postscale_factor: float = 1.0) -> List[torch.Tensor]:
    """As reducescatter, for several tensors in one submission. Differentiable."""
    packed, contexts = _compress_all(tensors, compression)
    if _records(*packed):
        results = _Reducescatter.apply(name, (op, process_set, prescale_factor, postscale_factor),
                                       True, *packed)
    else:
        results = synchronize(grouped_reducescatter_async(packed, name, op, process_set,
                                                          prescale_factor, postscale_factor))
    return [compression.decompress(t, c) for t, c in zip(results, contexts)]


# ---- join, barrier ----

def join(device: int = -1) -> int:
    """Declare that this rank has no more data. Until all ranks have joined, it contributes zeros to
    the allreduces of the others. These allreduces must be Sum or Average; Average divides by the
    number of all ranks. Blocks, and returns the rank that joined last.

    device  not used; memory for the zeros belongs to the library

    Calls that are pending on this rank are waited for first; their handles stay valid.
    """
    comm = comm_of(global_process_set)
    handles.settle_all()
    last = c_int(-1)
    status = lib.tutti_join(comm, byref(last))
    if status:
        raise failed(status)
    # A rank that joined early has made fewer calls without a name.
    global_process_set.forget_names()
    return last.value


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until all ranks of the process set have called this."""
    submit.barrier(process_set)
