# SPDX-License-Identifier: BSD-3-Clause
"""Start and end, communicators, unique ids, stores."""

import atexit
import os
import sys
from types import TracebackType
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Type

from . import _lib
from ._lib import InvalidArgumentError, TuttiError, byref, check, lib

UNIQUE_ID_BYTES = 128

# Functions to call when a communicator and its groups have ended. Their argument is the
# communicator; None: the world.
on_end: List[Callable[[Optional["Communicator"]], None]] = []


def milliseconds(timeout: Optional[float]) -> int:
    """Seconds to the library's milliseconds; None is its own deadline."""
    if timeout is None:
        return -1
    if not timeout >= 0:
        raise ValueError("timeout is %r; it must be a number of seconds, 0 or more, or None"
                         % (timeout,))
    return int(min(timeout * 1000 + 0.999, 0x7fffffff))  # timeout may be infinity


def option_ms(timeout: Optional[float]) -> int:
    """Seconds to the timeout_ms of options, where None is 0."""
    if timeout is None:
        return 0
    wanted = max(1, milliseconds(timeout))
    _lib.needs_timeouts()
    return wanted


class Communicator:
    """A set of ranks that make collective calls together.

    From init(), world(), split(), create() or connect(). As a context manager it is freed at the
    end of the block, and the world is finalized:

        with tutti.init() as world:
            ...

    If an exception leaves the block, except that of sys.exit() or sys.exit(0), the communicator is
    aborted first. So the other ranks do not wait for this rank: they get PeerLostError with the
    exception's text.
    """

    def __init__(self, handle: int, root: int = 0) -> None:
        """For the package's own use."""
        self.handle = handle  # the library's tutti_comm_t *, as a number
        # The handle of the world, or of the connected communicator, that this one is a group of.
        self.root = root or handle
        self.rank: int = lib.tutti_rank(handle)
        """This process's rank, from 0 on."""
        self.size: int = lib.tutti_size(handle)
        """The number of ranks."""

    @property
    def local_rank(self) -> int:
        """This process's rank among the ranks of its host."""
        return int(lib.tutti_local_rank(self.handle))

    @property
    def local_size(self) -> int:
        """The number of ranks on this host."""
        return int(lib.tutti_local_size(self.handle))

    @property
    def host_rank(self) -> int:
        """The number of this host among all hosts, from 0 on."""
        return int(lib.tutti_host_rank(self.handle))

    @property
    def host_count(self) -> int:
        """The number of hosts."""
        return int(lib.tutti_host_count(self.handle))

    @property
    def error(self) -> Optional[TuttiError]:
        """None while the communicator is usable, otherwise the error of every call on it. Reading
        it does not wait for other ranks."""
        state, text = _lib.c_int(), _lib.text_buffer(1024)
        check(lib.tutti_comm_state(self.handle, byref(state), text, 1024))
        if state.value == _lib.OK:
            return None
        return _lib.error_of(state.value, text.value.decode("utf-8", "replace"))

    def split(self, color: Optional[int] = 0, key: int = 0) -> Optional["Communicator"]:
        """Split the communicator: ranks that pass the same color get a new one.

        color  0 or more; None: this rank gets no communicator, and the call returns None
        key    orders the ranks of the new communicator; equal keys keep the order

        Collective over this communicator, which stays valid.
        """
        if color is not None and color < 0:
            raise ValueError("split: color is %r; it must be 0 or more, or None" % color)
        number = _lib.COLOR_NONE if color is None else _lib.int_of("split: color", color)
        place = _lib.out_pointer()
        check(lib.tutti_comm_split(self.handle, number, _lib.int_of("split: key", key),
                                   byref(place)))
        return None if place.value is None else Communicator(place.value, self.root)

    def create(self, ranks: Iterable[int]) -> Optional["Communicator"]:
        """Make a communicator of some ranks of this one: new rank i is ranks[i].

        ranks  different from each other; the same list on all ranks

        Collective over this communicator: ranks outside the list call it as well, and get None.
        """
        members = [_lib.int_of("create: rank", rank) for rank in ranks]
        place = _lib.out_pointer()
        check(lib.tutti_comm_create(self.handle, _lib.int_array(members), len(members),
                                    byref(place)))
        return None if place.value is None else Communicator(place.value, self.root)

    def abort(self, reason: str = "") -> None:
        """End the communicator on all its ranks: their pending and later calls raise PeerLostError
        with this reason. The process continues."""
        # The text of an exception may contain file names that have no form in UTF-8.
        check(lib.tutti_abort(self.handle, reason.encode("utf-8", "backslashreplace")))

    def free(self) -> None:
        """Free the communicator; for the world this is finalize().

        Does not wait for other ranks. Pending requests end with ShutdownError. Arrays of
        mem_alloc() on this communicator must not be used any more.
        """
        if self is _world:
            finalize()
            return
        check(lib.tutti_comm_free(self.handle))
        _connected.pop(self.handle, None)
        for function in on_end:
            function(self)

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        try:
            if error is not None and not _is_normal_exit(error):
                self.abort(_reason(error))
        except TuttiError:
            pass  # it has ended already
        finally:
            if lib.tutti_size(self.handle) > 0:  # not freed in the block
                self.free()

    def __repr__(self) -> str:
        return "<tutti.Communicator, rank %d of %d>" % (self.rank, self.size)


def _is_normal_exit(error: BaseException) -> bool:
    """Whether the process ends with status 0: after sys.exit() or sys.exit(0)."""
    return isinstance(error, SystemExit) and (error.code is None or error.code == 0)


def _reason(error: BaseException) -> str:
    name = type(error).__name__
    try:
        return "%s: %s" % (name, error)
    except Exception:  # of the exception's own __str__
        return name


_world: Optional[Communicator] = None
_started_by = 0  # the process in which init() has started the world
_connected: Dict[int, Tuple[int, Communicator]] = {}  # by handle: the process, and the communicator


def _options(**fields: Any) -> Tuple[_lib.Options, List[Any]]:
    """The library's options, and the objects that must live as long as the options."""
    unique_id, store = fields.pop("unique_id", None), fields.pop("store", None)
    rank, size = fields.pop("rank", None), fields.pop("size", None)
    timeout, prefix = fields.pop("timeout", None), fields.pop("prefix", "tutti")
    options = _lib.Options(**fields)
    keep: List[Any] = []
    if (unique_id is None) != (store is None) and rank is not None and size is not None:
        options.rank, options.nranks = _lib.int_of("rank", rank), _lib.int_of("size", size)
    elif unique_id is not None or store is not None:
        raise ValueError("unique_id or store, not both, together with rank and size")
    elif rank is not None or size is not None:
        raise ValueError("rank and size are for ranks that meet by unique_id or store")
    if unique_id is not None:
        if len(unique_id) != UNIQUE_ID_BYTES:
            raise ValueError("unique_id has %d bytes; one from unique_id_create() has %d"
                             % (len(unique_id), UNIQUE_ID_BYTES))
        keep.append(_lib.UniqueId.from_buffer_copy(unique_id))
        options.unique_id = _lib.pointer(keep[-1])
    if store is not None:
        keep.append(_lib.make_store(prefix, store.set, store.get))
        options.store = _lib.pointer(keep[-1])
    options.timeout_ms = option_ms(timeout)
    return options, keep


def _check_meeting(status: int, keep: List[Any]) -> None:
    """As check(), with an exception of the store as the cause."""
    if status:
        cause = next((item.error for item in keep if isinstance(item, _lib.Store)), None)
        raise _lib.error_of(status) from cause


def init(unique_id: Optional[bytes] = None, store: Any = None, rank: Optional[int] = None,
         size: Optional[int] = None, mpi_comm: Any = None, timeout: Optional[float] = None,
         prefix: str = "tutti") -> Communicator:
    """Start the library, and return the communicator of all ranks.

    Without arguments the ranks are those of mpirun, torchrun or srun, or of RANK, WORLD_SIZE,
    MASTER_ADDR and MASTER_PORT; a process without any of these is alone.

    unique_id   bytes from unique_id_create(); with rank and size
    store       an object with set(key, value) and get(key, timeout_ms), see connect(); with rank
                and size
    mpi_comm    a communicator of mpi4py; or the address of an MPI_Comm
    timeout     seconds: the deadline of this call, of direct calls, and of waits without a timeout
                of their own; all ranks use rank 0's. None: the setting TUTTI_TIMEOUT
    prefix      of the store's keys; a different one for each job

    Collective: every rank calls it. finalize() ends the library; so does the end of the process.
    """
    global _world, _started_by
    address = None
    if mpi_comm is not None and not isinstance(mpi_comm, int):
        from mpi4py import MPI  # type: ignore[import-not-found, import-untyped, unused-ignore]

        address = MPI._addressof(mpi_comm)
    elif mpi_comm is not None:
        address = mpi_comm
    options, keep = _options(unique_id=unique_id, store=store, rank=rank, size=size,
                             timeout=timeout, prefix=prefix, mpi_comm=address)
    _check_meeting(lib.tutti_init(byref(options)), keep)
    _world, _started_by = Communicator(lib.tutti_world()), os.getpid()
    return _world


def connect(rank: int, size: int, unique_id: Optional[bytes] = None, store: Any = None,
            timeout: Optional[float] = None, prefix: str = "tutti") -> Communicator:
    """Make a communicator of ranks that need not be of one world, and need no init().

    rank, size  of this process among the members; only the members make this call
    unique_id   bytes from unique_id_create()
    store       instead of unique_id: an object with two methods. set(key, value) stores bytes under
                a string; get(key, timeout_ms) waits until the key exists and returns its bytes, or
                None after the timeout. Rank 0 sets one key, the others get it
    timeout     seconds, see init()
    prefix      of the store's keys; a different one for each communicator

    Free it with free().
    """
    options, keep = _options(unique_id=unique_id, store=store, rank=rank, size=size,
                             timeout=timeout, prefix=prefix)
    place = _lib.out_pointer()
    _check_meeting(lib.tutti_comm_connect(byref(options), byref(place)), keep)
    made = Communicator(place.value)  # type: ignore[arg-type]
    _connected[made.handle] = os.getpid(), made
    return made


def unique_id_create() -> bytes:
    """Make a unique id, by which ranks without a launcher meet. One process calls this, and hands
    the bytes to all ranks by its own means; keep them as secret as a password. This process must
    live until all ranks have met."""
    place = _lib.UniqueId()
    check(lib.tutti_unique_id_create(byref(place)))
    return bytes(place)


def finalize() -> None:
    """End the world and its groups. Does not wait for other ranks. Requests still pending end with
    ShutdownError. init() may be called again. Communicators of connect() remain valid."""
    global _world, _started_by
    check(lib.tutti_finalize())
    ended, _world, _started_by = _world, None, 0
    for function in on_end:
        function(ended)


def is_initialized() -> bool:
    """Whether there is a world: after init(), before finalize()."""
    return lib.tutti_world() is not None


def world() -> Communicator:
    """The communicator of all ranks; InvalidArgumentError before init()."""
    global _world
    handle = lib.tutti_world()
    if handle is None:
        raise InvalidArgumentError("the library has not been started: call tutti.init() first")
    if _world is None or _world.handle != handle:  # other code of this process has started it
        _world = Communicator(handle)
    return _world


def current(comm: Optional[Communicator]) -> Communicator:
    """The communicator of a call: the given one, or the world."""
    if comm is not None:
        return comm
    return _world if _world is not None else world()


def _at_exit() -> None:
    """At the end of the process, free the communicators of init() and connect(). If an exception
    ends the process, they are aborted first, with its text for the other ranks."""
    error = getattr(sys, "last_value", None)
    mine = [comm for process, comm in _connected.values() if process == os.getpid()]
    if _world is not None and _started_by == os.getpid() and lib.tutti_world() == _world.handle:
        mine.append(_world)
    for comm in mine:
        try:
            if (error is not None and comm.size > 1 and comm.error is None
                    and not hasattr(sys, "ps1")):
                comm.abort(_reason(error))
            comm.free()
        except TuttiError as failure:
            print("tutti: %s" % failure, file=sys.stderr)


atexit.register(_at_exit)
