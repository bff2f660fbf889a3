# SPDX-License-Identifier: BSD-3-Clause
"""Tutti: collective communication for numpy arrays and device arrays.

    import numpy as np
    import tutti

    world = tutti.init()                        # under mpirun or torchrun
    mean = tutti.allreduce(np.ones(4), "avg")   # the same on all ranks

Each call has a direct form, which blocks (`allreduce`), and an asynchronous form, which returns a
Request (`allreduce_async`). Results are new numpy arrays, or go to the array `out`; `out=array`
works in place. Contiguous arrays are never copied. A call without `comm` is made by all ranks of
the world.

    start and end   init, finalize, world, is_initialized, connect, unique_id_create, Communicator
    reduce          allreduce, reduce, reduce_scatter, reduce_scatterv, scan, exscan
    move data       broadcast, allgather, allgatherv, gather, gatherv, scatter, scatterv, alltoall,
                    alltoallv, barrier
    two ranks       send, recv, sendrecv
    asynchronous    the same names with _async; Request, wait_all, wait_any, Call, submit,
                    persistent, join
    operations      Op, create_op, pair_dtype
    memory          mem_alloc, mem_free, mem_alloc_local
    statistics      stats
    CUDA            cuda_run, cuda_device; streams in submit() and Request.wait()
    errors          TuttiError and its subclasses

docs/python.md is the guide. The library is loaded at the first call, not at the import.
"""

from ._async import (allgather_async, allgatherv_async, allreduce_async, alltoall_async,
                     alltoallv_async, barrier_async, broadcast_async, exscan_async, gather_async,
                     gatherv_async, recv_async, reduce_async, reduce_scatter_async,
                     reduce_scatterv_async, scan_async, scatter_async, scatterv_async, send_async,
                     sendrecv_async)
from ._direct import (allgather, allgatherv, allreduce, alltoall, alltoallv, barrier, broadcast,
                      exscan, gather, gatherv, recv, reduce, reduce_scatter, reduce_scatterv, scan,
                      scatter, scatterv, send, sendrecv)
from ._lib import (ABIError, InternalError, InvalidArgumentError, LibraryError, MismatchError,
                   NoMemoryError, PeerLostError, ShutdownError, SystemCallError, TimeoutError,
                   TransportError, TuttiError, UnsupportedError)
from ._memory import mem_alloc, mem_alloc_local, mem_free
from ._requests import Request, wait_all, wait_any
from ._stats import stats
from ._submit import Call, PersistentRequest, cuda_device, cuda_run, join, persistent, submit
from ._types import Op, UserOp, create_op, pair_dtype
from ._world import (Communicator, connect, finalize, init, is_initialized, unique_id_create,
                     world)

__version__ = "0.1.0"

__all__ = [
    "ABIError", "Call", "Communicator", "InternalError", "InvalidArgumentError", "LibraryError",
    "MismatchError", "NoMemoryError", "Op", "PeerLostError", "PersistentRequest", "Request",
    "ShutdownError", "SystemCallError", "TimeoutError", "TransportError", "TuttiError",
    "UnsupportedError", "UserOp", "allgather", "allgather_async", "allgatherv",
    "allgatherv_async", "allreduce", "allreduce_async", "alltoall", "alltoall_async", "alltoallv",
    "alltoallv_async", "barrier", "barrier_async", "broadcast", "broadcast_async", "connect",
    "create_op", "cuda_device", "cuda_run", "exscan", "exscan_async", "finalize", "gather",
    "gather_async", "gatherv", "gatherv_async", "init", "is_initialized", "join", "mem_alloc",
    "mem_alloc_local", "mem_free", "pair_dtype", "persistent", "recv", "recv_async", "reduce", "reduce_async",
    "reduce_scatter", "reduce_scatter_async", "reduce_scatterv", "reduce_scatterv_async", "scan",
    "scan_async", "scatter", "scatter_async", "scatterv", "scatterv_async", "send", "send_async",
    "sendrecv", "sendrecv_async", "stats", "submit", "unique_id_create", "wait_all", "wait_any", "world",
]

for _name in __all__:  # in messages and in help(): tutti.Request, not tutti._requests.Request
    globals()[_name].__module__ = __name__
