# SPDX-License-Identifier: BSD-3-Clause
"""The Work and the calls of the Python backend; csrc/work.hpp and csrc/calls.hpp in Python."""

import ctypes
import threading
import time
import weakref
from datetime import timedelta
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from .. import _lib
from . import origin

Tensors = List[torch.Tensor]

MESSAGES = (_lib.CALL_KINDS["send"], _lib.CALL_KINDS["recv"])
HOUR_MS = 3600000

# The other buffer of a call: its address, its bytes, and the offsets of a call in place. If a
# tensor overlaps the other buffer, the library accepts it only at one of these offsets.
Other = Tuple[Optional[int], int, Tuple[int, ...]]

_ELEMENTS: Dict[torch.dtype, Tuple[int, int]] = {
    torch.uint8: (_lib.UINT8, 1), torch.int8: (_lib.INT8, 1), torch.int16: (_lib.INT16, 1),
    torch.int32: (_lib.INT32, 1), torch.int64: (_lib.INT64, 1),
    torch.float16: (_lib.FLOAT16, 1), torch.bfloat16: (_lib.BFLOAT16, 1),
    torch.float32: (_lib.FLOAT32, 1), torch.float64: (_lib.FLOAT64, 1),
    torch.bool: (_lib.BOOL, 1), torch.complex32: (_lib.FLOAT16, 2),
    torch.complex64: (_lib.FLOAT32, 2), torch.complex128: (_lib.FLOAT64, 2),
}
for _name, _number in (("uint16", _lib.UINT16), ("uint32", _lib.UINT32), ("uint64", _lib.UINT64),
                       ("float8_e4m3fn", _lib.FLOAT8_E4M3), ("float8_e5m2", _lib.FLOAT8_E5M2)):
    if hasattr(torch, _name):
        _ELEMENTS[getattr(torch, _name)] = (_number, 1)


def element_of(t: torch.Tensor) -> Tuple[int, int]:
    """The library's type, and how many elements of this type make one element of the tensor. If
    the library does not have the tensor's type, each element is passed as bytes."""
    return _ELEMENTS.get(t.dtype, (_lib.UINT8, t.element_size()))


def is_number(t: torch.Tensor) -> bool:
    """Whether the library can reduce the tensor's type."""
    return t.dtype in _ELEMENTS


def is_plain(t: torch.Tensor) -> bool:
    """Whether the memory of the tensor holds its elements in order."""
    return t.is_contiguous() and not t.is_conj() and not t.is_neg()


def copy_into(to: torch.Tensor, source: torch.Tensor) -> None:
    """Copy without autograd; the tensor may be a parameter, or an inference tensor of another
    thread."""
    with torch.inference_mode(to.is_inference()), torch.no_grad():
        to.copy_(source)


def bytes_of(tensors: Sequence[torch.Tensor]) -> int:
    """The bytes of the elements."""
    return sum(t.numel() * t.element_size() for t in tensors)


def accepts(address: int, count: int, other: Optional[Other]) -> bool:
    """Whether the library accepts `count` bytes at `address` in a call that also uses `other`."""
    if other is None or not other[0] or not other[1] or not count:
        return True
    distance = address - other[0]
    return not -count < distance < other[1] or distance in other[2]


def is_taken(t: torch.Tensor, other: Optional[Other]) -> bool:
    """Whether the library accepts the memory of `t` itself, in a call that also uses `other`. If
    not, the caller passes a copy."""
    return is_plain(t) and accepts(t.data_ptr(), bytes_of([t]), other)


def adjacent(tensors: Sequence[torch.Tensor]) -> Optional[int]:
    """The address of tensors that follow each other in memory; None if they do not."""
    first = following = 0
    for t in tensors:
        if not is_plain(t):
            return None
        if t.numel() == 0:
            continue
        if following and t.data_ptr() != following:
            return None
        first = first or t.data_ptr()
        following = t.data_ptr() + t.numel() * t.element_size()
    return first


class Calls:
    """One call of c10d as calls of the library: a list of calls, and the objects that they need."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.calls: List[_lib.Call] = []
        self.device: Optional[torch.device] = None
        self.source = -1
        self.name = ""  # of the collective or the first message: see origin.py
        self.refused: Optional[BaseException] = None  # the error of a call that was not submitted
        self._keep: List[Any] = []
        self._after: List[Callable[[], None]] = []

    def has_collective(self) -> bool:
        """False: there are only messages."""
        return any(call.kind not in MESSAGES for call in self.calls)

    def add(self, kind: str, dtype: int, **fields: Any) -> _lib.Call:
        """Append a call."""
        call = _lib.Call(kind=_lib.CALL_KINDS[kind], dtype=dtype, **fields)
        self.calls.append(call)
        return call

    def counts(self, values: Sequence[int]) -> int:
        """The address of an array of counts."""
        array = _lib.size_array(values)
        self._keep.append(array)
        return ctypes.addressof(array)

    def check(self, t: torch.Tensor) -> None:
        """Refuse a tensor that cannot be passed."""
        if t.layout != torch.strided:
            raise NotImplementedError("tutti: %s: tensors of layout %s are not supported; use a "
                                      "dense tensor" % (self.what, t.layout))
        if t.device.type not in ("cpu", "cuda"):
            raise NotImplementedError("tutti: %s: tensors on device %s are not supported"
                                      % (self.what, t.device))
        if self.device is not None and self.device != t.device:
            raise ValueError("tutti: %s: tensors are on different devices, %s and %s"
                             % (self.what, self.device, t.device))
        self.device = t.device

    def _address(self, t: torch.Tensor) -> Optional[int]:
        self._keep.append(t)
        return t.data_ptr() if t.numel() else None

    def absorb(self, other: "Calls") -> None:
        """Append the calls of `other`."""
        if self.device is not None and other.device not in (None, self.device):
            raise ValueError("tutti: %s: tensors are on different devices, %s and %s"
                             % (self.what, self.device, other.device))
        self.device = self.device or other.device
        self.calls += other.calls
        self._keep += other._keep
        self._after += other._after

    def in_(self, t: torch.Tensor, other: Optional[Other] = None) -> Optional[int]:
        """The address of a tensor that is read, while `other` is written."""
        self.check(t)
        return self._address(t if is_taken(t, other) else self._plain(t, True))

    def out(self, t: torch.Tensor, read: bool = False,
            other: Optional[Other] = None) -> Optional[int]:
        """The address of a tensor that is written, and perhaps read before, while `other` is
        read."""
        self.check(t)
        if is_taken(t, other):
            return self._address(t)
        plain = self._plain(t, read)
        self.then(lambda: copy_into(t, plain))
        return self._address(plain)

    @staticmethod
    def _plain(t: torch.Tensor, fill: bool) -> torch.Tensor:
        plain = torch.empty(t.shape, dtype=t.dtype, device=t.device)
        if fill:
            copy_into(plain, t)
        return plain

    def flat(self, tensors: Sequence[torch.Tensor], like: torch.Tensor, write: bool,
             other: Optional[Other] = None) -> Tuple[Optional[int], List[int]]:
        """A list of tensors as one buffer: its address, and the counts of the parts. If `write` is
        False, the call reads this buffer while it writes `other`."""
        per = element_of(like)[1]
        for t in tensors:
            self.check(t)
            if t.dtype != like.dtype:
                raise ValueError("tutti: %s: tensors of different types, %s and %s"
                                 % (self.what, t.dtype, like.dtype))
        counts = [t.numel() * per for t in tensors]
        address = adjacent(tensors)
        self._keep.append(list(tensors))
        if address is not None and accepts(address, bytes_of(tensors), other):
            return address or None, counts
        whole = torch.empty(sum(t.numel() for t in tensors), dtype=like.dtype, device=like.device)
        at = 0
        for t in tensors:
            part = whole[at:at + t.numel()].view(t.shape)
            at += t.numel()
            if write:
                self.then(partial(copy_into, t, part))
            else:
                copy_into(part, t)
        return self._address(whole), counts

    def then(self, work: Callable[[], None]) -> None:
        """Append a function that finish() will call."""
        self._after.append(work)

    def finish(self) -> None:
        """Called after the calls have succeeded: copy results to the caller's tensors."""
        for work in self._after:
            work()
        if self.device is not None and self.device.type == "cuda":
            # The allocator must not reuse the memory before this stream has reached this point.
            stream = torch.cuda.current_stream(self.device)
            for kept in self._keep:
                for t in kept if isinstance(kept, list) else [kept]:
                    if isinstance(t, torch.Tensor):
                        t.record_stream(stream)

    def clear(self) -> None:
        """Drop all references to tensors."""
        self.calls, self._keep, self._after = [], [], []


def milliseconds(timeout: Any) -> int:
    """A timedelta or seconds in milliseconds; -1 for None and for no limit."""
    if timeout is None:
        return -1
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
    return min(int(seconds * 1000), 2**31 - 1) if seconds > 0 else -1


class PythonWork(dist.Work):
    """The requests of a call. One thread at a time takes them, by tutti_wait."""

    def __init__(self, group: Any, calls: Calls, requests: Any, outputs: Tensors) -> None:
        super().__init__()
        self._group = weakref.ref(group)
        self._label = group.label
        self._calls = calls
        self._has_collective = calls.has_collective()
        self._requests = requests
        self._outputs = outputs
        self._taking = threading.RLock()  # held by the thread that waits for the requests
        self._error: Optional[BaseException] = calls.refused
        self._event: Any = None  # device tensors: the point in the taker's stream behind the calls
        self._asked = False  # wait() or get_future() was called
        # Protects the fields below. No thread waits while it holds this lock.
        self._state = threading.RLock()
        self._done = False
        self._future: Any = None
        self._given: Any = None  # the future that the program gets: always the same one

    # ---- methods that torch calls ----

    def wait(self, timeout: Any = None) -> bool:  # type: ignore[override]
        """Wait, and raise the error with which the call has ended."""
        limit, group = milliseconds(timeout), self._group()
        # A message has no deadline of its own. If the future's thread waits in the library, this
        # wait needs a limit.
        if limit < 0 and not self._has_collective and group is not None and (
                self._given is not None or group.has_new_timeout):
            limit = group.timeout_ms
        was_done, self._asked = self._done, True
        if was_done:
            self._release()
        if not self._take(limit):
            raise dist.DistBackendError("%s: not done after %d ms (Timed out); the call continues"
                                        % (self._label, limit))
        if self._error is not None:
            raise self._error
        self._order()
        return True

    def _is_on_device(self) -> bool:
        device = self._calls.device
        return device is not None and device.type == "cuda"

    def is_completed(self) -> bool:
        """Whether the call has ended. Never waits."""
        return self._done or self._take(0)

    def is_success(self) -> bool:
        """Whether the call has ended without an error."""
        return self._done and self._error is None

    def exception(self) -> Any:
        """The error with which the call has ended."""
        return self._error

    def synchronize(self) -> None:
        """As wait()."""
        self.wait()

    def result(self) -> Tensors:
        """The tensors of the result."""
        return self._outputs

    def source_rank(self) -> int:
        """The rank that has sent the message."""
        return self._calls.source

    _source_rank = source_rank

    def get_future(self) -> Any:
        """A future of the result. A separate thread completes it, because callbacks may wait."""
        self._asked = True
        with self._state:
            if self._given is not None:
                return self._given
            devices = [self._calls.device] if self._is_on_device() else None
            future = torch.futures.Future(devices=devices)
            self._given = origin.follow(future, "%s %s" % (self._label, self._calls.name),
                                        origin.swap, devices)
            self._future, done = future, self._done
        if done:
            self._release()
            self._order()
            self._settle()
        else:
            threading.Thread(target=self._take_later, daemon=True).start()
        return self._given

    def _take_later(self) -> None:
        """Take the requests of a future. The library's deadline counts in a wait without a limit.
        It must not count for messages, because the peer may send at any time. So for messages each
        wait has a limit, and is repeated."""
        while not self._take(-1 if self._has_collective else HOUR_MS):
            pass

    # ---- the end ----

    def _order(self) -> None:
        """Order this thread's stream behind the calls. Another stream may have taken them."""
        if self._event is not None:
            torch.cuda.current_stream(self._calls.device).wait_event(self._event)

    def _settle(self) -> None:
        if self._error is None:
            self._future.set_result(self._outputs)
        elif self._is_on_device():
            self._future.set_exception(self._error)
        else:
            origin.set_error(self._future, self._error)

    def _take(self, limit: int) -> bool:
        """Take the requests; False if they have not ended within `limit` milliseconds."""
        if not self._taking.acquire(timeout=-1 if limit < 0 else limit / 1000):
            return False
        try:
            if self._done:
                return True
            if not self._take_requests(limit):
                return False
            if self._error is None:
                try:
                    self._calls.finish()
                    if self._is_on_device():
                        self._event = torch.cuda.current_stream(self._calls.device).record_event()
                except Exception as error:  # a result cannot be copied to the caller's tensor
                    self._error = error
            self._calls.clear()
            with self._state:
                self._done = True
                future = self._future
        finally:
            self._taking.release()
        if future is not None:
            self._settle()
        group = self._group()
        if group is not None:
            group.forget(self, self._asked)
        return True

    def _release(self) -> None:
        group = self._group()
        if group is not None:
            group.release(self)

    def _take_requests(self, limit: int) -> bool:
        """Wait for all requests, and keep the first error."""
        end = time.monotonic() + limit / 1000
        for i, request in enumerate(self._requests):
            if request is None:
                continue
            left = limit if limit < 0 else max(0, int((end - time.monotonic()) * 1000))
            status = wait_for(request, left, self._calls.device)
            if status == _lib.TIMEOUT and limit >= 0:
                return False
            self._requests[i] = None
            if status and self._error is None:
                self._error = error_of(status, self._label)
        return True


def wait_for(request: int, limit: int, device: Optional[torch.device]) -> int:
    """tutti_wait. For device tensors tutti_cuda_wait, which orders the current stream behind the
    request."""
    if device is not None and device.type == "cuda":
        stream = torch.cuda.current_stream(device).cuda_stream
        return _lib.lib.tutti_cuda_wait(request, limit, stream)
    return _lib.lib.tutti_wait(request, limit)


def error_of(status: int, label: str, text: Optional[str] = None) -> BaseException:
    """The exception of a status, with the text of this thread's last error."""
    if text is None:
        text = "%s: %s" % (label, _lib.error_of(status))
    if status == _lib.INVALID_ARGUMENT:
        return ValueError(text)
    if status == _lib.UNSUPPORTED:
        return NotImplementedError(text)
    return dist.DistBackendError(text)


class PromiseWork(dist.Work):
    """A Work that other code completes: messages to oneself, receives from any source."""

    def __init__(self, outputs: Tensors, timeout_ms: int) -> None:
        super().__init__()
        self._outputs, self._timeout_ms = outputs, timeout_ms
        self._event = threading.Event()
        self._error: Optional[BaseException] = None
        self._source = -1
        self._future: Any = None
        self._lock = threading.Lock()

    def complete(self, error: Optional[BaseException] = None, source: int = -1) -> None:
        """End the Work, with an error or with success."""
        with self._lock:
            self._error, self._source = error, source
            self._event.set()
            future = self._future
        if future is not None:
            self._settle()

    def _settle(self) -> None:
        if self._error is not None:
            origin.set_error(self._future, self._error)
        else:
            self._future.set_result(self._outputs)

    def wait(self, timeout: Any = None) -> bool:  # type: ignore[override]
        """Wait, and raise the error with which the call has ended."""
        limit = milliseconds(timeout)
        limit = self._timeout_ms if limit < 0 else limit
        if not self._event.wait(limit / 1000 if limit > 0 else None):
            raise dist.DistBackendError("tutti: no matching message within %d ms (Timed out)"
                                        % limit)
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        """Whether the call has ended."""
        return self._event.is_set()

    def is_success(self) -> bool:
        """Whether the call has ended without an error."""
        return self._event.is_set() and self._error is None

    def exception(self) -> Any:
        """The error with which the call has ended."""
        return self._error

    def synchronize(self) -> None:
        """As wait()."""
        self.wait()

    def result(self) -> Tensors:
        """The tensors of the result."""
        return self._outputs

    def source_rank(self) -> int:
        """The rank that has sent the message."""
        return self._source

    _source_rank = source_rank

    def get_future(self) -> Any:
        """A future of the result."""
        with self._lock:
            ended = self._future is None and self._event.is_set()
            if self._future is None:
                self._future = torch.futures.Future()
        if ended:
            self._settle()
        return self._future
