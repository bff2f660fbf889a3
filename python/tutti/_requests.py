# SPDX-License-Identifier: BSD-3-Clause
"""Requests: asynchronous calls between their start and their end.

A request keeps its arrays alive. If the program drops a request without waiting for it, the library
still uses the arrays. So the package keeps these arrays in a list. Each later start of a call frees
the arrays of the calls that are done.
"""

import os
import threading
import time
import warnings
from itertools import chain, starmap
from typing import Any, Iterable, List, Optional, Sequence, Tuple

import numpy as np

from . import _lib, _world
from ._calls import Prepared
from ._lib import byref, check, lib
from ._world import Communicator, milliseconds


def stream_pointer(stream: Any) -> Optional[int]:
    """The address of a CUDA stream: of an int, of a stream of torch or CuPy, or of an object with
    __cuda_stream__."""
    if stream is None or isinstance(stream, int):
        return stream
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    raise TypeError("stream is of type %s; it must be a CUDA stream, or its address"
                    % type(stream).__name__)


_forks = 0  # the forks between the first process and this one


def _note_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_note_fork)


class Request:
    """An asynchronous call that was started. It keeps its arrays alive until it is done.

    Do not change the arrays of a call before it is done. Wait for each request, from any thread; a
    request that is dropped without a wait gives a ResourceWarning.
    """

    _active = True  # False: a persistent request that was not started, or whose turn has ended
    _keeps_handle = False  # whether a wait leaves the library's request

    def __init__(self, made: Prepared, place: _lib.c_void_p, comm: Communicator,
                 name: Optional[str]) -> None:
        """For the package's own use, before the call that starts the request. The library writes
        the handle to `place`. So the request keeps its arrays even if a signal handler raises an
        exception when that call returns."""
        self._place = place
        self._made = made
        self._size = comm.size
        self._made_lock, self._fork = threading.Lock(), _forks
        self._error: Optional[BaseException] = None
        # The status and the text of a wait, until _finish() has processed them.
        self._answer: List[Any] = []
        self.name = name
        """The name of the call."""

    @property
    def _handle(self) -> Optional[int]:
        """The library's request; None: not started, or freed."""
        return self._place.value

    @property
    def _lock(self) -> Any:
        """One thread at a time waits or tests. A forked child makes a new lock, because the thread
        that holds its parent's does not exist in the child."""
        if self._fork != _forks:
            self._made_lock, self._fork = threading.Lock(), _forks
        return self._made_lock

    def wait(self, timeout: Optional[float] = None, stream: Any = None) -> Any:
        """Wait until the call is done, and return its result.

        timeout  seconds; TimeoutError after it: the call continues, and the wait may be repeated.
                 None: until the library's own deadline (TUTTI_TIMEOUT), which ends the
                 communicator. If a deadline has ended the communicator, a wait with a timeout
                 raises ShutdownError, so TimeoutError always means that the call continues
        stream   a CUDA stream: wait only until the work is queued on the device; later work in the
                 stream sees the result

        Raises the error with which the call ended. A second wait returns the same result, or raises
        the same error.
        """
        end = None if timeout is None else time.monotonic() + timeout
        wait_ms = milliseconds(timeout)
        if not self._lock.acquire(timeout=-1 if end is None else min(wait_ms / 1000, 1e6)):
            raise _lib.TimeoutError("request %r: another thread waits for it" % self.name)
        try:
            if self._handle is not None:
                self._wait(wait_ms, end, stream)
            if self._error is not None:
                raise self._error
            return self._made.result
        finally:
            self._lock.release()

    def result(self, timeout: Optional[float] = None) -> Any:
        """As wait()."""
        return self.wait(timeout)

    def test(self) -> bool:
        """Whether the call is done, with a result or an error. Never blocks, and never raises the
        call's error, which wait() does."""
        if self._handle is None:
            return True
        if not self._lock.acquire(blocking=False):
            return False  # another thread waits for it
        try:
            return self._handle is None or self._is_done()
        finally:
            self._lock.release()

    def needs_buffer(self) -> bool:
        """For the package's own use: whether the counts are still unknown."""
        return self._handle is not None and self._made.receive is not None

    def _is_done(self) -> bool:
        if self._has_ended():
            return True
        if self._made.receive is not None:
            _give_buffer(self._handle, self._made, self._size, 0)
        done = _lib.c_int(0)
        status = lib.tutti_test(self._handle, byref(done))
        if not done.value:
            check(status)
        return bool(done.value)

    def _wait(self, wait_ms: int, end: Optional[float], stream: Any) -> None:
        if not self._has_ended():
            if self._made.receive is not None:
                status = _give_buffer(self._handle, self._made, self._size, wait_ms)
                if status == _lib.TIMEOUT and wait_ms >= 0:
                    check(status)
                wait_ms = wait_ms if end is None else milliseconds(max(0, end - time.monotonic()))
            if stream is None:
                _call(self._answer, lib.tutti_wait, self._handle, wait_ms)
            else:
                _call(self._answer, lib.tutti_cuda_wait, self._handle, wait_ms,
                      stream_pointer(stream))
        self._finish()

    def _finish(self) -> None:
        """Process the answer of a wait: end the request, or raise the wait's error."""
        status, text = self._answer
        error = _lib.error_of(status, text.decode("utf-8", "replace")) if status else None
        if self._has_ended():
            self._end(error)
        elif error is not None:
            raise error

    def _has_ended(self) -> bool:
        """Whether a wait has ended the request, but _end() has not been called. This is so after a
        wait in which a signal handler has raised an exception."""
        if self._answer:
            if self._answer[0] == _lib.OK or self._was_freed():
                return True
            self._answer.clear()
        return False

    def _was_freed(self) -> bool:
        """Whether a wait that returned an error has freed the request. If not, the request
        continues."""
        done = _lib.c_int(0)
        return bool(lib.tutti_test(self._handle, byref(done)) == _lib.INVALID_ARGUMENT)

    def _end(self, error: Optional[BaseException]) -> None:
        """The library has freed the request."""
        self._error = error or self._made.error
        self._made.keep = ()
        self._raise_of_op()
        self._place.value = None
        self._answer.clear()

    def _raise_of_op(self) -> None:
        if self._error is None:
            try:
                self._made.raise_error()
            except BaseException as error:
                self._error = error

    def __del__(self) -> None:
        if self._handle is not None:
            # Keep the arrays first, because the library still uses them: the warning below may be
            # raised as an exception.
            _dropped.append((self._handle, self._made, self._size, self._keeps_handle))
            warnings.warn("request %r was dropped without a wait" % self.name, ResourceWarning,
                          source=self)

    def __repr__(self) -> str:
        state = "done" if self._handle is None else "started"
        return "<tutti.%s %r of %s, %s>" % (type(self).__name__, self.name, self._made.kind, state)


def _give_buffer(handle: Optional[int], made: Prepared, size: int, wait_ms: int) -> int:
    """Give a request its buffer as soon as the counts are known. Returns the status of the wait for
    them. If the request has ended meanwhile, a wait for it returns its error."""
    counts = np.empty(size, np.uintp)
    status = lib.tutti_request_recvcounts(handle, wait_ms, counts.__array_interface__["data"][0])
    if status == _lib.OK and made.receive is not None:
        again = made.result is not None  # a signal has interrupted this function
        given = lib.tutti_request_receive(handle, made.receive(counts), None)
        if given == _lib.INVALID_ARGUMENT and not again:
            check(given)
        if given in (_lib.OK, _lib.INVALID_ARGUMENT):
            made.receive = None
    return int(status)


def _call(answer: List[Any], function: Any, *args: Any) -> None:
    """Call a function of the library that may end a request. Its status and the text of its error
    go to `answer`. No Python code runs here after the function's return, and so no signal handler,
    whose exception could lose the status."""
    answer.extend(chain(starmap(function, (args,)), starmap(lib.tutti_last_error, ((),))))


_dropped: List[Tuple[int, Prepared, int, bool]] = []


def free_dropped(_comm: Any = None) -> None:
    """Free the dropped requests that are done, and their arrays."""
    for _ in range(len(_dropped)):
        taken: List[Tuple[int, Prepared, int, bool]] = []
        try:
            # No Python code, and so no signal handler, runs between pop and extend.
            taken.extend(map(_dropped.pop, (0,)))
            if _free_if_done(*taken[0]):
                taken.clear()
        except IndexError:  # another thread does the same
            return
        except (MemoryError, ValueError):  # of the result's array; the next call tries again
            pass
        finally:
            _dropped.extend(taken)


def _free_if_done(handle: int, made: Prepared, size: int, keeps_handle: bool) -> bool:
    if made.receive is not None:
        _give_buffer(handle, made, size, 0)
    done = _lib.c_int(0)
    status = lib.tutti_test(handle, byref(done))
    if done.value:
        lib.tutti_wait(handle, 0)
    elif status != _lib.INVALID_ARGUMENT:  # so a wait has ended it
        return False
    if keeps_handle:
        lib.tutti_request_free(handle)
    return True


_world.on_end.append(free_dropped)


# ---- several requests ----

def wait_all(requests: Iterable[Request], timeout: Optional[float] = None) -> List[Any]:
    """Wait for all requests, and return the list of their results.

    timeout  seconds for all of them; None: the library's own deadline

    If requests fail, the first error is raised, after the wait for all others. After TimeoutError
    some requests continue.
    """
    end = None if timeout is None else time.monotonic() + timeout
    results: List[Any] = []
    first: Optional[Exception] = None
    for request in requests:
        try:
            left = None if end is None else max(0.0, end - time.monotonic())
            results.append(request.wait(left))
        except Exception as error:  # the operation may be a function of the caller's
            first = first or error
    if first is not None:
        raise first
    return results


def wait_any(requests: Sequence[Request], timeout: Optional[float] = None) -> int:
    """Wait until one of the requests is done, and return its index. Its wait() then returns its
    result at once, or raises its error.

    timeout  seconds; TimeoutError after it. None: until the library's own deadline; without a limit
             while the counts of an alltoallv or allgatherv are not known yet, or while another
             thread waits for one of the requests
    """
    if not requests:
        raise ValueError("wait_any: there are no requests")
    end = None if timeout is None else time.monotonic() + timeout
    milliseconds(timeout)  # ValueError if it is negative
    while True:
        for index, request in enumerate(requests):
            if request.test():
                return index
        if any(request.needs_buffer() for request in requests):
            wait_ms = 2  # then test again whether the counts are known
        else:
            wait_ms = milliseconds(None if end is None else max(0.0, end - time.monotonic()))
        done = _wait_any(requests, wait_ms)
        if done is not None:
            return done
        if end is not None and time.monotonic() >= end:
            raise _lib.TimeoutError("none of %d requests was done after %g s"
                                    % (len(requests), timeout or 0))


def _wait_any(requests: Sequence[Request], wait_ms: int) -> Optional[int]:
    """The index of a request that is done, or None after the timeout. While another thread waits
    for some of the requests, the timeout is at most 2 ms."""
    unique = list({id(request): request for request in requests}.values())
    held: List[Request] = []
    try:
        for request in unique:
            if request._lock.acquire(blocking=False):
                held.append(request)
        for request in held:
            # A wait in another thread may have ended the request after the test.
            if request._handle is None or not request._active or request._has_ended():
                return list(requests).index(request)
        if len(held) < len(unique):
            wait_ms = 2 if wait_ms < 0 else min(wait_ms, 2)
        if not held:
            time.sleep(wait_ms / 1000)
            return None
        places = _lib.array_of(_lib.c_void_p, [request._handle for request in held])
        index = _lib.c_size_t(len(held))
        answer: List[Any] = []
        try:
            _call(answer, lib.tutti_wait_any, places, len(held), wait_ms, byref(index))
        finally:  # also if a signal handler raises an exception
            if index.value < len(held):
                held[index.value]._answer = answer
        if index.value == len(held):
            if answer[0] == _lib.TIMEOUT and wait_ms >= 0:
                return None
            check(answer[0])
        ended = held[index.value]
        ended._finish()
        return list(requests).index(ended)
    finally:
        for request in held:
            request._lock.release()
