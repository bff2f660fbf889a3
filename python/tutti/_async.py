# SPDX-License-Identifier: BSD-3-Clause
"""Asynchronous collectives: they return a Request at once, and run while the program computes.

The ranks match the calls by name, in any order and from any thread; small arrays are fused into one
collective. Arrays must not be changed before the request is done.
"""

from typing import Any, Optional, Sequence

from . import _calls
from ._calls import Counts
from ._requests import Request
from ._submit import options, start
from ._types import OpLike
from ._world import Communicator, current


def allreduce_async(name: Optional[str], array: Any, op: OpLike = "sum", out: Any = None,
                    comm: Optional[Communicator] = None, prescale: float = 1.0,
                    postscale: float = 1.0, timeout: Optional[float] = None,
                    wire: Optional[str] = None, priority: int = 0) -> Request:
    """Start an allreduce() under a name.

    name        the same on all ranks, and different from those of pending calls; 1 to 255
                bytes. None: calls without a name are matched by their order, as direct calls
    timeout     seconds; if the call is not done by then, the communicator ends, and all its
                requests raise TimeoutError, or ShutdownError from a wait with a timeout. None: only
                a wait has a deadline
    wire        the type in which float32 is sent from host to host: "float32", "bfloat16",
                "float16" or "float8_e4m3", the same on all ranks. None: see TUTTI_WIRE
    priority    0 to 255: calls of a high priority overtake others that wait
    all others  as in allreduce()
    """
    comm = current(comm)
    made = _calls.allreduce(comm, array, op, out)
    return start(name, made, comm, options(prescale, postscale, timeout, wire, priority))


def reduce_async(name: Optional[str], array: Any, op: OpLike = "sum", root: int = 0,
                 out: Any = None, comm: Optional[Communicator] = None, prescale: float = 1.0,
                 postscale: float = 1.0, timeout: Optional[float] = None,
                 wire: Optional[str] = None) -> Request:
    """Start a reduce() under a name.

    name        the same on all ranks, and different from those of pending calls; 1 to 255
                bytes. None: calls without a name are matched by their order, as direct calls
    timeout     seconds; if the call is not done by then, the communicator ends, and all its
                requests raise TimeoutError, or ShutdownError from a wait with a timeout. None: only
                a wait has a deadline
    all others  as in reduce(); prescale and postscale as in allreduce(), wire as in
                allreduce_async()
    """
    comm = current(comm)
    made = _calls.reduce(comm, array, op, root, out)
    return start(name, made, comm, options(prescale, postscale, timeout, wire))


def reduce_scatter_async(name: Optional[str], array: Any, op: OpLike = "sum", out: Any = None,
                         comm: Optional[Communicator] = None, prescale: float = 1.0,
                         postscale: float = 1.0, timeout: Optional[float] = None,
                         wire: Optional[str] = None) -> Request:
    """Start a reduce_scatter() under a name.

    name        the same on all ranks, and different from those of pending calls; 1 to 255
                bytes. None: calls without a name are matched by their order, as direct calls
    timeout     seconds; if the call is not done by then, the communicator ends, and all its
                requests raise TimeoutError, or ShutdownError from a wait with a timeout. None: only
                a wait has a deadline
    all others  as in reduce_scatter(); prescale and postscale as in allreduce(), wire as in
                allreduce_async()
    """
    comm = current(comm)
    made = _calls.reduce_scatter(comm, array, op, out)
    return start(name, made, comm, options(prescale, postscale, timeout, wire))


def reduce_scatterv_async(name: Optional[str], array: Any, counts: Counts = None,
                          op: OpLike = "sum", out: Any = None, comm: Optional[Communicator] = None,
                          prescale: float = 1.0, postscale: float = 1.0,
                          timeout: Optional[float] = None,
                          wire: Optional[str] = None) -> Request:
    """Start a reduce_scatterv() under a name.

    name        the same on all ranks, and different from those of pending calls; 1 to 255
                bytes. None: calls without a name are matched by their order, as direct calls
    timeout     seconds; if the call is not done by then, the communicator ends, and all its
                requests raise TimeoutError, or ShutdownError from a wait with a timeout. None: only
                a wait has a deadline
    all others  as in reduce_scatterv(); prescale and postscale as in allreduce(), wire as in
                allreduce_async()
    """
    comm = current(comm)
    made = _calls.reduce_scatterv(comm, array, counts, op, out)
    return start(name, made, comm, options(prescale, postscale, timeout, wire))


def broadcast_async(name: Optional[str], array: Any, root: int = 0,
                    comm: Optional[Communicator] = None,
                    timeout: Optional[float] = None) -> Request:
    """Start a broadcast() under a name.

    name        the same on all ranks, and different from those of pending calls; 1 to 255
                bytes. None: calls without a name are matched by their order, as direct calls
    timeout     seconds; if the call is not done by then, the communicator ends, and all its
                requests raise TimeoutError, or ShutdownError from a wait with a timeout. None: only
                a wait has a deadline
    all others  as in broadcast()
    """
    comm = current(comm)
    made = _calls.broadcast(comm, array, root)
    return start(name, made, comm, options(1.0, 1.0, timeout))


def allgather_async(name: Optional[str], array: Any, out: Any = None,
                    comm: Optional[Communicator] = None,
                    timeout: Optional[float] = None) -> Request:
    """Start an allgather() under a name.

    name        the same on all ranks, and different from those of pending calls; 1 to 255
                bytes. None: calls without a name are matched by their order, as direct calls
    timeout     seconds; if the call is not done by then, the communicator ends, and all its
                requests raise TimeoutError, or ShutdownError from a wait with a timeout. None: only
                a wait has a deadline
    all others  as in allgather()
    """
    comm = current(comm)
    made = _calls.allgather(comm, array, out)
    return start(name, made, comm, options(1.0, 1.0, timeout))


def allgatherv_async(name: Optional[str], array: Any, counts: Counts = None, displs: Counts = None,
                     out: Any = None, comm: Optional[Communicator] = None,
                     timeout: Optional[float] = None) -> Request:
    """Start an allgatherv() under a name.

    name        the same on all ranks, and different from those of pending calls; 1 to 255
                bytes. None: calls without a name are matched by their order, as direct calls
    timeout     seconds; if the call is not done by then, the communicator ends, and all its
                requests raise TimeoutError, or ShutdownError from a wait with a timeout. None: only
                a wait has a deadline
    all others  as in allgatherv(). If counts is None, on all ranks or on some, the library
                exchanges the counts; then out and displacements cannot be given
    """
    comm = current(comm)
    made = _calls.allgatherv(comm, array, counts, displs, out)
    return start(name, made, comm, options(1.0, 1.0, timeout))


def gather_async(name: Optional[str], array: Any, root: int = 0, out: Any = None,
                 comm: Optional[Communicator] = None, timeout: Optional[float] = None) -> Request:
    """Start a gather() under a name.

    name        the same on all ranks, and different from those of pending calls; 1 to 255
                bytes. None: calls without a name are matched by their order, as direct calls
    timeout     seconds; if the call is not done by then, the communicator ends, and all its
                requests raise TimeoutError, or ShutdownError from a wait with a timeout. None: only
                a wait has a deadline
    all others  as in gather()
    """
    comm = current(comm)
    made = _calls.gather(comm, array, root, out)
    return start(name, made, comm, options(1.0, 1.0, timeout))


def gatherv_async(name: Optional[str], array: Any, counts: Counts = None, displs: Counts = None,
                  root: int = 0, out: Any = None, comm: Optional[Communicator] = None,
                  timeout: Optional[float] = None) -> Request:
    """Start a gatherv() under a name.

    name        the same on all ranks, and different from those of pending calls; 1 to 255
                bytes. None: calls without a name are matched by their order, as direct calls
    timeout     seconds; if the call is not done by then, the communicator ends, and all its
                requests raise TimeoutError, or ShutdownError from a wait with a timeout. None: only
                a wait has a deadline
    all others  as in gatherv()
    """
    comm = current(comm)
    made = _calls.gatherv(comm, array, counts, displs, root, out)
    return start(name, made, comm, options(1.0, 1.0, timeout))


def scatter_async(name: Optional[str], array: Any = None, root: int = 0, out: Any = None,
                  comm: Optional[Communicator] = None, timeout: Optional[float] = None) -> Request:
    """Start a scatter() under a name.

    name        the same on all ranks, and different from those of pending calls; 1 to 255
                bytes. None: calls without a name are matched by their order, as direct calls
    timeout     seconds; if the call is not done by then, the communicator ends, and all its
                requests raise TimeoutError, or ShutdownError from a wait with a timeout. None: only
                a wait has a deadline
    all others  as in scatter()
    """
    comm = current(comm)
    made = _calls.scatter(comm, array, root, out)
    return start(name, made, comm, options(1.0, 1.0, timeout))


def scatterv_async(name: Optional[str], array: Any = None, counts: Counts = None,
                   displs: Counts = None, root: int = 0, out: Any = None,
                   comm: Optional[Communicator] = None, timeout: Optional[float] = None) -> Request:
    """Start a scatterv() under a name.

    name        the same on all ranks, and different from those of pending calls; 1 to 255
                bytes. None: calls without a name are matched by their order, as direct calls
    timeout     seconds; if the call is not done by then, the communicator ends, and all its
                requests raise TimeoutError, or ShutdownError from a wait with a timeout. None: only
                a wait has a deadline
    all others  as in scatterv()
    """
    comm = current(comm)
    made = _calls.scatterv(comm, array, counts, displs, root, out)
    return start(name, made, comm, options(1.0, 1.0, timeout))


def alltoall_async(name: Optional[str], array: Any, out: Any = None,
                   comm: Optional[Communicator] = None, timeout: Optional[float] = None) -> Request:
    """Start an alltoall() under a name.

    name        the same on all ranks, and different from those of pending calls; 1 to 255
                bytes. None: calls without a name are matched by their order, as direct calls
    timeout     seconds; if the call is not done by then, the communicator ends, and all its
                requests raise TimeoutError, or ShutdownError from a wait with a timeout. None: only
                a wait has a deadline
    all others  as in alltoall()
    """
    comm = current(comm)
    made = _calls.alltoall(comm, array, out)
    return start(name, made, comm, options(1.0, 1.0, timeout))


def alltoallv_async(name: Optional[str], array: Any, sendcounts: Sequence[int],
                    recvcounts: Counts = None, senddispls: Counts = None, recvdispls: Counts = None,
                    out: Any = None, comm: Optional[Communicator] = None,
                    timeout: Optional[float] = None) -> Request:
    """Start an alltoallv() under a name.

    name        the same on all ranks, and different from those of pending calls; 1 to 255
                bytes. None: calls without a name are matched by their order, as direct calls
    timeout     seconds; if the call is not done by then, the communicator ends, and all its
                requests raise TimeoutError, or ShutdownError from a wait with a timeout. None: only
                a wait has a deadline
    all others  as in alltoallv(). If recvcounts is None, on all ranks or on some, the library
                exchanges the counts; then out and displacements cannot be given
    """
    comm = current(comm)
    made = _calls.alltoallv(comm, array, sendcounts, recvcounts, senddispls, recvdispls, out)
    return start(name, made, comm, options(1.0, 1.0, timeout))


def scan_async(name: Optional[str], array: Any, op: OpLike = "sum", out: Any = None,
               comm: Optional[Communicator] = None, timeout: Optional[float] = None) -> Request:
    """Start a scan() under a name.

    name        the same on all ranks, and different from those of pending calls; 1 to 255
                bytes. None: calls without a name are matched by their order, as direct calls
    timeout     seconds; if the call is not done by then, the communicator ends, and all its
                requests raise TimeoutError, or ShutdownError from a wait with a timeout. None: only
                a wait has a deadline
    all others  as in scan()
    """
    comm = current(comm)
    made = _calls.scan(comm, array, op, out)
    return start(name, made, comm, options(1.0, 1.0, timeout))


def exscan_async(name: Optional[str], array: Any, op: OpLike = "sum", out: Any = None,
                 comm: Optional[Communicator] = None, timeout: Optional[float] = None) -> Request:
    """Start an exscan() under a name.

    name        the same on all ranks, and different from those of pending calls; 1 to 255
                bytes. None: calls without a name are matched by their order, as direct calls
    timeout     seconds; if the call is not done by then, the communicator ends, and all its
                requests raise TimeoutError, or ShutdownError from a wait with a timeout. None: only
                a wait has a deadline
    all others  as in exscan()
    """
    comm = current(comm)
    made = _calls.exscan(comm, array, op, out)
    return start(name, made, comm, options(1.0, 1.0, timeout))


def barrier_async(name: Optional[str], comm: Optional[Communicator] = None,
                  timeout: Optional[float] = None) -> Request:
    """Start a barrier() under a name.

    name        the same on all ranks, and different from those of pending calls; 1 to 255
                bytes. None: calls without a name are matched by their order, as direct calls
    timeout     seconds; if the call is not done by then, the communicator ends, and all its
                requests raise TimeoutError, or ShutdownError from a wait with a timeout. None: only
                a wait has a deadline
    all others  as in barrier()
    """
    comm = current(comm)
    made = _calls.barrier(comm)
    return start(name, made, comm, options(1.0, 1.0, timeout))


def send_async(name: Optional[str], array: Any, dest: int, comm: Optional[Communicator] = None,
               timeout: Optional[float] = None) -> Request:
    """Start a send() to another rank under a name.

    name        the same on all ranks, and different from those of pending calls; 1 to 255
                bytes. None: calls without a name are matched by their order, as direct calls
    timeout     seconds; if the call is not done by then, the communicator ends, and all its
                requests raise TimeoutError, or ShutdownError from a wait with a timeout. None: only
                a wait has a deadline
    all others  as in send()
    """
    comm = current(comm)
    made = _calls.send(comm, array, dest)
    return start(name, made, comm, options(1.0, 1.0, timeout))


def recv_async(name: Optional[str], out: Any, source: int, comm: Optional[Communicator] = None,
               timeout: Optional[float] = None) -> Request:
    """Start a recv() from another rank under a name.

    name        the same on all ranks, and different from those of pending calls; 1 to 255
                bytes. None: calls without a name are matched by their order, as direct calls
    timeout     seconds; if the call is not done by then, the communicator ends, and all its
                requests raise TimeoutError, or ShutdownError from a wait with a timeout. None: only
                a wait has a deadline
    all others  as in recv()
    """
    comm = current(comm)
    made = _calls.recv(comm, out, source)
    return start(name, made, comm, options(1.0, 1.0, timeout))


def sendrecv_async(name: Optional[str], array: Any, dest: int, out: Any, source: int,
                   comm: Optional[Communicator] = None, timeout: Optional[float] = None) -> Request:
    """Start a sendrecv() under a name.

    name        the same on all ranks, and different from those of pending calls; 1 to 255
                bytes. None: calls without a name are matched by their order, as direct calls
    timeout     seconds; if the call is not done by then, the communicator ends, and all its
                requests raise TimeoutError, or ShutdownError from a wait with a timeout. None: only
                a wait has a deadline
    all others  as in sendrecv()
    """
    comm = current(comm)
    made = _calls.sendrecv(comm, array, dest, out, source)
    return start(name, made, comm, options(1.0, 1.0, timeout))
