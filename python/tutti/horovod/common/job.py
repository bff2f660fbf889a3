# SPDX-License-Identifier: BSD-3-Clause
"""The job as Horovod sees it: init, shutdown, ranks, and what this installation can do.

One object, `job`, holds the state of the process. All front ends share it, so a program that uses
two frameworks has one set of connections. Rank and size are cached: reading them is an attribute
access, and they stay readable in a forked child, where no call between ranks works.
"""

import atexit
import glob
import os
from ctypes import byref, c_int64, c_void_p
from typing import Any, Callable, List, Optional

from ... import _lib
from ..._lib import lib
from . import process_sets, settings
from .exceptions import InitializationError, last_error

NOT_INITIALIZED = "tutti.horovod is not initialized: call hvd.init() first"


class Job:
    """The state between init() and shutdown()."""

    def __init__(self) -> None:
        self.initialized = False
        self.generation = 0  # counts init(): objects of an earlier one are invalid
        self.world: Optional[int] = None
        self.comm: Optional[int] = None  # of the global process set
        self._owns_world = False
        self._pid = 0
        self.rank = self.size = self.local_rank = self.local_size = -1
        self.cross_rank = self.cross_size = -1
        self.homogeneous = False
        # Called before the library starts, before it ends and after it: front ends look the
        # library's functions up, stop their threads and free their requests.
        self.before_start: List[Callable[[], None]] = []
        self.before_end: List[Callable[[], None]] = []
        self.after_end: List[Callable[[], None]] = []

    # ---- start ----

    def init(self, comm: Any = None, sets: Any = None) -> None:
        """See init() of the module."""
        if not self.initialized:
            self._start(comm)
        if isinstance(sets, str):
            if sets.lower() != "dynamic":
                raise ValueError("process_sets is a list of ProcessSet, or 'dynamic', not %r"
                                 % sets)
            os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
            sets = None
        for index, process_set in enumerate(sets or []):
            process_sets.add_initial(process_set, index)

    def _start(self, comm: Any) -> None:
        for function in self.before_start:
            function()
        settings.translate()
        ranks, mpi_comm = _read_comm(comm)
        world = lib.tutti_world()
        self._owns_world = not world
        if not world:
            options = _lib.Options(mpi_comm=_address_of(mpi_comm)) if mpi_comm is not None else None
            status = lib.tutti_init(byref(options) if options is not None else None)
            if status:
                raise InitializationError(last_error(status), status=status)
            world = lib.tutti_world()
        elif mpi_comm is not None:  # the world may have other ranks
            ranks = mpi_comm.allgather(lib.tutti_rank(world))
        self.world = self.comm = world
        self._pid = os.getpid()
        try:
            _check_launcher(lib.tutti_size(world))
            self._choose(ranks)
            self._look_around()
        except BaseException:
            self._finalize()
            raise
        self.generation += 1
        self.initialized = True
        process_sets.start(self)

    def _choose(self, ranks: Optional[List[int]]) -> None:
        """Make the communicator of the listed ranks. Without a list, use the world. But if another
        front end has made the world, make a communicator of all ranks, so that equal names of both
        front ends are not matched."""
        world = self.world
        if ranks is None and self._owns_world:
            return
        rank = lib.tutti_rank(world)
        ranks = list(range(lib.tutti_size(world))) if ranks is None else ranks
        member = rank in ranks
        ret = c_void_p()
        status = lib.tutti_comm_split(world, min(ranks) if member else _lib.COLOR_NONE,
                                      ranks.index(rank) if member else 0, byref(ret))
        if status:
            raise InitializationError(last_error(status), status=status)
        if not member:
            raise InitializationError("rank %d called init(comm=%s), which does not contain it"
                                      % (rank, ranks))
        self.comm = ret.value
        if lib.tutti_size(self.comm) != len(ranks):
            raise InitializationError("the ranks in comm=%s did not all pass the same list" % ranks)

    def _look_around(self) -> None:
        """Set rank, size and the like. The cross_ numbers need the places of all ranks."""
        comm = self.comm
        self.rank, self.size = lib.tutti_rank(comm), lib.tutti_size(comm)
        self.local_rank, self.local_size = lib.tutti_local_rank(comm), lib.tutti_local_size(comm)
        mine = (c_int64 * 3)(lib.tutti_host_rank(comm), self.local_rank, self.local_size)
        all_ranks = (c_int64 * (3 * self.size))()
        status = lib.tutti_allgather(mine, all_ranks, 3, _lib.INT64, comm)
        if status:
            raise InitializationError(last_error(status), status=status)
        places = [tuple(all_ranks[i:i + 3]) for i in range(0, 3 * self.size, 3)]
        counterparts = sorted(host for host, local, _ in places if local == self.local_rank)
        self.cross_size = len(counterparts)
        self.cross_rank = counterparts.index(mine[0])
        self.homogeneous = len({count for _, _, count in places}) == 1

    # ---- end ----

    def shutdown(self) -> None:
        """End the library. If another front end has made the world, free only the
        communicator of this front end. Does not wait for other ranks; does nothing before
        init()."""
        if not self.initialized:
            return
        self.initialized = False
        if self._pid != os.getpid():  # a forked child: everything belongs to the parent
            return
        for function in self.before_end:
            function()
        process_sets.end()
        self._finalize()
        for function in self.after_end:
            function()

    def _finalize(self) -> None:
        if self._owns_world:
            lib.tutti_finalize()
        elif self.comm is not None and self.comm != self.world:
            lib.tutti_comm_free(self.comm)
        self.world = self.comm = None


job = Job()
atexit.register(job.shutdown)


def _check_launcher(size: int) -> None:
    """Raise InitializationError if horovodrun has started several processes, but this process is
    alone. Without MPI, only Horovod can connect the processes of horovodrun."""
    count = os.environ.get("HOROVOD_SIZE", "")  # horovodrun sets it when it does not use mpirun
    if size == 1 and count.isdigit() and int(count) > 1:
        raise InitializationError("horovodrun has started %s processes, but Tutti cannot connect "
                                  "them: use mpirun, torchrun or python -m tutti.horovod -np %s"
                                  % (count, count))


def _read_comm(comm: Any) -> Any:
    """(list of ranks or None, mpi4py communicator or None)"""
    if comm is None:
        return None, None
    if hasattr(comm, "Get_rank"):
        return None, comm
    try:
        ranks = [int(rank) for rank in comm]
    except (TypeError, ValueError):
        raise ValueError("comm is a list of ranks or an mpi4py communicator, not %r"
                         % (comm,)) from None
    if not ranks:
        return None, None
    if len(set(ranks)) != len(ranks) or min(ranks) < 0:
        raise ValueError("comm=%s has a rank twice, or one below 0" % ranks)
    return ranks, None


def _address_of(mpi_comm: Any) -> int:
    from mpi4py import MPI
    return int(MPI._addressof(mpi_comm))


# ---- the functions of Horovod's interface ----

def init(comm: Any = None, process_sets: Any = None) -> None:
    """Find the other ranks and connect to them. All ranks call it.

    comm          None: all ranks of the launcher's job. A list of ranks: only these are ranks of
                  Horovod's job; each rank of the launcher's job must call init() with a
                  list that contains the rank. Or an mpi4py communicator
    process_sets  a list of ProcessSet to make, the same on all ranks; or "dynamic"

    If init() was called before, and shutdown() was not called after it, this call only makes the
    process sets.
    """
    job.init(comm, process_sets)


def shutdown() -> None:
    """End all connections. The process does so when it exits; init() may be called again."""
    job.shutdown()


def is_initialized() -> bool:
    """Whether init() was called, and shutdown() was not called after it."""
    return job.initialized


def _need() -> Job:
    if not job.initialized:
        raise ValueError(NOT_INITIALIZED)
    return job


def rank() -> int:
    """This process's rank."""
    return _need().rank


def size() -> int:
    """The number of ranks."""
    return _need().size


def local_rank() -> int:
    """This process's rank among the ranks of its host."""
    return _need().local_rank


def local_size() -> int:
    """The number of ranks of this host."""
    return _need().local_size


def cross_rank() -> int:
    """The index of this host among the hosts that have a rank with this local rank."""
    return _need().cross_rank


def cross_size() -> int:
    """The number of hosts that have a rank with this local rank."""
    return _need().cross_size


def is_homogeneous() -> bool:
    """Whether all hosts have equally many ranks."""
    return _need().homogeneous


def _mapped(part: str) -> List[str]:
    """The files in this process's memory whose paths contain `part`."""
    try:
        with open("/proc/self/maps") as maps:
            return [line.split(None, 5)[5].strip() for line in maps if part in line]
    except OSError:
        return []


def _modules(pattern: str) -> List[str]:
    """The files of the library's modules that match a pattern."""
    lib.load()
    folder = os.environ.get("TUTTI_MODULE_DIR")
    if not folder:
        found = _mapped("/libtutti.so")
        folder = os.path.join(os.path.dirname(found[0]), "tutti") if found else ""
    return glob.glob(os.path.join(folder, pattern))


def mpi_built() -> bool:
    """Whether this installation has a module for an MPI."""
    return mpi_enabled() or bool(_modules("mpi_*.so"))


def mpi_enabled() -> bool:
    """Whether the ranks met through MPI."""
    return job.initialized and any(path.endswith(".so") for path in _mapped("/mpi_"))


def mpi_threads_supported() -> bool:
    """Whether the program may call MPI itself, as with mpi4py. Tutti works with every thread level
    of MPI, so this is True under MPI."""
    _need()
    if not mpi_enabled():
        raise ValueError("the ranks did not meet through MPI")
    return True


def gloo_enabled() -> bool:
    """False: there is no Gloo in Tutti. Ranks also meet without MPI, as under torchrun."""
    return False


def gloo_built() -> bool:
    """False: there is no Gloo in Tutti."""
    return False


def nccl_built() -> int:
    """The version of the NCCL that reduces in device memory, as a number like 21805. 1: unknown,
    because torch, which reports it, is not installed. 0: no NCCL."""
    if not job.initialized or lib.tutti_cuda_device(job.comm) < 0:
        return 0
    try:
        import torch
    except ImportError:
        return 1  # NCCL of an unknown version
    version = torch.cuda.nccl.version()
    if isinstance(version, int):
        return version
    major, minor, patch = version[:3]
    return major * 10000 + minor * 100 + patch


def cuda_built() -> bool:
    """Whether this installation has the module for CUDA."""
    return bool(_modules("cuda.so"))


def rocm_built() -> bool:
    """False: there is no ROCm module."""
    return False


def ddl_built() -> bool:
    """False: there is no DDL in Tutti."""
    return False


def ccl_built() -> bool:
    """False: there is no oneCCL in Tutti."""
    return False


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Start a timeline of this process, for chrome://tracing and Perfetto. Call it on all ranks.

    file_path    equal on all ranks. On each rank, stop_timeline() or shutdown() adds the rank's
                 events to this file. start_timeline() on the lowest rank of each host removes an
                 older file, so no rank should stop before all have started
    mark_cycles  ignored: Tutti has no cycles
    """
    _need()
    _lib.check(lib.tutti_trace_start(os.fsencode(file_path)))


def stop_timeline() -> None:
    """Stop the timeline, and add this rank's events to its file. Does nothing without a
    timeline."""
    _need()
    _lib.check(lib.tutti_trace_stop())
