# SPDX-License-Identifier: BSD-3-Clause
"""Calls inside the callbacks of a future, such as those of PowerSGD's hook.

c10d matches collectives by their order. But a callback may run between two calls of the program on
one rank, and after both on another rank. With several buckets in flight there is no order that all
ranks share. So a collective in a callback is matched by a name, which states its origin:
"tutti #17/1/2" is the second collective in the first callback of the future of call 17. So the
futures of this module store the name of their call. While a thread runs a callback of such a
future, the origin of the thread is this name with the number of the callback.
"""

import hashlib
import threading
import weakref
from typing import Any, Callable, List, Optional, Tuple

import torch
import torch.distributed as dist

Swap = Callable[[str, int], Tuple[str, int]]


def _short(name: str) -> str:
    """A name of the library has at most 255 bytes; chains of callbacks may be long."""
    if len(name) < 150:
        return name
    return name.split("/")[0] + "/" + hashlib.sha256(name.encode()).hexdigest()[:32]


_thread = threading.local()


def swap(name: str, calls: int) -> Tuple[str, int]:
    """The Python backend's origin of this thread: sets it, and returns the one before."""
    before = getattr(_thread, "origin", ("", 0))
    _thread.origin = (name, calls)
    return before


def next_name() -> str:
    """The name of the Python backend's next collective on this thread; "": by order."""
    name, calls = getattr(_thread, "origin", ("", 0))
    if name:
        _thread.origin = (name, calls + 1)
        return "%s/%d" % (name, calls + 1)
    return ""


class _Failure:
    """The value of a future that has failed. For torch's C++ code, a future that failed by
    set_exception() of torch.futures.Future has a value: the exception, without any tensors.
    DistributedDataParallel reads the first tensor of this value without a check. If it reads the
    tensors of a _Failure, the error is raised."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise self.error

    def __str__(self) -> str:
        return str(self.error)


def _raise(value: Any) -> Any:
    raise value.error


def set_error(future: torch.futures.Future, error: BaseException) -> None:
    """Let a future end with this error. The future must have been made without `devices`."""
    future._set_unwrap_func(_raise)  # type: ignore[attr-defined]
    future.set_result(_Failure(error))


class Future(torch.futures.Future):
    """The future of a call, or of a callback: see then(). `devices`: of the tensors, as for
    torch.futures.Future."""

    def __init__(self, name: str, swap: Swap, devices: Optional[List[Any]] = None) -> None:
        super().__init__(devices=devices)
        self._name, self._swap, self._devices, self._callbacks = name, swap, devices, 0

    def _within(self, callback: Callable[[Any], Any]) -> Tuple[str, Callable[[Any], Any]]:
        """The name of the next callback, and the callback in its origin."""
        self._callbacks += 1
        name, swap = _short("%s/%d" % (self._name, self._callbacks)), self._swap

        def run(future: Any) -> Any:
            before = swap(name, 0)
            try:
                return callback(future)
            finally:
                swap(*before)
        return name, run

    def then(self, callback: Callable[[Any], Any]) -> "Future":  # type: ignore[override]
        """As that of torch.futures.Future."""
        name, run = self._within(callback)
        return follow(super().then(run), name, self._swap, self._devices)

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:  # type: ignore[override]
        """As that of torch.futures.Future."""
        super().add_done_callback(self._within(callback)[1])


def follow(future: Any, name: str, swap: Swap, devices: Optional[List[Any]] = None) -> Future:
    """A Future that ends with the result or the error of `future`."""
    mine = Future(name, swap, devices)

    def end(ended: Any) -> None:
        try:
            value = ended.value()
        except Exception as error:
            if devices:
                mine.set_exception(error)
            else:
                set_error(mine, error)
        else:
            mine.set_result(value)
    future.add_done_callback(end)
    return mine


def install(module: Any) -> None:
    """Let get_future() of the C++ backend's Work return a Future. This also applies to device
    tensors: their future is not complete before all ranks have made the call, so its callbacks run
    at different times.

    All calls of get_future() of a Work return the same future: callbacks of two futures of one call
    would have the same names."""
    plain = dist.Work.get_future
    given: "weakref.WeakKeyDictionary[Any, Future]" = weakref.WeakKeyDictionary()

    def get_future(work: Any) -> Any:
        found = given.get(work)
        if found is not None:
            return found
        devices = [torch.device(work.device())] if work.device() else None
        return given.setdefault(work, follow(plain(work), work.call_name(), module.swap_origin,
                                             devices))
    module.TuttiWork.get_future = get_future
