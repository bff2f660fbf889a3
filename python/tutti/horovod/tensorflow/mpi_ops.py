# SPDX-License-Identifier: BSD-3-Clause
"""The calls of Horovod's TensorFlow interface.

The file has the name of Horovod's file, because programs import from it. Tutti also runs without
MPI.

Calls of one kind with the same name are matched; calls without a name are matched by their order.
Each call blocks. To reduce several tensors in one call, use grouped_allreduce,
DistributedGradientTape or DistributedOptimizer. All calls between the ranks, except barrier and
join, work in eager mode and in a tf.function. All of these except broadcast_ are differentiable.

The parameters device_dense, device_sparse and ignore_name_scope are accepted and not used.
"""

from typing import Any, Callable, List, Optional, Sequence

import numpy as np
import tensorflow as tf

from ..common import arrays
from ..common.exceptions import HorovodInternalError
from ..common.job import (ccl_built, cross_rank, cross_size, cuda_built, ddl_built, gloo_built,
                          gloo_enabled, init, is_homogeneous, is_initialized, job, local_rank,
                          local_size, mpi_built, mpi_enabled, mpi_threads_supported, nccl_built,
                          rank, rocm_built, shutdown, size, start_timeline, stop_timeline)
from ..common.ops import Adasum, Average, Max, Min, Product, Sum, choose_op
from ..common.process_sets import (ProcessSet, add_process_set, global_process_set,
                                   remove_process_set)
from .bridge import any_rows, as_tensor, plain, run, shape_of
from .compression import Compression


def _grouped(function: Callable[..., Any], *tensors: Any) -> List[Any]:
    """The list of results of a function with a gradient. tf.custom_gradient itself returns a single
    tensor without a list."""
    results = tf.custom_gradient(function)(*tensors)
    return list(results) if isinstance(results, (list, tuple)) else [results]


# ---- allreduce ----

def _allreduce(tensors: Sequence[Any], name: Optional[str], op: int, prescale: float,
               postscale: float, process_set: ProcessSet, grouped: bool) -> List[Any]:
    """Allreduce of tensors. Its gradient is the same allreduce of the gradients."""
    arrays.check_op(op)

    def reduce(name: Optional[str], inputs: Sequence[Any]) -> List[Any]:
        return run(lambda *a: arrays.allreduce(a, name, op, prescale, postscale, process_set,
                                               grouped), inputs, [shape_of(t) for t in inputs])

    def function(*inputs: Any) -> Any:
        return reduce(name, inputs), lambda *gradients: reduce(None, gradients)

    return _grouped(function, *tensors)


def _sparse_allreduce(slices: Sequence[Any], name: Optional[str], op: int, prescale: float,
                      postscale: float, process_set: ProcessSet) -> List[Any]:
    """The ranks gather values and indices. Duplicate indices are not merged."""
    if not slices:
        return []
    if op not in (Average, Sum):
        if op == Adasum:
            arrays.check_op(op)
        raise ValueError("an allreduce of IndexedSlices takes op=Average and op=Sum, not %r"
                         % (op,))
    if prescale != 1.0 or postscale != 1.0:
        raise NotImplementedError("an allreduce of IndexedSlices takes no prescale_factor and no "
                                  "postscale_factor")
    parts = [tf.convert_to_tensor(part) for s in slices for part in (s.values, s.indices)]
    gathered = _allgather(parts, name, process_set, True)
    results = []
    for given, values, indices in zip(slices, gathered[::2], gathered[1::2]):
        if op == Average:
            values = values / tf.cast(process_set.size(), values.dtype)
        results.append(tf.IndexedSlices(values, indices, given.dense_shape))
    return results


@plain
def allreduce(tensor: Any, average: Optional[bool] = None, device_dense: str = "",
              device_sparse: str = "", compression: Any = Compression.none,
              op: Optional[int] = None, prescale_factor: float = 1.0,
              postscale_factor: float = 1.0, name: Optional[str] = None,
              process_set: ProcessSet = global_process_set,
              ignore_name_scope: bool = False) -> Any:
    """Reduce a tensor over the ranks; the result is a new tensor.

    tensor            a tensor, a variable, or IndexedSlices. For IndexedSlices the result is
                      IndexedSlices with the rows of all ranks. These take no factors
    average           deprecated: see op
    compression       of the data that is sent: Compression.none, .fp16 or .bf16
    op                Average (default), Sum, Min, Max, Product
    prescale_factor   of the data before the reduction; integers are scaled in 64 bits
    postscale_factor  of the result
    process_set       the ranks that take part
    """
    op = choose_op(op, average)
    tensor = as_tensor(tensor)
    if isinstance(tensor, tf.IndexedSlices):
        return _sparse_allreduce([tensor], name, op, prescale_factor, postscale_factor,
                                 process_set)[0]
    packed, context = compression.compress(tensor)
    result = _allreduce([packed], name, op, prescale_factor, postscale_factor, process_set, False)
    return compression.decompress(result[0], context)


@plain
def grouped_allreduce(tensors: Sequence[Any], average: Optional[bool] = None,
                      device_dense: str = "", device_sparse: str = "",
                      compression: Any = Compression.none, op: Optional[int] = None,
                      prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                      process_set: ProcessSet = global_process_set,
                      ignore_name_scope: bool = False, name: Optional[str] = None) -> List[Any]:
    """Reduce tensors in one submission: none is reduced before all ranks have submitted all of
    them. Returns a list of new tensors. IndexedSlices among them are gathered in a submission of
    their own. See allreduce."""
    op = choose_op(op, average)
    tensors = [as_tensor(tensor) for tensor in tensors]
    slices = [t for t in tensors if isinstance(t, tf.IndexedSlices)]
    pairs = [compression.compress(t) for t in tensors if not isinstance(t, tf.IndexedSlices)]
    sparse = iter(_sparse_allreduce(slices, name, op, prescale_factor, postscale_factor,
                                    process_set))
    reduced = _allreduce([packed for packed, _ in pairs], name, op, prescale_factor,
                         postscale_factor, process_set, True) if pairs else []
    dense = iter([compression.decompress(t, context) for t, (_, context) in zip(reduced, pairs)])
    return [next(sparse if isinstance(t, tf.IndexedSlices) else dense) for t in tensors]


# ---- allgather ----

def _allgather(tensors: Sequence[Any], name: Optional[str], process_set: ProcessSet,
               grouped: bool) -> List[Any]:
    """Allgather of tensors. Its gradient is this rank's rows of the averaged gradients."""
    def gather(*inputs: Any) -> List[Any]:
        results, rows = arrays.allgather(inputs, name, process_set, grouped)
        own = process_set.rank() or 0
        return results + [np.array([sum(r[:own]), r[own]], np.int64) for r in rows]

    def function(*inputs: Any) -> Any:
        count = len(inputs)
        results = run(gather, inputs, [any_rows(t) for t in inputs] + [[2]] * count,
                      [t.dtype for t in inputs] + [tf.int64] * count)
        places = results[count:]

        def gradient(*gradients: Any) -> List[Any]:
            reduced = _allreduce(gradients, None, Average, 1.0, 1.0, process_set, True)
            return [g[place[0]:place[0] + place[1]] for g, place in zip(reduced, places)]

        return results[:count], gradient

    return _grouped(function, *tensors)


@plain
def allgather(tensor: Any, name: Optional[str] = None, ignore_name_scope: bool = False,
              process_set: ProcessSet = global_process_set) -> Any:
    """Concatenate the tensors of all ranks along the first dimension, in which they may differ."""
    return _allgather([tf.convert_to_tensor(tensor)], name, process_set, False)[0]


@plain
def grouped_allgather(tensors: Sequence[Any], name: Optional[str] = None,
                      ignore_name_scope: bool = False,
                      process_set: ProcessSet = global_process_set) -> List[Any]:
    """As allgather, for several tensors in one submission."""
    given = [tf.convert_to_tensor(tensor) for tensor in tensors]
    return _allgather(given, name, process_set, True) if given else []


# ---- broadcast ----

def _broadcast(tensors: Sequence[Any], root_rank: int, name: Optional[str],
               process_set: ProcessSet, grouped: bool) -> List[Any]:
    """Broadcast of tensors. Its gradient is the average of the gradients on the root, and zero on
    other ranks."""
    def function(*inputs: Any) -> Any:
        results = run(lambda *a: arrays.broadcast(a, root_rank, name, process_set, grouped), inputs,
                      [shape_of(t) for t in inputs])

        def gradient(*gradients: Any) -> List[Any]:
            reduced = _allreduce(gradients, None, Average, 1.0, 1.0, process_set, True)
            return reduced if job.rank == root_rank else [tf.zeros_like(g) for g in reduced]

        return results, gradient

    return _grouped(function, *tensors)


@plain
def broadcast(tensor: Any, root_rank: int, name: Optional[str] = None,
              ignore_name_scope: bool = False,
              process_set: ProcessSet = global_process_set) -> Any:
    """The tensor of a rank, on all ranks, as a new tensor.

    root_rank  a rank of the job, as hvd.rank() counts, with process sets as well
    """
    return _broadcast([tf.convert_to_tensor(tensor)], root_rank, name, process_set, False)[0]


@plain
def broadcast_(variables: Sequence[Any], root_rank: int, name: Optional[str] = None,
               process_set: ProcessSet = global_process_set) -> List[Any]:
    """Give variables the values of a rank, in one submission. Returns the variables."""
    variables = list(variables)
    if variables:
        values = [tf.convert_to_tensor(variable) for variable in variables]
        results = _broadcast(values, root_rank, name, process_set, True)
        for variable, result in zip(variables, results):
            variable.assign(result)
    return variables


# ---- alltoall ----

@plain
def alltoall(tensor: Any, splits: Any = None, name: Optional[str] = None,
             ignore_name_scope: bool = False,
             process_set: ProcessSet = global_process_set) -> Any:
    """Send a part of the tensor's rows to each rank, and concatenate the received parts. Returns
    the concatenation; with `splits`, a pair: the concatenation and the number of rows received from
    each rank. The gradient is an alltoall that sends the rows of the gradient back.

    splits  rows for each rank: a list, or a tensor of int32 or int64. None: equal parts
    """
    def exchange(data: Any, parts: Any, name: Optional[str]) -> List[Any]:
        def call(array: Any, rows: Optional[Any] = None) -> List[Any]:
            result, received = arrays.alltoall(array, rows, name, process_set)
            return [result, np.array(received, np.int32)]

        inputs = [data] if parts is None else [data, parts]
        return run(call, inputs, [any_rows(data), [process_set.size()]], [data.dtype, tf.int32])

    @tf.custom_gradient
    def function(data: Any) -> Any:
        result, received = exchange(data, splits, name)

        def gradient(upstream: Any, _: Any = None) -> Any:
            return exchange(upstream, received, None)[0]

        return (result, received), gradient

    given = splits is not None
    splits = tf.convert_to_tensor(splits) if given else None
    result, received = function(tf.convert_to_tensor(tensor))
    return (result, tf.cast(received, splits.dtype)) if given else result


# ---- reducescatter ----

def _reducescatter(tensors: Sequence[Any], name: Optional[str], op: int, prescale: float,
                   postscale: float, process_set: ProcessSet, grouped: bool) -> List[Any]:
    """Reducescatter of tensors. Its gradient is the scaled allgather of the gradients."""
    arrays.check_scatter_op(op)

    def function(*inputs: Any) -> Any:
        results = run(lambda *a: arrays.reducescatter(a, name, op, prescale, postscale,
                                                      process_set, grouped),
                      inputs, [any_rows(t) for t in inputs])

        def gradient(*gradients: Any) -> List[Any]:
            factor = prescale * postscale * (process_set.size() or 1 if op == Sum else 1)
            return _allgather([g * tf.cast(factor, g.dtype) for g in gradients], None, process_set,
                              True)

        return results, gradient

    return _grouped(function, *tensors)


@plain
def reducescatter(tensor: Any, device_dense: str = "", compression: Any = Compression.none,
                  op: int = Average, name: Optional[str] = None,
                  process_set: ProcessSet = global_process_set, ignore_name_scope: bool = False,
                  prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> Any:
    """Reduce a tensor over the ranks and return this rank's part of the rows. If the number of rows
    is not a multiple of the number of ranks, the first ranks get one row more. See allreduce for
    the other parameters.

    op  Average or Sum
    """
    packed, context = compression.compress(tf.convert_to_tensor(tensor))
    result = _reducescatter([packed], name, op, prescale_factor, postscale_factor, process_set,
                            False)
    return compression.decompress(result[0], context)


@plain
def grouped_reducescatter(tensors: Sequence[Any], device_dense: str = "",
                          compression: Any = Compression.none, op: int = Average,
                          process_set: ProcessSet = global_process_set,
                          prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                          name: Optional[str] = None) -> List[Any]:
    """As reducescatter, for several tensors in one submission."""
    pairs = [compression.compress(tf.convert_to_tensor(tensor)) for tensor in tensors]
    if not pairs:
        return []
    results = _reducescatter([packed for packed, _ in pairs], name, op, prescale_factor,
                             postscale_factor, process_set, True)
    return [compression.decompress(t, context) for t, (_, context) in zip(results, pairs)]


# ---- join, barrier ----

def join(device: int = -1) -> int:
    """Declare that this rank has no more data: see tutti.horovod.common.arrays.join. Not in a
    tf.function.

    device  not used
    """
    return arrays.join()


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until all ranks of the process set have called this. Not in a tf.function."""
    arrays.barrier(process_set)
