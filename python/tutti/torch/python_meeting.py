# SPDX-License-Identifier: BSD-3-Clause
"""How the ranks of a group of the Python backend meet in torch's store. The same design as
csrc/lifecycle.hpp, which explains it."""

import math
import time
from ctypes import byref, c_void_p, pointer
from datetime import timedelta
from typing import Any, Optional, Tuple

from .. import _lib
from .python_work import error_of

_POLL_S = 0.02  # Chosen: a store may be a server.


class _Place:
    """Rank 0's place in torch's store, with its generation in front."""

    def __init__(self, store: Any, prefix: str, rank: int) -> None:
        self.generation = 0  # of rank 0's group; other ranks: of the place that was read last
        self.joined = 0  # other ranks: a place that is not newer belongs to an earlier group
        self.end = math.inf  # of all waits for a place
        self._store = store
        self._joined_key = "tutti/joined/%d" % rank  # other ranks: the last `generation`
        self.table = _lib.make_store(prefix, self._set, self._get)

    def begin(self) -> None:
        """Begin a group: rank 0 counts it."""
        self.generation = self._store.add("tutti/generation", 1)

    def recall(self) -> None:
        """Other ranks: the generation that a process with this rank has joined last."""
        self.generation = self._store.add(self._joined_key, 0)

    def _set(self, key: str, value: bytes) -> None:
        self._store.set(key, b"%d " % self.generation + value)

    def _get(self, key: str, timeout_ms: int) -> Optional[bytes]:
        """Wait for a place that is newer than `joined`. This attempt to connect uses the place that
        it has read first. If there is a still newer place, the next attempt uses it."""
        until = min(time.monotonic() + timeout_ms / 1000, self.end)
        self._store.wait([key], timedelta(seconds=max(until - time.monotonic(), 0.001)))
        while True:
            number, _, value = bytes(self._store.get(key)).partition(b" ")
            if int(number) > self.joined and self.generation in (self.joined, int(number)):
                # Store the number now: later, rank 0 and its store may have ended.
                if int(number) > self.generation:
                    self._store.add(self._joined_key, int(number) - self.generation)
                self.generation = int(number)
                return value
            if time.monotonic() >= until:
                raise TimeoutError("%s is of an earlier group" % key)
            time.sleep(_POLL_S)


def _connect(group: Any, place: _Place) -> Tuple[int, Any]:
    """Connect once. Returns the status, and the communicator or the exception."""
    options = _lib.Options(store=pointer(place.table), rank=group.rank(), nranks=group.size(),
                           timeout_ms=group.timeout_ms)
    comm = c_void_p()
    status = _lib.lib.tutti_comm_connect(byref(options), byref(comm))
    if not status:
        return status, comm.value or 0
    error = error_of(status, group.label)
    if place.table.error is not None:
        error.args = ("%s. The store's error: %s" % (error, place.table.error),)
    error.__cause__ = place.table.error
    return status, error


def _join(group: Any, place: _Place) -> int:
    """A rank other than 0. The place in the store may be that of an earlier rank 0. So after some
    errors, wait for a newer place, until the group's timeout."""
    if group.timeout_ms > 0:
        place.end = time.monotonic() + group.timeout_ms / 1000
    first: Any = None
    place.recall()
    while True:
        place.joined = place.generation
        status, result = _connect(group, place)
        if not status:
            return int(result)
        if place.generation == place.joined:
            raise first or result
        if status not in (_lib.TRANSPORT, _lib.TIMEOUT) or time.monotonic() >= place.end:
            raise result
        first = first or result


def meet(group: Any, store: Any, prefix: str) -> Tuple[int, str]:
    """Connect the ranks. Returns the communicator, and a prefix that no earlier group has used in
    this store."""
    place = _Place(store, prefix, group.rank())
    if group.rank() == 0:
        place.begin()
        status, comm = _connect(group, place)
        if status:
            raise comm
    else:
        comm = _join(group, place)
    return comm, "%s#%d" % (prefix, place.generation)
