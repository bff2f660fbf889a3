# SPDX-License-Identifier: BSD-3-Clause
"""Allgather and alltoall of tensors whose first dimensions differ between the ranks.

Such a call has two parts. First the ranks exchange the shapes of their tensors. Then each rank
computes the shape of its result, makes the tensor, and starts the transfer. If shapes do not match,
all ranks detect this between the two parts, and all ranks get an error that names two ranks.

In Horovod a background thread makes both parts, so a call ends on all ranks even if one of them
never waits for it. Here synchronize() or poll() starts the second part. If the program calls
neither of them, a thread starts the second part: the starter, which exists only while there are
such calls. It polls them after a millisecond, then less and less often.

    rank 0:  h = allgather_async(x); barrier(); synchronize(h)     the starter starts part 2
    rank 1:  h = allgather_async(x); synchronize(h); barrier()     synchronize() starts part 2
"""

import threading
import time
from ctypes import addressof, byref, c_int64, c_size_t, c_void_p
from typing import Any, Callable, List, Optional, Sequence, Tuple
from weakref import WeakValueDictionary

import torch

from ... import _lib
from ..._lib import lib
from ..common.exceptions import failed, refused
from ..common.names import encode_name
from ..common.shapes import SHAPE_WORDS, check_dims, check_fit, shape_words
from . import dtypes
from .handles import Pending, Settled, is_done
from .submit import Calls


def check_sized(tensor: torch.Tensor, what: str) -> None:
    """ValueError if a tensor cannot be gathered along its first dimension."""
    dtypes.check(tensor)
    check_dims(tensor.dim(), what)


def _words_of_tensor(tensor: torch.Tensor) -> List[int]:
    return shape_words(dtypes.CODES[tensor.dtype], tensor.shape)


class Sized(Pending):
    """One such call.

    name     for messages
    request  of the exchange of shapes
    start    starts the transfer when the shapes are known, and returns its Pending
    """

    __slots__ = ("name", "request", "start", "second", "lock", "__weakref__")

    def __init__(self, name: str, request: int, start: Callable[[], Pending]) -> None:
        self.name, self.request = name, request
        self.start: Optional[Callable[[], Pending]] = start
        self.second: Optional[Pending] = None
        self.lock = threading.Lock()

    def advance(self, timeout_ms: int) -> bool:
        """If the shapes are known, start the transfer, unless another thread is starting it.
        Returns whether it has begun."""
        if self.second is not None:
            return True
        if not self.lock.acquire(timeout_ms < 0):
            return False
        try:
            if self.second is None:
                if timeout_ms == 0 and not is_done(self.request):
                    return False
                status = lib.tutti_wait(self.request, -1)
                try:
                    if status:
                        raise failed(status)
                    self.second = self.start()
                except Exception as error:
                    self.second = Settled(None, error)
                self.start = None  # `start` refers to this call: break the cycle
        finally:
            self.lock.release()
        return True

    def poll(self) -> bool:
        return self.advance(0) and self.second.poll()

    def result(self) -> Any:
        self.advance(-1)
        return self.second.result()

    def settle(self) -> None:
        self.advance(-1)
        self.second.settle()

    def discard(self) -> bool:
        if self.second is not None:
            return bool(self.second.discard())
        lib.tutti_wait(self.request, 0)
        return False


_latest: "WeakValueDictionary[Tuple[int, str], Sized]" = WeakValueDictionary()


def refuse_twice(name: str, comm: int) -> None:
    """ValueError if a call of this name is pending. The library itself only detects this for the
    part that has begun."""
    other = _latest.get((comm, name))
    if other is not None and not other.poll():
        raise ValueError("a call named '%s' is pending" % name)


def begin(name: str, comm: int, request: int, tensor: torch.Tensor,
          start: Callable[[], Pending]) -> Sized:
    """A call whose shapes are being exchanged. tensor: one of its tensors."""
    call = Sized(name, request, _in_present_stream(tensor, start))
    _latest[comm, name] = call
    return call


def _in_present_stream(tensor: torch.Tensor, start: Callable[[], Pending]
                       ) -> Callable[[], Pending]:
    """`start` in the stream in which the call is made. Any thread may start the transfer, and the
    current stream of this thread may be another one."""
    if not tensor.is_cuda:
        return start
    stream = torch.cuda.current_stream(tensor.device)

    def start_in_stream() -> Pending:
        with torch.cuda.stream(stream):
            return start()
    return start_in_stream


# ---- the starter ----

class Starter:
    """The thread that starts the transfers of calls that the program does not wait for."""

    FIRST_S, LONGEST_S = 0.001, 0.02

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.calls: List[Sized] = []
        self.thread: Optional[threading.Thread] = None
        self.stopping = False

    def watch(self, call: Sized) -> None:
        """Start the transfer of `call`, unless synchronize() or poll() does so first."""
        with self.changed:
            self.calls.append(call)
            if self.thread is None or not self.thread.is_alive():
                self.stopping = False
                self.thread = threading.Thread(target=self._run, name="tutti-horovod", daemon=True)
                self.thread.start()
            self.changed.notify()

    def _run(self) -> None:
        pause = self.FIRST_S
        while True:
            with self.changed:
                while not self.calls and not self.stopping:
                    self.changed.wait()
                    pause = self.FIRST_S
                if self.stopping:
                    return
                calls = list(self.calls)
            time.sleep(pause)
            begun = [call for call in calls if call.advance(0)]
            pause = self.FIRST_S if begun else min(2 * pause, self.LONGEST_S)
            with self.changed:
                self.calls = [call for call in self.calls if call not in begun]

    def stop(self) -> None:
        """End the thread; it makes no call of the library afterwards."""
        with self.changed:
            self.stopping = True
            self.calls = []
            thread = self.thread
            self.thread = None
            self.changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join()


starter = Starter()


# ---- allgather ----

class Gathered:
    """The tensors of one allgather, alone or grouped, from the shapes to the results."""

    def __init__(self, name: str, tensors: Sequence[torch.Tensor], comm: int,
                 grouped: bool) -> None:
        self.name, self.tensors, self.comm, self.grouped = name, tensors, comm, grouped
        self.size, self.rank = lib.tutti_size(comm), lib.tutti_rank(comm)
        self.outputs: List[torch.Tensor] = []
        self.rows: List[List[int]] = []  # of each tensor, from each rank
        words: List[int] = []
        for tensor in tensors:
            words += _words_of_tensor(tensor)
        self.mine = (c_int64 * len(words))(*words)
        self.theirs = (c_int64 * (len(words) * self.size))()
        refuse_twice(name, comm)
        ret = c_void_p()
        status = lib.tutti_allgather_async(encode_name("shape of " + name), self.mine, self.theirs,
                                           len(words), _lib.INT64, comm, None, byref(ret))
        if status:
            raise refused(status)
        self.call = begin(name, comm, ret.value, tensors[0], self.start)

    def _words_of(self, index: int) -> List[List[int]]:
        per_rank = SHAPE_WORDS * len(self.tensors)
        first = SHAPE_WORDS * index
        return [list(self.theirs[r * per_rank + first:r * per_rank + first + SHAPE_WORDS])
                for r in range(self.size)]

    def start(self) -> Pending:
        """Called when the shapes are known: make the results and start the transfers."""
        tables = [self._words_of(index) for index in range(len(self.tensors))]
        names = (["%s.%d" % (self.name, index) for index in range(len(tables))] if self.grouped
                 else [self.name])
        for name, words in zip(names, tables):
            check_fit(name, self.rank, words)
        calls = Calls(len(tables))
        for name, tensor, words in zip(names, self.tensors, tables):
            rows = [entry[2] for entry in words]
            row = _row(words)
            output = torch.empty((sum(rows),) + tuple(tensor.shape[1:]), dtype=tensor.dtype,
                                 device=tensor.device)
            counts = (c_size_t * self.size)(*[r * row for r in rows])
            calls.kept.append(counts)
            calls.add("allgatherv", encode_name(name), dtypes.CODES[tensor.dtype], tensor,
                      output, tensor.numel(), recvcounts=addressof(counts))
            self.outputs.append(output)
            self.rows.append(rows)
        return calls.submit(self.comm, self.finish, self.tensors[0])

    def finish(self) -> Any:
        """The result for synchronize()."""
        return list(self.outputs) if self.grouped else self.outputs[0]


def _row(words: Sequence[Sequence[int]]) -> int:
    """Elements of a row."""
    result = 1
    for dimension in words[0][3:2 + words[0][1]]:
        result *= dimension
    return result


# ---- alltoall ----

class Exchanged:
    """One alltoall, from the splits to the result.

    splits    rows for each rank
    received  makes the tensor of received splits
    """

    def __init__(self, name: str, tensor: torch.Tensor, splits: Sequence[int],
                 received: Callable[[List[int]], torch.Tensor], comm: int) -> None:
        self.name, self.tensor, self.comm = name, tensor, comm
        self.size, self.rank = lib.tutti_size(comm), lib.tutti_rank(comm)
        self.splits, self.make_received = list(splits), received
        shape = _words_of_tensor(tensor)
        words: List[int] = []
        for rows in self.splits:
            words += [rows] + shape
        self.mine = (c_int64 * len(words))(*words)
        self.theirs = (c_int64 * len(words))()
        refuse_twice(name, comm)
        ret = c_void_p()
        status = lib.tutti_alltoall_async(encode_name("shape of " + name), self.mine,
                                          self.theirs, 1 + SHAPE_WORDS, _lib.INT64, comm, None,
                                          byref(ret))
        if status:
            raise refused(status)
        self.call = begin(name, comm, ret.value, tensor, self.start)

    def start(self) -> Pending:
        """Called when shapes and splits are known: make the result and start the transfer."""
        step = 1 + SHAPE_WORDS
        table = [list(self.theirs[r * step:(r + 1) * step]) for r in range(self.size)]
        words = [entry[1:] for entry in table]
        check_fit(self.name, self.rank, words)
        rows = [entry[0] for entry in table]
        tensor, row = self.tensor, _row(words)
        output = torch.empty((sum(rows),) + tuple(tensor.shape[1:]), dtype=tensor.dtype,
                             device=tensor.device)
        send = (c_size_t * self.size)(*[r * row for r in self.splits])
        receive = (c_size_t * self.size)(*[r * row for r in rows])
        result = (output, self.make_received(rows))
        calls = Calls(1)
        calls.kept += [send, receive]
        calls.add("alltoallv", encode_name(self.name), dtypes.CODES[tensor.dtype], tensor,
                  output, sendcounts=addressof(send), recvcounts=addressof(receive))
        return calls.submit(self.comm, lambda: result, tensor)
