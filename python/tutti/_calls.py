# SPDX-License-Identifier: BSD-3-Clause
"""Converts the arguments of each collective to the arguments of the library's function.

A function here has the name of a collective and its parameters, after the communicator. It checks
the arrays, makes the result's array if the caller has not given one, and returns a Prepared. The
direct and the asynchronous form of the collective both use it.
"""

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np

from . import _lib
from ._buffers import Buffer, Shape, count_of, new_like, reading, same_kind, writing
from ._lib import addressof, from_buffer
from ._parts import (displacements, gathered, in_elements, joined_shape, per_rank, rank_of,
                     receiving, rows_of, share_of, target_of)
from ._types import OpLike, UserOp, known_ops, known_types, op_number
from ._world import Communicator

Counts = Optional[Sequence[int]]

# The fields of a _lib.Call, in the order of the function's arguments.
_REDUCING = ("sendbuf", "recvbuf", "count", "dtype", "op")
_MOVING = ("sendbuf", "recvbuf", "count", "dtype")
_GATHERING = ("sendbuf", "count", "recvbuf", "recvcounts", "recvdispls", "dtype")
_FIELDS: Dict[str, Tuple[str, ...]] = {
    "allreduce": _REDUCING, "reduce": _REDUCING + ("root",), "scan": _REDUCING,
    "exscan": _REDUCING, "reduce_scatter": _REDUCING,
    "reduce_scatterv": ("sendbuf", "recvbuf", "recvcounts", "dtype", "op"),
    "broadcast": ("recvbuf", "count", "dtype", "root"), "barrier": (),
    "allgather": _MOVING, "gather": _MOVING + ("root",), "scatter": _MOVING + ("root",),
    "alltoall": _MOVING, "allgatherv": _GATHERING, "gatherv": _GATHERING + ("root",),
    "scatterv": ("sendbuf", "sendcounts", "senddispls", "recvbuf", "count", "dtype", "root"),
    "alltoallv": ("sendbuf", "sendcounts", "senddispls", "recvbuf", "recvcounts", "recvdispls",
                  "dtype"),
    "send": ("sendbuf", "count", "dtype", "root"), "recv": ("recvbuf", "count", "dtype", "root"),
    "sendrecv": ("sendbuf", "count", "root", "recvbuf", "recvcount", "source", "dtype"),
}


class Prepared:
    """A call, ready for the library."""

    __slots__ = ("kind", "args", "result", "keep", "op", "failures", "receive", "error")

    def __init__(self, kind: str, args: Tuple[Any, ...], result: Any, keep: Tuple[Any, ...],
                 op: Any = None) -> None:
        self.kind = kind  # the collective's name
        self.args = args  # of the direct function, up to the communicator
        self.result = result  # the result of the call
        self.keep = keep  # objects that must live until the call is done
        self.op: Optional[UserOp] = op if isinstance(op, UserOp) else None
        self.failures = 0  # of the operation, when the call began
        self.begin()
        # For a call whose counts are unknown. The function gets the counts of all ranks, in the
        # library's elements. It makes the buffer for the data, sets `result`, and returns the
        # buffer's address.
        self.receive: Optional[Callable[["np.ndarray[Any, Any]"], int]] = None
        self.error: Optional[Exception] = None  # set by `receive`: the call ends with it

    def begin(self) -> None:
        """To be called before the call begins: earlier errors of the operation do not belong to
        this call."""
        if self.op is not None:
            self.failures = self.op.failures

    def raise_error(self) -> None:
        """After the call: raise the exception of the operation, if there is one."""
        if self.op is not None:
            self.op.raise_error(self.failures)

    def structure(self, **fields: Any) -> _lib.Call:
        """The call as the library's structure, with further fields."""
        fields.update(zip(_FIELDS[self.kind], self.args))
        return _lib.Call(kind=_lib.CALL_KINDS[self.kind], **fields)


def factor(name: str, value: float) -> float:
    """A scale factor as the library takes it, for which 0 means 1."""
    if not value:
        raise ValueError("%s is %r; it must not be 0" % (name, value))
    return value


# ---- reductions ----

def _reducing(call: str, array: Any, op: OpLike, out: Any) -> Prepared:
    """A reduction whose result has the shape of its input."""
    if out is array and out is not None:
        source = target = writing(call, array, "array, which is out as well,")
        result = out
    else:
        source = reading(call, array)
        target, result = target_of(call, source, out, source.shape)
    kind = source.kind
    number = op_number(call, op, kind)
    return Prepared(call, (source.address, target.address, source.size * kind.unit, kind.dtype,
                           number), result, (source.owner, target.owner), op)


def plain_reduction(array: Any, op: OpLike, out: Any) -> Optional[Tuple[int, int, int, int, int]]:
    """The arguments of the most usual reduction, in half the time: numpy arrays of real numbers
    with `out`, and an operation of the library's. None: use the general way, which also reports
    errors."""
    if type(array) is not np.ndarray or type(out) is not np.ndarray:
        return None
    try:
        kind, number = known_types[array.dtype], known_ops[op]
        # TypeError: not contiguous in C order, or read-only
        target = addressof(from_buffer(out))
        source = target if out is array else addressof(from_buffer(array))
    except (KeyError, TypeError, ValueError):
        return None
    if kind.reducible != "all" or out.shape != array.shape or out.dtype != array.dtype:
        return None
    return source, target, array.size, kind.dtype, number


def allreduce(comm: Communicator, array: Any, op: OpLike = "sum", out: Any = None) -> Prepared:
    return _reducing("allreduce", array, op, out)


def scan(comm: Communicator, array: Any, op: OpLike = "sum", out: Any = None) -> Prepared:
    return _reducing("scan", array, op, out)


def exscan(comm: Communicator, array: Any, op: OpLike = "sum", out: Any = None) -> Prepared:
    made = _reducing("exscan", array, op, out)
    if comm.rank == 0 and out is None:
        made.result = None
    return made


def reduce(comm: Communicator, array: Any, op: OpLike = "sum", root: int = 0,
           out: Any = None) -> Prepared:
    rank_of("reduce", "root", comm, root)
    if comm.rank == root:
        made = _reducing("reduce", array, op, out)
        made.args += (root,)
        return made
    source = reading("reduce", array)
    number = op_number("reduce", op, source.kind)
    return Prepared("reduce", (source.address, None, source.size * source.kind.unit,
                               source.kind.dtype, number, root), None, (source.owner,), op)


def reduce_scatter(comm: Communicator, array: Any, op: OpLike = "sum",
                   out: Any = None) -> Prepared:
    source = reading("reduce_scatter", array)
    shape = share_of("reduce_scatter", comm, source)
    target, result = target_of("reduce_scatter", source, out, shape, exact=False)
    kind = source.kind
    number = op_number("reduce_scatter", op, kind)
    return Prepared("reduce_scatter", (source.address, target.address,
                                       count_of(shape) * kind.unit, kind.dtype, number), result,
                    (source.owner, target.owner), op)


def reduce_scatterv(comm: Communicator, array: Any, counts: Counts = None, op: OpLike = "sum",
                    out: Any = None) -> Prepared:
    call = "reduce_scatterv"
    source = reading(call, array)
    rows, row = rows_of(call, source)
    if counts is None:
        less, more = divmod(rows, comm.size)
        counts = [less + (rank < more) for rank in range(comm.size)]
    parts = per_rank(call, "counts", comm, counts)
    if parts.sum() != rows:
        raise ValueError("%s: counts are %d rows together, but array has %d"
                         % (call, parts.sum(), rows))
    target, result = target_of(call, source, out, (int(parts[comm.rank]),) + row, exact=False)
    number = op_number(call, op, source.kind)
    address, held = in_elements(parts, row, source)
    return Prepared(call, (source.address, target.address, address, source.kind.dtype, number),
                    result, (source.owner, target.owner, held), op)


# ---- moving data ----

def broadcast(comm: Communicator, array: Any, root: int = 0) -> Prepared:
    rank_of("broadcast", "root", comm, root)
    if comm.rank == root:
        buffer = reading("broadcast", array)
    else:
        buffer = writing("broadcast", array, "array")
    kind = buffer.kind
    return Prepared("broadcast", (buffer.address, buffer.size * kind.unit, kind.dtype, root),
                    array, (buffer.owner,))


def allgather(comm: Communicator, array: Any, out: Any = None) -> Prepared:
    source = reading("allgather", array)
    target, result = target_of("allgather", source, out, joined_shape(comm, source), exact=False)
    kind = source.kind
    return Prepared("allgather", (source.address, target.address, source.size * kind.unit,
                                  kind.dtype), result, (source.owner, target.owner))


def gather(comm: Communicator, array: Any, root: int = 0, out: Any = None) -> Prepared:
    rank_of("gather", "root", comm, root)
    source = reading("gather", array)
    address, owner, result = None, None, None
    if comm.rank == root:
        target, result = target_of("gather", source, out, joined_shape(comm, source), exact=False)
        address, owner = target.address, target.owner
    kind = source.kind
    return Prepared("gather", (source.address, address, source.size * kind.unit, kind.dtype, root),
                    result, (source.owner, owner))


def allgatherv(comm: Communicator, array: Any, counts: Counts = None, displs: Counts = None,
               out: Any = None) -> Prepared:
    call = "allgatherv"
    source = reading(call, array)
    rows, row = rows_of(call, source)
    kind = source.kind
    if counts is not None:
        more, result, keep = gathered(call, comm, source, counts, displs, out)
        return Prepared(call, (source.address, source.size * kind.unit) + more + (kind.dtype,),
                        result, (source.owner,) + keep)
    made = Prepared(call, (source.address, source.size * kind.unit, None, None, None, kind.dtype),
                    None, (source.owner,))
    _receive_later(made, call, source, row, displs, out)
    return made


def _receive_later(made: Prepared, call: str, source: Buffer, row: Shape, displs: Any,
                   out: Any) -> None:
    """The rest of a call whose counts the library exchanges."""
    if out is not None or displs is not None:
        raise ValueError("%s: out and displacements need the counts to receive" % call)
    if source.device:
        raise ValueError("%s: array is in device memory, so out and the counts to receive must be "
                         "given" % call)
    each = count_of(row) * source.kind.unit
    if not each:
        raise ValueError("%s: rows of shape %s have no elements, so their number is unknown: the "
                         "counts to receive must be given" % (call, row))
    new_like(call, source, (0,) + row)  # ValueError now, not during the call

    def receive(elements: "np.ndarray[Any, Any]") -> int:
        if made.result is None:  # otherwise a signal has interrupted the use of this address
            odd = np.flatnonzero(elements % each)
            if len(odd):
                # The call must continue, because the other ranks wait for this rank's buffer.
                text = "%s: rank %d sends %d elements, which are no whole rows of shape %s" % (
                    call, odd[0], elements[odd[0]] // source.kind.unit, row)
                made.error = _lib.error_of(_lib.MISMATCH, text)
            rows = -(-int(elements.sum()) // each)  # rounded up
            made.result = new_like(call, source, (rows,) + row).owner
        return int(made.result.__array_interface__["data"][0])

    made.receive = receive


def gatherv(comm: Communicator, array: Any, counts: Counts = None, displs: Counts = None,
            root: int = 0, out: Any = None) -> Prepared:
    call = "gatherv"
    rank_of(call, "root", comm, root)
    source = reading(call, array)
    kind = source.kind
    more: Tuple[Any, ...] = (None, None, None)
    keep: Tuple[Any, ...] = ()
    result = None
    if comm.rank == root:
        if counts is None:
            raise ValueError("gatherv: root needs the counts of all ranks")
        more, result, keep = gathered(call, comm, source, counts, displs, out)
    return Prepared(call, (source.address, source.size * kind.unit) + more + (kind.dtype, root),
                    result, (source.owner,) + keep)


def _from_root(call: str, out: Any) -> Buffer:
    if out is None:
        raise ValueError("%s: out is None; ranks that are not root need an array for their part"
                         % call)
    return writing(call, out)


def scatter(comm: Communicator, array: Any = None, root: int = 0, out: Any = None) -> Prepared:
    rank_of("scatter", "root", comm, root)
    if comm.rank != root:
        target = _from_root("scatter", out)
        kind = target.kind
        return Prepared("scatter", (None, target.address, target.size * kind.unit, kind.dtype,
                                    root), out, (target.owner,))
    source = reading("scatter", array)
    shape = share_of("scatter", comm, source)
    target, result = target_of("scatter", source, out, shape, exact=False)
    kind = source.kind
    return Prepared("scatter", (source.address, target.address, count_of(shape) * kind.unit,
                                kind.dtype, root), result, (source.owner, target.owner))


def scatterv(comm: Communicator, array: Any = None, counts: Counts = None, displs: Counts = None,
             root: int = 0, out: Any = None) -> Prepared:
    call = "scatterv"
    rank_of(call, "root", comm, root)
    if comm.rank != root:
        target = _from_root(call, out)
        kind = target.kind
        return Prepared(call, (None, None, None, target.address, target.size * kind.unit,
                               kind.dtype, root), out, (target.owner,))
    if counts is None:
        raise ValueError("scatterv: root needs the counts of all ranks")
    source = reading(call, array)
    rows, row = rows_of(call, source)
    parts = per_rank(call, "counts", comm, counts)
    places, _ = displacements(call, "displs", comm, displs, parts, rows)
    shape = (int(parts[comm.rank]),) + row
    target, result = target_of(call, source, out, shape, exact=False)
    count_address, held_counts = in_elements(parts, row, source)
    place_address, held_places = in_elements(places, row, source)
    kind = source.kind
    return Prepared(call, (source.address, count_address, place_address, target.address,
                           count_of(shape) * kind.unit, kind.dtype, root), result,
                    (source.owner, target.owner, held_counts, held_places))


def alltoall(comm: Communicator, array: Any, out: Any = None) -> Prepared:
    if out is array and out is not None:
        source = target = writing("alltoall", array, "array, which is out as well,")
        result, shape = out, share_of("alltoall", comm, source)
    else:
        source = reading("alltoall", array)
        shape = share_of("alltoall", comm, source)
        target, result = target_of("alltoall", source, out, source.shape, exact=False)
    kind = source.kind
    return Prepared("alltoall", (source.address, target.address, count_of(shape) * kind.unit,
                                 kind.dtype), result, (source.owner, target.owner))


def alltoallv(comm: Communicator, array: Any, sendcounts: Sequence[int],
              recvcounts: Counts = None, senddispls: Counts = None, recvdispls: Counts = None,
              out: Any = None) -> Prepared:
    call = "alltoallv"
    source = reading(call, array)
    rows, row = rows_of(call, source)
    parts = per_rank(call, "sendcounts", comm, sendcounts)
    places, _ = displacements(call, "senddispls", comm, senddispls, parts, rows)
    held: List[Any] = [source.owner]
    args: List[Any] = [source.address]
    for values in (parts, places):
        address, array_held = in_elements(values, row, source)
        args.append(address)
        held.append(array_held)
    if recvcounts is None:
        made = Prepared(call, tuple(args) + (None, None, None, source.kind.dtype), None,
                        tuple(held))
        _receive_later(made, call, source, row, recvdispls, out)
        return made
    parts = per_rank(call, "recvcounts", comm, recvcounts)
    places, needed = displacements(call, "recvdispls", comm, recvdispls, parts, None)
    target, result = receiving(call, source, out, needed, row, places is not None)
    args.append(target.address)
    held.append(target.owner)
    for values in (parts, places):
        address, array_held = in_elements(values, row, source)
        args.append(address)
        held.append(array_held)
    return Prepared(call, tuple(args) + (source.kind.dtype,), result, tuple(held))


def barrier(comm: Communicator) -> Prepared:
    return Prepared("barrier", (), None, ())


# ---- between two ranks ----

def send(comm: Communicator, array: Any, dest: int) -> Prepared:
    rank_of("send", "dest", comm, dest)
    source = reading("send", array)
    kind = source.kind
    return Prepared("send", (source.address, source.size * kind.unit, kind.dtype, dest), None,
                    (source.owner,))


def recv(comm: Communicator, out: Any, source: int) -> Prepared:
    rank_of("recv", "source", comm, source)
    target = writing("recv", out)
    kind = target.kind
    return Prepared("recv", (target.address, target.size * kind.unit, kind.dtype, source), out,
                    (target.owner,))


def sendrecv(comm: Communicator, array: Any, dest: int, out: Any, source: int) -> Prepared:
    rank_of("sendrecv", "dest", comm, dest)
    rank_of("sendrecv", "source", comm, source)
    buffer, target = reading("sendrecv", array), writing("sendrecv", out)
    same_kind("sendrecv", buffer, target)
    unit = buffer.kind.unit
    return Prepared("sendrecv", (buffer.address, buffer.size * unit, dest, target.address,
                                 target.size * unit, source, buffer.kind.dtype), out,
                    (buffer.owner, target.owner))
