# SPDX-License-Identifier: BSD-3-Clause
"""Handles: an asynchronous call returns a handle, and poll() and synchronize() take it.

A handle is a number. `_pending` maps it to one of

    (request, result, kept)   the plain case: a request of the library; the result that
                              synchronize() returns; the tensors that must live until then
    a Pending                 a call whose end is more than a wait: see below

The plain case is a tuple, because every gradient's call makes one.
"""

from ctypes import byref, c_int
from itertools import count
from typing import Any, Callable, Dict, Optional

import torch

from ... import _lib
from ..._lib import lib
from ..common.exceptions import HorovodInternalError, failed

_pending: Dict[int, Any] = {}
_next_handle = count(1).__next__

# The library's functions, bound by bind() so that a call looks up one global name.
_wait: Callable[..., int]
_test: Callable[..., int]


def bind() -> None:
    """Look the library's functions up once, so that a call needs no attribute search."""
    global _wait, _test
    _wait, _test = lib.tutti_wait, lib.tutti_test


class Pending:
    """A call whose end is more than one wait. `result` is called once."""

    __slots__ = ()

    def poll(self) -> bool:
        """Whether result() would return at once."""
        raise NotImplementedError

    def result(self) -> Any:
        """Wait. Returns the result for synchronize(), or raises the call's error."""
        raise NotImplementedError

    def settle(self) -> None:
        """Wait without raising; poll() is then True. For join(), which first waits for all pending
        calls."""
        raise NotImplementedError

    def discard(self) -> bool:
        """After the library has ended: free the requests. Returns whether settle() has stored
        a result or an error."""
        raise NotImplementedError


class Settled(Pending):
    """A call that has ended, with its result or its error."""

    __slots__ = ("value", "error")

    def __init__(self, value: Any, error: Optional[Exception] = None) -> None:
        self.value, self.error = value, error

    def poll(self) -> bool:
        return True

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value

    def settle(self) -> None:
        pass

    def discard(self) -> bool:
        return True


def is_done(request: int) -> bool:
    """Whether a request has ended, with success or an error."""
    done = c_int(0)
    return _test(request, byref(done)) != 0 or done.value != 0


class Requests(Pending):
    """Several requests with one end: a grouped call, or one with work after it.

    requests  a ctypes array; entries become NULL when they are done
    finish    makes the result of the tensors that the requests have filled
    stream    the torch.cuda.Stream in which the call was made; None: host memory. After result(),
              the current stream is ordered behind it
    shapes    the shapes of this rank's tensors, for the error text if the ranks' shapes differ
    """

    __slots__ = ("requests", "finish", "kept", "stream", "shapes", "ended")

    def __init__(self, requests: Any, finish: Callable[[], Any], kept: Any,
                 stream: Any = None, shapes: str = "") -> None:
        self.requests, self.finish, self.kept = requests, finish, kept
        self.stream, self.shapes = stream, shapes
        self.ended: Optional[Settled] = None

    def poll(self) -> bool:
        return self.ended is not None or all(is_done(r) for r in self.requests if r)

    def _wait_all(self) -> None:
        if self.stream is None:
            status = lib.tutti_wait_all(self.requests, len(self.requests), -1)
            if status:
                error = failed(status)
                if status == _lib.MISMATCH and self.shapes:
                    error.args = ("%s; this rank has shape %s" % (error, self.shapes),)
                raise error
            return
        error = None
        for index, request in enumerate(self.requests):
            if request:
                status = lib.tutti_cuda_wait(request, -1, self.stream.cuda_stream)
                if status and error is None:
                    error = failed(status)
                self.requests[index] = None
        if error is not None:
            raise error

    def _follow(self) -> None:
        """Order the current stream behind `stream`. The two differ if a hook has made the call."""
        if self.stream is not None:
            present = torch.cuda.current_stream(self.stream.device)
            if present.cuda_stream != self.stream.cuda_stream:
                present.wait_stream(self.stream)

    def result(self) -> Any:
        if self.ended is not None:
            self._follow()
            return self.ended.result()
        try:
            self._wait_all()
            self._follow()
            return self.finish()
        finally:
            del self.finish, self.kept  # they may refer to this object

    def settle(self) -> None:
        try:
            self.ended = Settled(self.result())
        except Exception as error:
            self.ended = Settled(None, error)

    def discard(self) -> bool:
        if self.ended is None:
            lib.tutti_wait_all(self.requests, len(self.requests), 0)
        return self.ended is not None


def add(entry: Any) -> int:
    """A new handle."""
    handle = _next_handle()
    _pending[handle] = entry
    return handle


def poll(handle: int) -> bool:
    """Whether a call is done, so that synchronize() returns at once."""
    entry = _pending.get(handle)
    if entry is None:
        raise ValueError("handle %r is none, or was synchronized before" % (handle,))
    return is_done(entry[0]) if type(entry) is tuple else entry.poll()


def synchronize(handle: int) -> Any:
    """Wait until a call is done; return its result. None for a handle that is not pending.

    HorovodInternalError: the call has failed; the text names the tensor and the ranks.
    """
    entry = _pending.pop(handle, None)
    if entry is None:
        return None
    if type(entry) is tuple:
        status = _wait(entry[0], -1)
        if status:
            raise failed(status)
        return entry[1]
    return entry.result()


def wait_plain(request: int) -> None:
    """Wait for a request that has no handle."""
    status = _wait(request, -1)
    if status:
        raise failed(status)


def settle_all() -> None:
    """Wait for all pending calls, and keep their results for synchronize()."""
    for handle, entry in list(_pending.items()):
        if type(entry) is not tuple:
            entry.settle()
            continue
        status = _wait(entry[0], -1)
        if handle in _pending:
            _pending[handle] = Settled(entry[1], failed(status) if status else None)


def settle_done() -> None:
    """Before the library ends: keep the results of calls that are done."""
    for entry in list(_pending.values()):
        if type(entry) is not tuple and entry.poll():
            entry.settle()


def discard_all() -> None:
    """The library has ended, and with it all pending calls: free their requests. synchronize() of
    a call that was not done raises HorovodInternalError, as in Horovod. A call that has failed
    before keeps its own error."""
    for handle, entry in list(_pending.items()):
        error = HorovodInternalError("hvd.shutdown() has ended the call", status=_lib.SHUTDOWN)
        if type(entry) is tuple:
            status = _wait(entry[0], 0)
            if status not in (_lib.OK, _lib.SHUTDOWN):
                error = failed(status)
            _pending[handle] = Settled(entry[1], error if status else None)
        elif not entry.discard():
            _pending[handle] = Settled(None, error)


def forget() -> None:
    """After shutdown(): drop the results that synchronize() has not returned."""
    _pending.clear()


__all__ = ["HorovodInternalError", "Pending", "Requests", "Settled", "add", "bind", "poll",
           "synchronize"]
