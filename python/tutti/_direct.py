# SPDX-License-Identifier: BSD-3-Clause
"""Direct collectives: they run on the caller's thread and block until done.

All ranks make the same direct calls in the same order. A communicator takes one direct call at a
time. The GIL is free during a call.
"""

from typing import Any, Optional, Sequence

import numpy as np

from . import _calls
from ._buffers import reading
from ._calls import Counts, Prepared
from ._lib import check, lib
from ._parts import per_rank, rows_of
from ._types import OpLike
from ._world import Communicator, current


def run(made: Prepared, comm: Communicator, function: Any = None) -> Any:
    """Make a direct call of a Prepared, and return its result."""
    call = function or getattr(lib, "tutti_" + made.kind)
    check(call(*made.args, comm.handle))
    made.raise_error()
    return made.result


def allreduce(array: Any, op: OpLike = "sum", out: Any = None,
              comm: Optional[Communicator] = None, prescale: float = 1.0,
              postscale: float = 1.0) -> Any:
    """Reduce over all ranks; every rank gets the result, with the same bits.

    array      the data of this rank: of the same shape and type on all ranks
    op         "sum", "avg", "min", "max", "prod", "band", "bor", "bxor", "land", "lor", "lxor",
               "minloc", "maxloc"; an Op; or an operation from create_op()
    out        the array for the result; `out=array` reduces in place. None: a new numpy array
    comm       the communicator; None: the world
    prescale   of floating point types: a factor of each rank's data before the reduction
    postscale  of floating point types: a factor of the result after the reduction

    Returns `out`, or the new array.
    """
    comm = current(comm)
    if prescale == postscale == 1.0:
        args = _calls.plain_reduction(array, op, out)
        if args is not None:
            check(lib.tutti_allreduce(*args, comm.handle))
            return out
    made = _calls.allreduce(comm, array, op, out)
    if prescale != 1.0 or postscale != 1.0:
        made.args += (_calls.factor("prescale", prescale), _calls.factor("postscale", postscale))
        return run(made, comm, lib.tutti_allreduce_scaled)
    return run(made, comm, lib.tutti_allreduce)


def reduce(array: Any, op: OpLike = "sum", root: int = 0, out: Any = None,
           comm: Optional[Communicator] = None) -> Any:
    """Reduce over all ranks; rank `root` gets the result, and the other ranks None.

    array, op  as in allreduce()
    root       the rank that gets the result; equal on all ranks
    out        on root: the array for the result, see allreduce(); not used on other ranks
    comm       the communicator; None: the world
    """
    comm = current(comm)
    return run(_calls.reduce(comm, array, op, root, out), comm)


def reduce_scatter(array: Any, op: OpLike = "sum", out: Any = None,
                   comm: Optional[Communicator] = None) -> Any:
    """Reduce over all ranks; each rank gets one of `size` equal parts of the result.

    array  the number of rows (the first axis) is a multiple of `size`; rank r gets the r-th part
    op     as in allreduce()
    out    the array for this rank's part, of any shape with so many elements; it may be this
           rank's own part of `array`. None: a new numpy array
    comm   the communicator; None: the world
    """
    comm = current(comm)
    return run(_calls.reduce_scatter(comm, array, op, out), comm)


def reduce_scatterv(array: Any, counts: Counts = None, op: OpLike = "sum", out: Any = None,
                    comm: Optional[Communicator] = None) -> Any:
    """Reduce over all ranks; rank r gets counts[r] rows of the result.

    array   the parts lie one after the other along the first axis
    counts  rows for each rank; equal on all ranks. None: as equal as possible, the first ranks get
            one row more
    op      as in allreduce()
    out     the array for this rank's part. None: a new numpy array
    comm    the communicator; None: the world
    """
    comm = current(comm)
    return run(_calls.reduce_scatterv(comm, array, counts, op, out), comm)


def broadcast(array: Any, root: int = 0, comm: Optional[Communicator] = None) -> Any:
    """Copy an array from rank `root` to all ranks, in place.

    array  read on root, written on the other ranks; of the same shape and type on all ranks
    root   the rank that has the data; equal on all ranks
    comm   the communicator; None: the world

    Returns `array`.
    """
    comm = current(comm)
    return run(_calls.broadcast(comm, array, root), comm)


def allgather(array: Any, out: Any = None, comm: Optional[Communicator] = None) -> Any:
    """Gather the arrays of all ranks on every rank, in rank order along the first axis.

    array  of the same shape and type on all ranks
    out    the array for the result, of any shape with so many elements; `array` may be this rank's
           own part of it. None: a new numpy array with `size` times as many rows
    comm   the communicator; None: the world
    """
    comm = current(comm)
    return run(_calls.allgather(comm, array, out), comm)


def allgatherv(array: Any, counts: Counts = None, displs: Counts = None, out: Any = None,
               comm: Optional[Communicator] = None) -> Any:
    """Gather arrays with different numbers of rows on every rank.

    array   this rank's rows; all axes but the first are equal on all ranks
    counts  the rows of each rank. None on all ranks: they are exchanged before, by one more call
    displs  the first row of each part in the result. None: one part after the other
    out     the array for the result, with at least so many elements. None: a new numpy array
    comm    the communicator; None: the world
    """
    comm = current(comm)
    if counts is None:
        rows, _ = rows_of("allgatherv", reading("allgatherv", array))
        counts = allgather(np.array([rows], np.int64), comm=comm)
    return run(_calls.allgatherv(comm, array, counts, displs, out), comm)


def gather(array: Any, root: int = 0, out: Any = None, comm: Optional[Communicator] = None) -> Any:
    """Gather the arrays of all ranks on rank `root`; the other ranks get None.

    array  of the same shape and type on all ranks
    root   the rank that gets the result; equal on all ranks
    out    on root: the array for the result, see allgather()
    comm   the communicator; None: the world
    """
    comm = current(comm)
    return run(_calls.gather(comm, array, root, out), comm)


def gatherv(array: Any, counts: Counts = None, displs: Counts = None, root: int = 0,
            out: Any = None, comm: Optional[Communicator] = None) -> Any:
    """Gather arrays with different numbers of rows on rank `root`; the other ranks get None.

    array           this rank's rows; all axes but the first are equal on all ranks
    counts, displs  on root, as in allgatherv(): counts must be given; not used on other ranks
    root            the rank that gets the result; equal on all ranks
    out             on root: the array for the result. None: a new numpy array
    comm            the communicator; None: the world
    """
    comm = current(comm)
    return run(_calls.gatherv(comm, array, counts, displs, root, out), comm)


def scatter(array: Any = None, root: int = 0, out: Any = None,
            comm: Optional[Communicator] = None) -> Any:
    """Cut an array of rank `root` into `size` equal parts; rank r gets the r-th.

    array  on root: the number of rows (the first axis) is a multiple of `size`; not used on other
           ranks
    root   the rank that has the data; equal on all ranks
    out    the array for this rank's part, of any shape with so many elements. On root, `out` may be
           root's own part of `array`, and None means a new numpy array
    comm   the communicator; None: the world
    """
    comm = current(comm)
    return run(_calls.scatter(comm, array, root, out), comm)


def scatterv(array: Any = None, counts: Counts = None, displs: Counts = None, root: int = 0,
             out: Any = None, comm: Optional[Communicator] = None) -> Any:
    """Cut an array of rank `root` into parts; rank r gets counts[r] rows.

    array   on root: the data; not used on other ranks
    counts  on root: rows for each rank
    displs  on root: the first row of each part. None: one part after the other
    root    the rank that has the data; equal on all ranks
    out     the array for this rank's part, see scatter()
    comm    the communicator; None: the world
    """
    comm = current(comm)
    return run(_calls.scatterv(comm, array, counts, displs, root, out), comm)


def alltoall(array: Any, out: Any = None, comm: Optional[Communicator] = None) -> Any:
    """Exchange equal parts between all ranks: part r goes to rank r, and part r of the result comes
    from rank r.

    array  the number of rows (the first axis) is a multiple of `size`
    out    the array for the result; `out=array` works in place. None: a new numpy array
    comm   the communicator; None: the world
    """
    comm = current(comm)
    return run(_calls.alltoall(comm, array, out), comm)


def alltoallv(array: Any, sendcounts: Sequence[int], recvcounts: Counts = None,
              senddispls: Counts = None, recvdispls: Counts = None, out: Any = None,
              comm: Optional[Communicator] = None) -> Any:
    """Exchange parts with different numbers of rows between all ranks.

    array       this rank's data; all axes but the first are equal on all ranks
    sendcounts  rows for each rank
    recvcounts  rows from each rank. None on all ranks: they are exchanged before, by one more call
    senddispls  the first row of each part in `array`. None: one part after the other
    recvdispls  the first row of each part in the result. None: one part after the other
    out         the array for the result, with at least so many elements. None: a new numpy array
    comm        the communicator; None: the world
    """
    comm = current(comm)
    if recvcounts is None:
        counts = per_rank("alltoallv", "sendcounts", comm, sendcounts)
        recvcounts = alltoall(counts, comm=comm)
    return run(_calls.alltoallv(comm, array, sendcounts, recvcounts, senddispls, recvdispls, out),
               comm)


def scan(array: Any, op: OpLike = "sum", out: Any = None,
         comm: Optional[Communicator] = None) -> Any:
    """Reduce over the ranks up to this one: rank r gets the result of ranks 0 to r.

    array, op, out, comm  as in allreduce(); not "avg"
    """
    comm = current(comm)
    return run(_calls.scan(comm, array, op, out), comm)


def exscan(array: Any, op: OpLike = "sum", out: Any = None,
           comm: Optional[Communicator] = None) -> Any:
    """Reduce over the ranks before this one: rank r gets the result of ranks 0 to r - 1.

    array, op, out, comm  as in allreduce(); not "avg"

    On rank 0 `out` is not changed, and without `out` the result is None.
    """
    comm = current(comm)
    return run(_calls.exscan(comm, array, op, out), comm)


def barrier(comm: Optional[Communicator] = None) -> None:
    """Wait until all ranks have called it.

    comm  the communicator; None: the world
    """
    comm = current(comm)
    check(lib.tutti_barrier(comm.handle))


def send(array: Any, dest: int, comm: Optional[Communicator] = None) -> None:
    """Send an array to rank `dest`, which calls recv() or sendrecv().

    array  of the type and number of elements that the receiver expects
    dest   the receiving rank
    comm   the communicator; None: the world

    Waits until the receiver has entered its call: two ranks that send to each other need
    sendrecv(). Messages between two ranks stay in order; there are no tags.
    """
    comm = current(comm)
    run(_calls.send(comm, array, dest), comm)


def recv(out: Any, source: int, comm: Optional[Communicator] = None) -> Any:
    """Receive an array from rank `source`, which calls send() or sendrecv().

    out     the array for the data
    source  the sending rank
    comm    the communicator; None: the world

    Returns `out`.
    """
    comm = current(comm)
    return run(_calls.recv(comm, out, source), comm)


def sendrecv(array: Any, dest: int, out: Any, source: int,
             comm: Optional[Communicator] = None) -> Any:
    """Send to rank `dest` and receive from rank `source` at the same time, so that rings and
    exchanges do not deadlock.

    array   the data for rank `dest`
    dest    the receiving rank
    out     the array for the data of rank `source`; it must not overlap `array`
    source  the sending rank
    comm    the communicator; None: the world

    Returns `out`.
    """
    comm = current(comm)
    return run(_calls.sendrecv(comm, array, dest, out, source), comm)
