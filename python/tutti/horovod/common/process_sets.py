# SPDX-License-Identifier: BSD-3-Clause
"""Process sets: ranks that make calls among themselves. Each is a communicator of the library.

All ranks of the job call the functions that add and remove a set, in the same order. A set does
not slow down the calls of other sets. Unlike in Horovod, HOROVOD_DYNAMIC_PROCESS_SETS is not needed
to add one.
"""

from ctypes import byref, c_int, c_void_p
from itertools import count
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from ..._lib import lib
from .exceptions import failed, refused

_job: Any = None                     # job.Job, from start() to end()
_sets: Dict[int, "ProcessSet"] = {}  # by id, without the global one
_ids: Iterator[int] = count(1)


class ProcessSet:
    """A set of ranks. Make it of a list of ranks, or of an mpi4py communicator; then pass it to
    init() or add_process_set(), and to calls as `process_set`.

    ranks           the ranks in ascending order, as in hvd.rank()
    process_set_id  a number; None until it was added, and after it was removed
    """

    process_set_id: Optional[int] = None
    ranks: Optional[List[int]] = None
    mpi_comm: Any = None
    comm: Optional[int] = None  # of the library; None unless this rank belongs to the set
    _rank = -1

    def __init__(self, ranks_or_comm: Any) -> None:
        if hasattr(ranks_or_comm, "Get_group"):
            self.mpi_comm = ranks_or_comm
            return
        try:
            ranks = list(ranks_or_comm)
        except TypeError:
            ranks = [None]
        if any(not isinstance(rank, int) or isinstance(rank, bool) for rank in ranks):
            raise ValueError("a ProcessSet is made of a list of ranks or an mpi4py communicator, "
                             "not of %r" % (ranks_or_comm,))
        self.ranks = sorted(ranks)
        self._names: Dict[str, Iterator[int]] = {}

    def size(self) -> Optional[int]:
        """The number of its ranks; None if it was not added."""
        if self.process_set_id is None or self.ranks is None:
            return None
        return len(self.ranks)

    def rank(self) -> Optional[int]:
        """This process's rank within the set; None if the set was not added. ValueError: this
        process is not in the set."""
        if self.process_set_id is None:
            return None
        if self._rank < 0:
            raise ValueError("this process is not part of %s" % self)
        return self._rank

    def included(self) -> Optional[bool]:
        """Whether this process is in the set. None: the set was made of an mpi4py communicator, and
        was not added yet."""
        if self.ranks is None:
            return None
        if _job is None:
            from .job import NOT_INITIALIZED
            raise ValueError(NOT_INITIALIZED)
        return _job.rank in self.ranks

    def active(self) -> bool:
        """Whether the set has other ranks with which this rank can make calls. ValueError: the set
        cannot be used."""
        if self.comm is None:
            if _job is None or self.process_set_id is None:
                raise self.unusable()
            return False
        return len(self.ranks or ()) > 1

    def place_of(self, rank: int) -> int:
        """The rank that `rank`, a rank of the job, has within the set."""
        try:
            return self.ranks.index(rank)  # type: ignore[union-attr]
        except ValueError:
            raise ValueError("rank %s is not part of %s" % (rank, self)) from None

    def unusable(self) -> ValueError:
        """The error for a call on a set that has no communicator here."""
        if _job is None:
            from .job import NOT_INITIALIZED
            return ValueError(NOT_INITIALIZED)
        if self.process_set_id is None:
            return ValueError("%s was not added, or was removed: hvd.add_process_set" % self)
        return ValueError("rank %d is not part of %s" % (_job.rank, self))

    def next_name(self, kind: str) -> str:
        """A name for a call without one. Such calls of one kind are matched by their order."""
        counter = self._names.get(kind)
        if counter is None:
            counter = self._names.setdefault(kind, count())
        return "%s.noname.%d" % (kind, next(counter))

    def forget_names(self) -> None:
        """Number the calls without a name from 0 again. Used after a call of all ranks, when no
        other call is pending."""
        self._names.clear()

    def _open(self, number: int, comm: Optional[int]) -> None:
        self._names = {}
        self.process_set_id, self.comm = number, comm
        self._rank = lib.tutti_rank(comm) if comm is not None else -1

    def _invalidate(self) -> None:
        self.process_set_id = self.comm = None
        self._rank = -1

    def __str__(self) -> str:
        return "ProcessSet(process_set_id=%s, ranks=%s)" % (self.process_set_id, self.ranks)

    __repr__ = __str__


def comm_of(process_set: ProcessSet) -> int:
    """The communicator of a set that this rank belongs to; ValueError otherwise."""
    comm = process_set.comm
    if comm is None:
        raise process_set.unusable()
    return comm


global_process_set = ProcessSet([])
global_process_set.process_set_id = 0


def start(job: Any) -> None:
    """Called by init() after the ranks have connected."""
    global _job, _ids
    _job, _ids = job, count(1)
    global_process_set.ranks = list(range(job.size))
    global_process_set._open(0, job.comm)


def end() -> None:
    """Called by shutdown(): all sets become invalid, and their communicators are freed, except
    that of the global set, which belongs to the job."""
    global _job
    for process_set in list(_sets.values()):
        if process_set.comm is not None:
            lib.tutti_comm_free(process_set.comm)
        process_set._invalidate()
    _sets.clear()
    global_process_set.comm = None
    _job = None


def _make(process_set: ProcessSet) -> None:
    """Make the communicator of a set. All ranks of the job call this."""
    ranks = process_set.ranks or []
    if not ranks:
        raise ValueError("a process set needs a rank")
    if len(set(ranks)) != len(ranks) or ranks[0] < 0 or ranks[-1] >= _job.size:
        raise ValueError("%s has a rank twice, or one that is not in 0 to %d"
                         % (process_set, _job.size - 1))
    ret = c_void_p()
    status = lib.tutti_comm_create(_job.comm, (c_int * len(ranks))(*ranks), len(ranks), byref(ret))
    if status:
        raise refused(status)
    number = next(_ids)
    process_set._open(number, ret.value)
    _sets[number] = process_set


def _twin(process_set: ProcessSet) -> Optional[ProcessSet]:
    """An existing set with the same ranks, or None."""
    if process_set.ranks == global_process_set.ranks:
        return global_process_set
    for other in _sets.values():
        if other.ranks == process_set.ranks:
            return other
    return None


def add_initial(process_set: Any, index: int) -> None:
    """One set of init(process_sets=...)."""
    if not isinstance(process_set, ProcessSet):
        raise ValueError("process_sets[%d] is no ProcessSet: %r" % (index, process_set))
    if process_set.ranks is None:
        _add_of_comms(process_set)
        return
    twin = _twin(process_set)
    if twin is process_set:
        return
    if twin is not None:
        raise ValueError("process_sets[%d] is a duplicate: %s" % (index, process_set))
    _make(process_set)


def _add_of_comms(process_set: ProcessSet) -> None:
    """Add a set that was given as an mpi4py communicator. Ranks may pass different communicators,
    which do not overlap: one split makes the sets of all of them."""
    ranks = sorted(process_set.mpi_comm.allgather(_job.rank))
    ret = c_void_p()
    status = lib.tutti_comm_split(_job.comm, ranks[0], _job.rank, byref(ret))
    if status:
        raise failed(status)
    process_set.ranks = ranks
    number = next(_ids)
    process_set._open(number, ret.value)
    _sets[number] = process_set


def add_process_set(process_set: Union[ProcessSet, Sequence[int]]) -> ProcessSet:
    """Make a process set after init(). All ranks of the job call this with the same ranks, in the
    same order.

    ValueError: a set with these ranks exists, or a rank is not in the job.
    """
    if _job is None:
        from .job import NOT_INITIALIZED
        raise ValueError(NOT_INITIALIZED)
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if process_set.ranks is None:
        raise NotImplementedError("a process set of an mpi4py communicator is made by init()")
    twin = _twin(process_set)
    if twin is not None:
        raise ValueError("a process set with these ranks exists already: %s" % twin)
    _make(process_set)
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a process set. All ranks of the job call this; none may have a call on the set
    pending.

    Returns False for the global process set, and for a set that was not added.
    """
    number = process_set.process_set_id
    if number is None or number == 0 or number not in _sets:
        return False
    if _job is None:
        from .job import NOT_INITIALIZED
        raise ValueError(NOT_INITIALIZED)
    ret = c_void_p()
    # The set's ranks finish their last calls on it before one of them frees it.
    status = lib.tutti_barrier_async(b"remove_process_set.%d" % number, _job.comm, None, byref(ret))
    if not status:
        status = lib.tutti_wait(ret.value, -1)
    if status:
        raise failed(status)
    comm = process_set.comm
    del _sets[number]
    process_set._invalidate()
    if comm is not None:
        lib.tutti_comm_free(comm)
    return True


def sets() -> List[Tuple[int, ProcessSet]]:
    """All sets with their ids, the global one first."""
    return [(0, global_process_set)] + sorted(_sets.items())
