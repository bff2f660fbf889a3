# SPDX-License-Identifier: BSD-3-Clause
"""Starts asynchronous calls: one, several as a group, or one again and again. Also makes calls in
the order of CUDA streams."""

from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import _calls, _lib
from ._buffers import check_in_place
from ._calls import Prepared
from ._lib import byref, check, lib
from ._requests import Request, free_dropped, stream_pointer
from ._world import Communicator, current, option_ms


class Call:
    """A call to be made by submit(), persistent() or cuda_run().

    kind                 the name of the collective: "allreduce", "broadcast", ...
    name                 the name of the call, as in the asynchronous function of that kind
    priority             0 to 255: calls of a high priority overtake others that wait
    *args, **kwargs      the parameters of the direct function of that kind, except comm

        tutti.Call("allreduce", "weights", grad, op="avg", out=grad)
        tutti.Call("broadcast", "seed", seed, root=0)
    """

    def __init__(self, kind: str, name: Optional[str] = None, *args: Any,
                 prescale: float = 1.0, postscale: float = 1.0, timeout: Optional[float] = None,
                 wire: Optional[str] = None, priority: int = 0, **kwargs: Any) -> None:
        if kind not in _lib.CALL_KINDS:
            raise ValueError("Call: kind is %r; it must be one of %s"
                             % (kind, ", ".join(_lib.CALL_KINDS)))
        self.kind = kind
        self.name = name
        self._arguments = (args, kwargs)
        self._options = options(prescale, postscale, timeout, wire, priority)

    def prepare(self, comm: Communicator) -> Tuple[Prepared, _lib.Call]:
        """For the package's own use: check the arguments."""
        args, kwargs = self._arguments
        made = getattr(_calls, self.kind)(comm, *args, **kwargs)
        pointer = None if self._options is None else _lib.pointer(self._options)
        return made, made.structure(name=_encoded(self.name), options=pointer)

    def check_in_place(self) -> None:
        """For the package's own use: check that no array is copied. An array that the call writes
        to is never copied."""
        args, kwargs = self._arguments
        array = args[0] if args else kwargs.get("array")
        if array is not None:
            check_in_place(self.kind, array)


_WIRES: Dict[Optional[str], int] = {
    None: 0, "float32": _lib.FLOAT32, "bfloat16": _lib.BFLOAT16, "float16": _lib.FLOAT16,
    "float8_e4m3": _lib.FLOAT8_E4M3,
}


def options(prescale: float, postscale: float, timeout: Optional[float],
            wire: Optional[str] = None, priority: int = 0) -> Optional[_lib.AsyncOptions]:
    """The library's options, or None if all are defaults."""
    if prescale == 1.0 and postscale == 1.0 and timeout is None and wire is None and \
            priority == 0:
        return None
    if wire not in _WIRES:
        raise ValueError("wire is %r; it must be one of %s"
                         % (wire, ", ".join(name for name in _WIRES if name is not None)))
    return _lib.AsyncOptions(prescale=_calls.factor("prescale", prescale),
                             postscale=_calls.factor("postscale", postscale),
                             timeout_ms=option_ms(timeout), wire=_WIRES[wire],
                             priority=_lib.int_of("priority", priority))


def _encoded(name: Optional[str]) -> Optional[bytes]:
    if name is None:
        return None
    if not isinstance(name, str):
        raise TypeError("name is of type %s; it must be a string, or None" % type(name).__name__)
    if "\0" in name:  # the library would take the part before it
        raise ValueError("name is %r; it must not contain a zero character" % name)
    return name.encode()


def start(name: Optional[str], made: Prepared, comm: Communicator,
          given: Optional[_lib.AsyncOptions] = None) -> Request:
    """Start the asynchronous form of a call."""
    free_dropped()
    place = _lib.out_pointer()
    request = Request(made, place, comm, name)
    function = getattr(lib, "tutti_%s_async" % made.kind)
    check(function(_encoded(name), *made.args, comm.handle,
                   None if given is None else byref(given), byref(place)))
    return request


def submit(calls: Sequence[Call], comm: Optional[Communicator] = None,
           stream: Any = None) -> List[Request]:
    """Start several calls as one group, all or nothing.

    calls   Call objects: the same names on all ranks, in the same order
    comm    the communicator; None: the world
    stream  a CUDA stream: the calls read their data after the work that is in it now

    If one call has an error, none is started. The calls are fused with each other as far as
    possible. Returns one Request for each call.
    """
    comm = current(comm)
    free_dropped()
    pairs = [call.prepare(comm) for call in calls]
    structures = _lib.array_of(_lib.Call, [structure for _, structure in pairs])
    places = _lib.array_of(_lib.c_void_p, [None] * len(pairs))
    requests = [Request(made, _lib.pointer_in(places, i), comm, call.name)
                for i, (call, (made, _)) in enumerate(zip(calls, pairs))]
    if stream is None:
        check(lib.tutti_submit(structures, len(pairs), comm.handle, places))
    else:
        check(lib.tutti_cuda_submit(structures, len(pairs), comm.handle, stream_pointer(stream),
                                    places))
    return requests


def cuda_run(call: Call, stream: Any, comm: Optional[Communicator] = None) -> Any:
    """Make a direct call on device memory, in the order of a CUDA stream.

    call    a Call without a name
    stream  of this rank's device: an int, or a stream of torch or CuPy
    comm    the communicator; None: the world

    Later work in the stream sees the result. The arrays must live until then.
    """
    comm = current(comm)
    made, structure = call.prepare(comm)
    check(lib.tutti_cuda_run(byref(structure), comm.handle, stream_pointer(stream)))
    made.raise_error()
    return made.result


def cuda_device(comm: Optional[Communicator] = None) -> Optional[int]:
    """The number of this rank's CUDA device, or None if it has none.

    comm  the communicator; None: the world
    """
    number = int(lib.tutti_cuda_device(current(comm).handle))
    return None if number < 0 else number


# ---- repeated calls ----

class PersistentRequest(Request):
    """A call that is made many times; see persistent(). start() begins it each time, and wait()
    ends it. As a context manager it is freed at the end of the block."""

    _keeps_handle = True
    _active = False

    def start(self) -> "PersistentRequest":
        """Begin the call. The arrays are those of persistent(), with the data of this moment."""
        with self._lock:
            if not self._active or self._has_ended():
                self._made.begin()
            self._answer.clear()
            # Set before the call: a signal handler may raise an exception when the call returns.
            before, self._active = self._active, True
            status = lib.tutti_start(self._handle)
            if status:
                self._active = before
            check(status)
            self._error = None
        return self

    def test(self) -> bool:
        """Whether the call that was started is done; True before the first start."""
        return not self._active or super().test()

    def _wait(self, wait_ms: int, end: Optional[float], stream: Any) -> None:
        if self._active:
            super()._wait(wait_ms, end, stream)
        elif self._error is None:
            raise _lib.InvalidArgumentError("request %r has not been started" % self.name)

    def _end(self, error: Optional[BaseException]) -> None:
        self._error = error
        self._raise_of_op()
        self._active = False
        self._answer.clear()

    def free(self) -> None:
        """Free the request. Wait for the request before this call. A second call does nothing."""
        with self._lock:
            if self._handle is not None:
                check(lib.tutti_request_free(self._handle))
                self._place.value = None

    def __enter__(self) -> "PersistentRequest":
        return self

    def __exit__(self, *_error: Any) -> None:
        try:
            if self._active:
                self.wait()
        finally:
            self.free()

    def __del__(self) -> None:
        if self._active:
            super().__del__()
        elif self._handle is not None:
            lib.tutti_request_free(self._handle)


def persistent(call: Call, comm: Optional[Communicator] = None) -> PersistentRequest:
    """Prepare a call that will be made many times. Nothing is started yet.

    call  its arrays are used by each start(), in place: ValueError for an input that has to be
          copied, such as a list, or an array that is not contiguous
    comm  the communicator; None: the world

        step = tutti.persistent(tutti.Call("allreduce", "grad", grad, out=grad))
        for ...:
            step.start()
            step.wait()
        step.free()
    """
    comm = current(comm)
    made, structure = call.prepare(comm)
    if made.receive is not None:
        raise ValueError("persistent: the call needs the counts to receive")
    call.check_in_place()
    place = _lib.out_pointer()
    request = PersistentRequest(made, place, comm, call.name)
    check(lib.tutti_persistent_create(byref(structure), comm.handle, byref(place)))
    return request


def join(comm: Optional[Communicator] = None) -> int:
    """Contribute zeros to all further requests until all ranks have joined; for a rank that has no
    more data.

    comm  the communicator; None: the world

    Collective. This rank must have no pending request. Returns the rank that joined last.
    """
    last = _lib.c_int(0)
    check(lib.tutti_join(current(comm).handle, byref(last)))
    return int(last.value)
