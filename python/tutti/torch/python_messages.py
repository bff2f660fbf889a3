# SPDX-License-Identifier: BSD-3-Clause
"""Messages of the Python backend: names, receives from any source, messages to oneself. The same
design as csrc/messages.hpp, which explains it."""

import threading
import weakref
from collections import defaultdict, deque
from typing import Any, Deque, Dict, List, Optional, Tuple

import torch

from .. import _lib
from .python_work import HOUR_MS, Calls, PromiseWork, copy_into, element_of, error_of, wait_for

Taker = Tuple[PromiseWork, torch.Tensor]


class _Posted:
    """A receive that was posted for any source."""

    def __init__(self, memory: torch.Tensor) -> None:
        self.memory = memory
        self.error: Optional[BaseException] = None
        self.taker: Optional[Taker] = None  # a receive from this source alone


class Messages:
    """The messages of one group."""

    def __init__(self, group: Any) -> None:
        self._group = weakref.proxy(group)  # torch 2.5 ends a group by dropping it
        self._label = group.label
        # Protects all below. Re-entrant: a method that holds this lock may drop the last reference
        # to the group, and then close() runs on the same thread.
        self._lock = threading.RLock()
        self._counts: Dict[Tuple[int, int, int], int] = defaultdict(int)
        self._posted: Dict[Tuple[int, int], _Posted] = {}
        self._arrivals: Dict[int, List[int]] = defaultdict(list)
        self._waiting: Dict[int, Deque[Taker]] = defaultdict(deque)
        self._sends: Dict[int, Deque[Taker]] = defaultdict(deque)  # to oneself
        self._receives: Dict[int, Deque[Taker]] = defaultdict(deque)

    def _name(self, source: int, to: int, tag: int) -> bytes:
        self._counts[source, to, tag] += 1
        return ("message %d>%d tag %d #%d"
                % (source, to, tag, self._counts[source, to, tag])).encode()

    def send(self, t: torch.Tensor, dest: int, tag: int) -> Any:
        """Send to a rank."""
        group = self._group
        if group._check_root(dest, "send") == group.rank():
            return self._to_self(t, tag, self._sends)
        calls = Calls("send")
        dtype, per = element_of(t)
        address = calls.in_(t)  # before the message is counted: the tensor may be refused
        with self._lock:
            name = self._name(group.rank(), dest, tag)
        calls.add("send", dtype, sendbuf=address, count=t.numel() * per, root=dest, name=name)
        return group.start(calls, [t])

    def receive(self, t: torch.Tensor, source: int, tag: int) -> Any:
        """Receive from a rank."""
        group = self._group
        if group._check_root(source, "recv") == group.rank():
            return self._to_self(t, tag, self._receives)
        with self._lock:
            posted = self._posted.get((source, tag))
            if posted is not None and posted.taker is None:
                self._check_shape(posted, t, source, tag)
                promise = PromiseWork([t], group.timeout_ms)
                posted.taker = (promise, t)
                ready = self._match(tag)
            else:
                promise = None
                calls = self._receive_calls(t, source, tag)
        if promise is None:
            return group.start(calls, [t])
        self._deliver(ready)
        return promise

    def _receive_calls(self, t: torch.Tensor, source: int, tag: int) -> Calls:
        calls = Calls("recv")
        dtype, per = element_of(t)
        calls.source = source
        calls.add("recv", dtype, recvbuf=calls.out(t), count=t.numel() * per, root=source,
                  name=self._name(source, self._group.rank(), tag))
        return calls

    def receive_any(self, t: torch.Tensor, tag: int) -> Any:
        """Receive from the first rank that sends."""
        Calls("recv").check(t)
        if t.device.type != "cpu":
            raise NotImplementedError("tutti: a receive from any source needs host memory")
        if self._group.size() < 2:
            raise ValueError("tutti: no other rank can send to this one")
        promise = PromiseWork([t], self._group.timeout_ms)
        with self._lock:
            self._post_all(t, tag)
            self._waiting[tag].append((promise, t))
            ready = self._match(tag)
        self._deliver(ready)
        return promise

    @staticmethod
    def _check_shape(posted: _Posted, t: torch.Tensor, source: int, tag: int) -> None:
        memory = posted.memory
        if memory.numel() != t.numel() or memory.dtype != t.dtype:
            raise ValueError("tutti: a receive of %d elements of %s from rank %d with tag %d was "
                             "posted by an earlier receive from any source; this receive is of %d "
                             "elements of %s. Use another tag"
                             % (memory.numel(), memory.dtype, source, tag, t.numel(), t.dtype))

    def _post_all(self, like: torch.Tensor, tag: int) -> None:
        others = [rank for rank in range(self._group.size()) if rank != self._group.rank()]
        for source in others:
            if (source, tag) in self._posted:
                self._check_shape(self._posted[source, tag], like, source, tag)
        for source in others:
            if (source, tag) not in self._posted:
                memory = torch.empty(like.shape, dtype=like.dtype, device="cpu")
                calls = self._receive_calls(memory, source, tag)
                requests = self._group.submit(calls)
                self._posted[source, tag] = _Posted(memory)
                threading.Thread(target=self._await, args=(calls, requests[0], source, tag),
                                 daemon=True).start()

    def _await(self, _calls: Calls, request: int, source: int, tag: int) -> None:
        status = _lib.TIMEOUT
        while status == _lib.TIMEOUT:
            status = wait_for(request, HOUR_MS, None)
        error = error_of(status, self._label) if status else None
        with self._lock:
            self._posted[source, tag].error = error
            self._arrivals[tag].append(source)
            ready = self._match(tag)
        self._deliver(ready)

    def _match(self, tag: int) -> List[Tuple[Taker, _Posted, int]]:
        """The arrived messages, each with the receive that waits for it."""
        ready, waiting = [], self._waiting[tag]
        for source in list(self._arrivals[tag]):
            posted = self._posted[source, tag]
            taker = posted.taker or (waiting.popleft() if waiting else None)
            if taker is not None:
                ready.append((taker, posted, source))
                del self._posted[source, tag]
                self._arrivals[tag].remove(source)
        if waiting:
            try:
                self._post_all(waiting[0][1], tag)
            except Exception as error:  # the group may have ended: see csrc/messages.hpp
                if isinstance(error, ReferenceError):  # the group was dropped
                    error = self._ended()
                left = sum(key[1] == tag and posted.taker is None
                           for key, posted in self._posted.items())
                while len(waiting) > left:
                    failed = _Posted(waiting[-1][1])
                    failed.error = error
                    ready.append((waiting.pop(), failed, -1))
        return ready

    @staticmethod
    def _deliver(ready: List[Tuple[Taker, _Posted, int]]) -> None:
        for (promise, t), posted, source in ready:
            error = posted.error
            try:
                if error is None:
                    if posted.memory.dtype != t.dtype:
                        raise ValueError("tutti: a message of %s from rank %d was received into a "
                                         "tensor of %s" % (posted.memory.dtype, source, t.dtype))
                    copy_into(t, posted.memory.reshape(t.shape))
            except Exception as failure:
                error = failure
            promise.complete(error, source)

    def _to_self(self, t: torch.Tensor, tag: int, mine: Dict[int, Deque[Taker]]) -> Any:
        promise = PromiseWork([t], self._group.timeout_ms)
        with self._lock:
            mine[tag].append((promise, t))
            sends, receives = self._sends[tag], self._receives[tag]
            if not sends or not receives:
                return promise
            (sent, source), taker = sends.popleft(), receives.popleft()
        self._deliver([(taker, _Posted(source), self._group.rank())])
        sent.complete()
        return promise

    def _ended(self) -> BaseException:
        return error_of(_lib.SHUTDOWN, "", "%s: the group was shut down" % self._label)

    def close(self) -> None:
        """End the messages to oneself that have no match: the group ends."""
        error = self._ended()
        with self._lock:
            left = [taker for side in (self._sends, self._receives) for q in side.values()
                    for taker in q]
            self._sends.clear()
            self._receives.clear()
        for promise, _ in left:
            promise.complete(error)
