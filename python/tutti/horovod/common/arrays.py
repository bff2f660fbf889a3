# SPDX-License-Identifier: BSD-3-Clause
"""Horovod's calls on numpy arrays, for front ends whose frameworks convert tensors to such arrays.

All calls except start_allreduces block. A call on several arrays starts all of them before it waits
for the first, so that the library fuses them. Calls without a name (None) are matched by their
order, separately for each kind and process set.
"""

from contextlib import contextmanager
from typing import Any, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from ... import _async, _lib, _submit, _world
from ..._requests import Request, free_dropped, wait_all
from ..._types import type_of
from .exceptions import HorovodInternalError
from .job import job
from .names import (ALLGATHER, ALLREDUCE, ALLTOALL, BARRIER, BROADCAST, REDUCESCATTER, encode_name,
                    group_names)
from .ops import OPS, Average, Sum, no_such_op
from .process_sets import ProcessSet, comm_of, global_process_set
from .shapes import SHAPE_WORDS, check_dims, check_fit, read_splits, shape_words

Array = Any  # numpy.ndarray

_FLOATS = (_lib.FLOAT16, _lib.BFLOAT16, _lib.FLOAT32, _lib.FLOAT64, _lib.FLOAT8_E4M3,
           _lib.FLOAT8_E5M2)

job.after_end.append(free_dropped)


@contextmanager
def _horovod_errors() -> Iterator[None]:
    """Turn the package's errors into Horovod's: ValueError if this rank alone finds the call
    invalid, HorovodInternalError if the call fails between the ranks."""
    try:
        yield
    except (_lib.InvalidArgumentError, _lib.UnsupportedError) as error:
        raise ValueError(str(error)) from None
    except _lib.TuttiError as error:
        raise HorovodInternalError(str(error), status=error.status) from None


def _communicator(process_set: ProcessSet) -> _world.Communicator:
    return _world.Communicator(comm_of(process_set))


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def _names(kind: Any, name: Optional[str], count: Optional[int],
           process_set: ProcessSet) -> List[str]:
    """The names of the `count` arrays of a group. count None: the name of a single array."""
    if count is None:
        return [_text(kind.get(name) or kind.add(name, process_set))]
    return [_text(data) for data in group_names(kind.text(name, process_set), count)]


# ---- reductions ----

def scaled(array: Array, factor: float) -> Array:
    """array * factor, computed in 64 bits and converted to the type of `array`; integers are
    truncated."""
    return array if factor == 1.0 else (array.astype(np.float64) * factor).astype(array.dtype)


class _Reduction:
    """How one array is reduced. The library itself scales floating point arrays, but reads a factor
    of 0 as 1. So factors of integers, and pairs of factors with a 0, are applied here, before and
    after the call."""

    def __init__(self, array: Array, op: int, prescale: float, postscale: float,
                 size: int) -> None:
        self.send, self.op, self.after = array, op, 1.0
        self.prescale, self.postscale = prescale, postscale
        is_float = type_of(array.dtype).dtype in _FLOATS
        if (prescale == postscale == 1.0) or (is_float and prescale and postscale):
            return
        if op == Average and not is_float:  # one factor: integers are truncated once, not twice
            self.op, postscale = Sum, postscale / size
        self.send, self.after = scaled(array, prescale), postscale
        self.prescale = self.postscale = 1.0

    def start(self, name: str, comm: _world.Communicator) -> Request:
        """Start the allreduce."""
        return _async.allreduce_async(name, self.send, OPS[self.op], comm=comm,
                                      prescale=self.prescale, postscale=self.postscale)

    def call(self, kind: str, name: str) -> _submit.Call:
        """The same call, as a part of a submission."""
        return _submit.Call(kind, name, self.send, op=OPS[self.op], prescale=self.prescale,
                            postscale=self.postscale)


def check_op(op: int) -> None:
    """Raise the error for an `op` that does not exist."""
    if op not in OPS:
        no_such_op(op)


def _finish(reductions: Sequence[_Reduction], requests: Sequence[Request]) -> List[Array]:
    results = wait_all(requests)
    return [scaled(result, r.after) for result, r in zip(results, reductions)]


def start_allreduces(arrays: Sequence[Array], names: Sequence[str], op: int, prescale: float,
                     postscale: float, process_set: ProcessSet) -> Any:
    """Start allreduces, each under a name of its own. Returns a function that waits and returns
    the list of results."""
    with _horovod_errors():
        comm = _communicator(process_set)
        reductions = [_Reduction(array, op, prescale, postscale, comm.size) for array in arrays]
        requests = [r.start(_text(encode_name("%s.%s" % (ALLREDUCE.kind, name))), comm)
                    for r, name in zip(reductions, names)]

    def finish() -> List[Array]:
        with _horovod_errors():
            return _finish(reductions, requests)
    return finish


def _reduce(kind: str, arrays: Sequence[Array], names: Sequence[str], op: int, prescale: float,
            postscale: float, process_set: ProcessSet) -> List[Array]:
    """Reduce arrays in one submission. Returns new arrays."""
    with _horovod_errors():
        comm = _communicator(process_set)
        reductions = [_Reduction(array, op, prescale, postscale, comm.size) for array in arrays]
        calls = [r.call(kind, name) for r, name in zip(reductions, names)]
        return _finish(reductions, _submit.submit(calls, comm))


def allreduce(arrays: Sequence[Array], name: Optional[str], op: int, prescale: float,
              postscale: float, process_set: ProcessSet, grouped: bool) -> List[Array]:
    """Reduce arrays, all of them or none. Returns new arrays."""
    check_op(op)
    names = _names(ALLREDUCE, name, len(arrays) if grouped else None, process_set)
    return _reduce("allreduce", arrays, names, op, prescale, postscale, process_set)


def check_scatter_op(op: int) -> None:
    """Raise the error for an `op` that reducescatter does not have."""
    if op not in (Average, Sum):
        raise NotImplementedError("reducescatter takes op=Average and op=Sum, not %r" % (op,))


def reducescatter(arrays: Sequence[Array], name: Optional[str], op: int, prescale: float,
                  postscale: float, process_set: ProcessSet, grouped: bool) -> List[Array]:
    """Reduce arrays and return this rank's part of the rows. If the number of rows is not a
    multiple of the number of ranks, the first ranks get one row more."""
    check_scatter_op(op)
    names = _names(REDUCESCATTER, name, len(arrays) if grouped else None, process_set)
    return _reduce("reduce_scatterv", arrays, names, op, prescale, postscale, process_set)


# ---- moving data ----

def _words(array: Array) -> List[int]:
    kind = type_of(array.dtype)
    return shape_words(kind.dtype, array.shape)


def allgather(arrays: Sequence[Array], name: Optional[str], process_set: ProcessSet,
              grouped: bool) -> Tuple[List[Array], List[List[int]]]:
    """Concatenate the arrays of all ranks along the first dimension, in which they may differ.
    Returns the results, and for each result the numbers of rows that the ranks passed."""
    names = _names(ALLGATHER, name, len(arrays) if grouped else None, process_set)
    for array in arrays:
        check_dims(array.ndim, "allgather")
    with _horovod_errors():
        comm = _communicator(process_set)
        mine = np.array([_words(array) for array in arrays], np.int64)
        request = _async.allgather_async(_text(encode_name("shape of " + names[0])), mine,
                                         comm=comm)
        table = request.wait().reshape(comm.size, len(arrays), SHAPE_WORDS).tolist()
        for index, text in enumerate(names):
            check_fit(text, comm.rank, [words[index] for words in table])
        rows = [[words[index][2] for words in table] for index in range(len(arrays))]
        calls = [_submit.Call("allgatherv", text, array, counts=counts)
                 for text, array, counts in zip(names, arrays, rows)]
        return wait_all(_submit.submit(calls, comm)), rows


def broadcast(arrays: Sequence[Array], root_rank: int, name: Optional[str],
              process_set: ProcessSet, grouped: bool) -> List[Array]:
    """Broadcast the arrays of root_rank, a rank of the job. Returns new arrays."""
    names = _names(BROADCAST, name, len(arrays) if grouped else None, process_set)
    root = process_set.place_of(root_rank)
    with _horovod_errors():
        comm = _communicator(process_set)
        results = [np.array(a) if comm.rank == root else np.empty_like(a) for a in arrays]
        wait_all(_submit.submit([_submit.Call("broadcast", text, array, root=root)
                                 for text, array in zip(names, results)], comm))
    return results


def alltoall(array: Array, splits: Optional[Sequence[int]], name: Optional[str],
             process_set: ProcessSet) -> Tuple[Array, List[int]]:
    """Send rows to each rank. Returns the received rows, and the number received from each rank.

    splits  rows for each rank; None: equal parts
    """
    text = _names(ALLTOALL, name, None, process_set)[0]
    check_dims(array.ndim, "alltoall")
    with _horovod_errors():
        comm = _communicator(process_set)
        parts = read_splits(array.shape[0], splits, comm.size)
        mine = np.array([[rows] + _words(array) for rows in parts], np.int64)
        request = _async.alltoall_async(_text(encode_name("shape of " + text)), mine, comm=comm)
        table = request.wait().tolist()
        check_fit(text, comm.rank, [words[1:] for words in table])
        received = [words[0] for words in table]
        result = _async.alltoallv_async(text, array, parts, received, comm=comm).wait()
        return result, received


# ---- barrier, join ----

def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until all ranks of the process set have called this."""
    with _horovod_errors():
        comm = _communicator(process_set)
        _async.barrier_async(_names(BARRIER, None, None, process_set)[0], comm=comm).wait()


def join() -> int:
    """Declare that this rank has no more data. Until all ranks have joined, it contributes zeros to
    the allreduces of the other ranks. These allreduces must be Sum or Average; Average divides by
    the number of all ranks. Blocks until all ranks have joined. Returns the rank that joined
    last."""
    with _horovod_errors():
        last = _submit.join(_communicator(global_process_set))
    # Calls without a name are numbered. A rank that joined early has made fewer of them, so all
    # ranks begin again with number 0.
    global_process_set.forget_names()
    return last
