# SPDX-License-Identifier: BSD-3-Clause
"""The C interface of libtutti by ctypes; no other module of this package calls the library.

What to use from here:

    lib.tutti_allreduce(...)    any function of include/tutti/*.h, by its C name. ctypes releases
                                the GIL during the call. The library is loaded at the first use,
                                so importing this module needs no library
    check(status)               raises the exception of a status that is not OK
    has("tutti_comm_connect")   whether the loaded library has a function. `lib.name` raises
                                UnsupportedError for a function that a newer library has
    Options, AsyncOptions, Call, ...
                                the structures; the constructors set `size`

Communicators and requests are numbers (`int`), as ctypes returns pointers. Pointer parameters take
an int, None, a ctypes array, or byref() of a structure.
"""

import builtins
import ctypes
import operator
import os
import subprocess
from ctypes import POINTER, c_char_p, c_double, c_uint, c_uint32, c_uint64
from ctypes import byref as byref, c_int as c_int, c_size_t as c_size_t  # for other modules
from ctypes import addressof as addressof, c_void_p as c_void_p, pointer as pointer
from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple, Type

SONAME = "libtutti.so.0"
VARIABLE = "TUTTI_LIBRARY"
API_VERSION = 0x000100  # of the headers that the structures below were written from

# Statuses, element types, operations: include/tutti/types.h.
OK, INVALID_ARGUMENT, MISMATCH, PEER_LOST, TIMEOUT, SHUTDOWN, UNSUPPORTED = range(7)
NO_MEMORY, SYSTEM, TRANSPORT, ABI, INTERNAL = range(7, 12)

INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64 = range(1, 9)
FLOAT16, BFLOAT16, FLOAT32, FLOAT64, FLOAT8_E4M3, FLOAT8_E5M2, BOOL = range(9, 16)
FLOAT32_INT32, FLOAT64_INT64, INT32_INT32, INT64_INT64 = range(16, 20)

SUM, AVG, MIN, MAX, PROD, BAND, BOR, BXOR, LAND, LOR, LXOR, MINLOC, MAXLOC = range(1, 14)

COLOR_NONE = -1

# The kinds of a Call (async.h), by the name of the function.
CALL_KINDS: Dict[str, int] = {
    "allreduce": 1, "reduce": 2, "broadcast": 3, "reduce_scatter": 4, "reduce_scatterv": 5,
    "allgather": 6, "allgatherv": 7, "gather": 8, "gatherv": 9, "scatter": 10, "scatterv": 11,
    "alltoall": 12, "alltoallv": 13, "scan": 14, "exscan": 15, "barrier": 16, "send": 17,
    "recv": 18, "sendrecv": 19,
}


# ---- errors ----

class TuttiError(RuntimeError):
    """A call of the library has failed. The text is the library's own: which rank, which tensor,
    why. `status` is the number of include/tutti/types.h."""

    status: int = INTERNAL


class InvalidArgumentError(TuttiError, ValueError):
    """An argument or a setting is invalid, or the call is not allowed here; nothing was done."""

    status = INVALID_ARGUMENT


class MismatchError(TuttiError):
    """The ranks made different calls. No buffer was written, and the communicator stays usable."""

    status = MISMATCH


class PeerLostError(TuttiError):
    """A rank died, or called abort. The communicator is dead."""

    status = PEER_LOST


class TimeoutError(TuttiError, builtins.TimeoutError):  # `except` with either name catches it
    """A deadline passed. If it was the timeout of a wait, the request continues."""

    status = TIMEOUT


class ShutdownError(TuttiError):
    """This rank or a peer has ended the library or the communicator while the call was pending."""

    status = SHUTDOWN


class UnsupportedError(TuttiError, NotImplementedError):
    """The call is valid, but this library, machine or setting cannot make it."""

    status = UNSUPPORTED


class NoMemoryError(TuttiError, MemoryError):
    """Memory, shared memory or its limit is exhausted."""

    status = NO_MEMORY


class SystemCallError(TuttiError):
    """A system call, or a function of the caller's store, has failed."""

    status = SYSTEM


class TransportError(TuttiError):
    """MPI or the network has failed."""

    status = TRANSPORT


class ABIError(TuttiError):
    """The versions of this package and of the library, or of two ranks, are incompatible."""

    status = ABI


class InternalError(TuttiError):
    """A bug in Tutti."""

    status = INTERNAL


class LibraryError(UnsupportedError, ImportError):
    """libtutti cannot be loaded. The text lists the places that were tried."""


_ERRORS: Dict[int, Type[TuttiError]] = {
    error.status: error
    for error in (InvalidArgumentError, MismatchError, PeerLostError, TimeoutError, ShutdownError,
                  UnsupportedError, NoMemoryError, SystemCallError, TransportError, ABIError,
                  InternalError)
}


def error_of(status: int, text: Optional[str] = None) -> TuttiError:
    """The exception of a status, with the text of this thread's last error unless one is given."""
    if text is None:
        text = (lib.tutti_last_error() or b"").decode("utf-8", "replace")
    if not text:
        text = lib.tutti_strerror(status).decode()
    error = _ERRORS.get(status, TuttiError)(text)
    error.status = status
    return error


def check(status: int) -> None:
    """Raise the exception of a status that is not OK. Call it on the thread of the failed call."""
    if status:
        raise error_of(status)


# ---- structures ----

STORE_SET = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t)
STORE_GET = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t, POINTER(c_size_t),
                             c_int)
CALLBACK = ctypes.CFUNCTYPE(None, c_void_p, c_int)
LOG_CALLBACK = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)
OP_FUNCTION = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_void_p)


class _Sized(ctypes.Structure):
    """A structure whose first field is its size. Fields that are not given are 0."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(size=ctypes.sizeof(self), **fields)


class UniqueId(ctypes.Structure):
    """tutti_unique_id_t: `bytes(id)` and `UniqueId.from_buffer_copy(data)` convert it."""

    _fields_ = [("data", ctypes.c_char * 128)]


class Store(_Sized):
    """tutti_store_t; see make_store()."""

    _fields_ = [("size", c_size_t), ("context", c_void_p), ("prefix", c_char_p),
                ("set", STORE_SET), ("get", STORE_GET)]


class Options(_Sized):
    """tutti_options_t. A library without tutti_comm_connect refuses a timeout_ms that is not 0."""

    _fields_ = [("size", c_size_t), ("api_version", c_uint32), ("reserved", c_uint32),
                ("mpi_comm", c_void_p), ("unique_id", POINTER(UniqueId)),
                ("store", POINTER(Store)), ("rank", c_int), ("nranks", c_int),
                ("timeout_ms", c_int), ("reserved_end", c_int)]

    def __init__(self, **fields: Any) -> None:
        super().__init__(api_version=API_VERSION, **fields)


class CallbackInfo(ctypes.Structure):
    """tutti_callback_info_t."""

    _fields_ = [("size", c_size_t), ("request", c_void_p), ("name", c_char_p), ("arg", c_void_p)]


class AsyncOptions(_Sized):
    """tutti_async_options_t. A library without tutti_comm_connect ignores timeout_ms."""

    _fields_ = [("size", c_size_t), ("callback", CALLBACK), ("callback_arg", c_void_p),
                ("prescale", c_double), ("postscale", c_double), ("callback_info", c_int),
                ("timeout_ms", c_int), ("wire", c_int), ("priority", c_int)]


class StatsCount(ctypes.Structure):
    """tutti_stats_count_t."""

    _fields_ = [("operations", c_uint64), ("bytes", c_uint64)]


class StatsHistogram(ctypes.Structure):
    """tutti_stats_histogram_t."""

    _fields_ = [("count", c_uint64), ("sum", c_uint64), ("buckets", c_uint64 * 48)]


class Stats(_Sized):
    """tutti_stats_t."""

    _fields_ = [("size", c_size_t), ("age_ns", c_uint64), ("times", c_uint64),
                ("nparts", c_uint64), ("requests", c_uint64), ("failed", c_uint64),
                ("ordered", c_uint64), ("buckets", c_uint64), ("bucket_tensors", c_uint64),
                ("bucket_bytes", c_uint64), ("announcements_sent", c_uint64),
                ("bucket_messages_sent", c_uint64), ("other_messages_sent", c_uint64),
                ("plan_steps", c_uint64), ("plan_hits", c_uint64), ("plan_breaks", c_uint64),
                ("exposed_ns", c_uint64), ("in_flight_ns", c_uint64), ("hidden_ns", c_uint64),
                ("direct", StatsCount * 32), ("async", StatsCount * 32),
                ("direct_ns", StatsHistogram), ("async_ns", StatsHistogram),
                ("direct_bytes", StatsHistogram), ("async_bytes", StatsHistogram),
                ("plan_in_place", c_uint64)]


class StatsPart(_Sized):
    """tutti_stats_part_t."""

    _fields_ = [("size", c_size_t), ("call", c_int), ("is_async", c_int),
                ("operations", c_uint64), ("bytes", c_uint64), ("ns", c_uint64),
                ("algorithm", ctypes.c_char * 40), ("transport", ctypes.c_char * 16)]


class Call(_Sized):
    """tutti_call_t."""

    _fields_ = [("size", c_size_t), ("kind", c_int), ("dtype", c_int), ("op", c_int),
                ("root", c_int), ("source", c_int), ("name", c_char_p), ("sendbuf", c_void_p),
                ("recvbuf", c_void_p), ("count", c_size_t), ("recvcount", c_size_t),
                ("sendcounts", c_void_p), ("senddispls", c_void_p), ("recvcounts", c_void_p),
                ("recvdispls", c_void_p), ("options", POINTER(AsyncOptions))]


def make_store(prefix: str, set_value: Callable[[str, bytes], None],
               get_value: Callable[[str, int], Optional[bytes]]) -> Store:
    """A Store of two functions, for Options(store=pointer(...)).

    set_value(key, value)       stores the value in one atomic step
    get_value(key, timeout_ms)  waits until the key exists and returns its value; None after the
                                timeout

    An exception of a function makes the call of the library fail. It is kept in the attribute
    `error` of the store until the next call of a function, for `raise ... from store.error`.
    """
    def on_set(_context: Any, key: bytes, value: int, count: int) -> int:
        store.error = None
        try:
            set_value(key.decode(), ctypes.string_at(value, count))
            return 0
        except BaseException as error:
            store.error = error
            return 1

    def on_get(_context: Any, key: bytes, value: int, room: int, ret_bytes: Any,
               timeout_ms: int) -> int:
        store.error = None
        try:
            data = get_value(key.decode(), timeout_ms)
            if data is None or len(data) > room:
                return 2 if data is None else 3
            ctypes.memmove(value, data, len(data))
            ret_bytes[0] = len(data)
            return 0
        except BaseException as error:
            store.error = error
            return 1

    store = Store(prefix=prefix.encode(), set=STORE_SET(on_set), get=STORE_GET(on_get))
    store.error = None
    return store


# ---- prototypes ----

_CODES = {"p": c_void_p, "z": c_size_t, "i": c_int, "d": c_double, "s": c_char_p}
_RESULTS = dict(_CODES, u=c_uint, v=None)

# The arguments of each collective between the name and the communicator. p: a pointer, z: size_t,
# i: int, d: double, s: a string.
CALL_ARGUMENTS: Dict[str, str] = {
    "allreduce": "ppzii", "reduce": "ppziii", "broadcast": "pzii", "reduce_scatter": "ppzii",
    "reduce_scatterv": "pppii", "allgather": "ppzi", "allgatherv": "pzpppi", "gather": "ppzii",
    "gatherv": "pzpppii", "scatter": "ppzii", "scatterv": "ppppzii", "alltoall": "ppzi",
    "alltoallv": "ppppppi", "scan": "ppzii", "exscan": "ppzii", "barrier": "", "send": "pzii",
    "recv": "pzii", "sendrecv": "pzipzii",
}

# By the function's name: its result and its arguments. A status is an i; u is an unsigned int.
_PROTOTYPES: Dict[str, Tuple[str, str]] = {
    "tutti_version": ("u", ""), "tutti_strerror": ("s", "i"), "tutti_last_error": ("s", ""),
    "tutti_dtype_bytes": ("z", "i"), "tutti_dtype_name": ("s", "i"), "tutti_op_name": ("s", "i"),
    "tutti_op_create": ("i", "ppip"), "tutti_op_free": ("i", "i"),
    "tutti_init": ("i", "p"), "tutti_finalize": ("i", ""), "tutti_world": ("p", ""),
    "tutti_comm_connect": ("i", "pp"), "tutti_unique_id_create": ("i", "p"),
    "tutti_abort": ("i", "ps"), "tutti_comm_split": ("i", "piip"),
    "tutti_comm_create": ("i", "ppip"), "tutti_comm_free": ("i", "p"),
    "tutti_comm_get_stats": ("i", "pp"), "tutti_comm_get_stats_part": ("i", "pzp"),
    "tutti_comm_state": ("i", "pppz"), "tutti_rank": ("i", "p"), "tutti_size": ("i", "p"),
    "tutti_local_rank": ("i", "p"), "tutti_local_size": ("i", "p"),
    "tutti_host_rank": ("i", "p"), "tutti_host_count": ("i", "p"),
    "tutti_mem_alloc": ("i", "pzp"), "tutti_mem_free": ("i", "pp"),
    "tutti_mem_alloc_local": ("i", "pzp"), "tutti_mem_free_local": ("i", "p"),
    "tutti_mem_register": ("i", "ppz"), "tutti_mem_unregister": ("i", "p"),
    "tutti_log_set_callback": ("i", "pp"), "tutti_dump": ("i", "s"),
    "tutti_trace_start": ("i", "s"), "tutti_trace_stop": ("i", ""),
    "tutti_allreduce_scaled": ("i", "ppziiddp"),
    "tutti_submit": ("i", "pzpp"), "tutti_persistent_create": ("i", "ppp"),
    "tutti_start": ("i", "p"), "tutti_start_all": ("i", "pz"), "tutti_request_free": ("i", "p"),
    "tutti_request_set_buffers": ("i", "ppp"),
    "tutti_test": ("i", "pp"),
    "tutti_wait": ("i", "pi"), "tutti_wait_all": ("i", "pzi"), "tutti_wait_any": ("i", "pzip"),
    "tutti_request_recvcounts": ("i", "pip"), "tutti_request_receive": ("i", "ppp"),
    "tutti_join": ("i", "pp"),
    "tutti_cuda_device": ("i", "p"), "tutti_cuda_run": ("i", "ppp"),
    "tutti_cuda_allreduce": ("i", "ppziipp"), "tutti_cuda_submit": ("i", "pzppp"),
    "tutti_cuda_wait": ("i", "pip"),
}
for _name, _arguments in CALL_ARGUMENTS.items():
    _PROTOTYPES["tutti_" + _name] = ("i", _arguments + "p")
    _PROTOTYPES["tutti_%s_async" % _name] = ("i", "s" + _arguments + "ppp")


# ---- loading ----

def _pkg_config_library() -> str:
    """The path of the library by `pkg-config tutti`; OSError with the reason if there is none."""
    try:
        done = subprocess.run(["pkg-config", "--variable=libdir", "tutti"], timeout=30,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except (OSError, subprocess.SubprocessError) as error:
        raise OSError("pkg-config cannot be run: %s" % error) from None
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise OSError(lines[0] if lines else "pkg-config found no package")
    return os.path.join(done.stdout.decode().strip(), SONAME)


def _load() -> Tuple[ctypes.CDLL, str]:
    """Load the library. Returns it, and where it was found."""
    given = os.environ.get(VARIABLE)
    if given:
        places: List[Tuple[str, Callable[[], str]]] = [(VARIABLE, lambda: given)]
    else:
        beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", SONAME)
        places = [("in this package", lambda: beside), ("by the dynamic linker", lambda: SONAME),
                  ("by pkg-config tutti", _pkg_config_library)]
    tried = []
    for where, path_of in places:
        try:
            path = path_of()
            return ctypes.CDLL(path), path
        except OSError as error:  # the linker's message names the file
            tried.append("%s: %s" % (where, error))
    advice = "correct %s" % VARIABLE if given else (
        "install Tutti (see docs/installing.md), or name the file in %s" % VARIABLE)
    raise LibraryError("%s was not found; tried\n  %s\n%s"
                       % (SONAME, "\n  ".join(tried), advice))


class _Library:
    """The functions of the library as attributes. The first use of each sets its prototype."""

    _cdll: Optional[ctypes.CDLL] = None
    path: str = ""  # of the library, "" before it is loaded

    def load(self) -> ctypes.CDLL:
        """Load the library unless it is loaded; LibraryError lists the places that were tried."""
        if self._cdll is None:
            self._cdll, self.path = _load()
        return self._cdll

    def __getattr__(self, name: str) -> Any:
        if name not in _PROTOTYPES:
            raise AttributeError("libtutti has no function %s that this package knows" % name)
        result, arguments = _PROTOTYPES[name]
        try:
            function = getattr(self.load(), name)
        except AttributeError:
            missing(name)
        function.restype = _RESULTS[result]
        function.argtypes = [_CODES[code] for code in arguments]
        setattr(self, name, function)
        return function


lib = _Library()


def missing(what: str) -> NoReturn:
    """Raise the error for a feature that only a newer library has."""
    version = lib.tutti_version()
    raise UnsupportedError("the library (%s, version %d.%d.%d) has no %s: install a newer one"
                           % (lib.path, version >> 16, version >> 8 & 255, version & 255, what))


def has(name: str) -> bool:
    """Whether the loaded library has the function `name`."""
    return hasattr(lib.load(), name)


def needs_timeouts() -> None:
    """Raise UnsupportedError if the library is too old for `timeout_ms` in options. `timeout_ms`
    and tutti_comm_connect are in the same versions."""
    if not has("tutti_comm_connect"):
        missing("timeouts in options")


# ---- small conversions, so that other modules need no ctypes ----

def size_array(values: Any) -> "ctypes.Array[c_size_t]":
    """A C array of size_t."""
    return (c_size_t * len(values))(*values)


def int_of(what: str, value: Any) -> int:
    """A number for a C int. ctypes cuts larger numbers to their low 32 bits."""
    number = operator.index(value)
    if not -2**31 <= number < 2**31:
        raise ValueError("%s is %d; it must fit into 32 bits" % (what, number))
    return number


def int_array(values: Any) -> "ctypes.Array[c_int]":
    """A C array of int."""
    return (c_int * len(values))(*values)


def text_buffer(count: int) -> "ctypes.Array[ctypes.c_char]":
    """A buffer for a text of the library; .value is the text."""
    return ctypes.create_string_buffer(count)


# The first byte of a writable buffer, for addressof().
from_buffer: Callable[[Any], ctypes.c_char] = ctypes.c_char.from_buffer


def memory_at(address: int, count: int) -> memoryview:
    """`count` bytes of memory at an address. The view neither owns the memory nor keeps it."""
    return memoryview((ctypes.c_char * count).from_address(address)).cast("B")


def array_of(kind: Any, values: Any) -> Any:
    """A C array of structures or pointers, with these values."""
    return (kind * len(values))(*values)


def out_pointer() -> c_void_p:
    """A place for a pointer that the library returns: pass byref(place), then read .value."""
    return c_void_p()


def pointer_in(places: Any, index: int) -> c_void_p:
    """Entry `index` of a C array of pointers, as a place that shares the array's memory."""
    return c_void_p.from_buffer(places, index * ctypes.sizeof(c_void_p))
