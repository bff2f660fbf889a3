# SPDX-License-Identifier: BSD-3-Clause
"""Training that survives errors between ranks: a state that can be saved, restored and sent.

run(func) calls func(state). If a call between the ranks fails in func, all ranks restore their last
committed state, connect again, agree on the state and call func again.

Tutti has no driver that discovers hosts: the number of ranks stays the same. If a process dies,
another process with the same rank must be started: python -m tutti.horovod does so for the ranks of
one host, with --restarts. Meanwhile the other ranks wait in init(), at most TUTTI_TIMEOUT. With a
TorchState, the new process gets the state of the rank with the most commits.
"""

import functools
import queue
from typing import Any, Callable, Dict, List

from ..._lib import PEER_LOST
from .exceptions import HOPELESS, HorovodInternalError, HostsUpdatedInterrupt


class State:
    """What a training run needs to continue.

    bcast_object  broadcasts an object of rank 0; it is called with one argument
    get_rank      returns this process's rank
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._updates: "queue.Queue[Any]" = queue.Queue()
        self._callbacks: List[Callable[[], None]] = []
        self._commits = 0

    def register_reset_callbacks(self, callbacks: List[Callable[[], None]]) -> None:
        """Functions to call after each reset, for example to change the learning rate."""
        self._callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Called after the ranks have connected again."""
        self._updates = queue.Queue()
        self.reset()
        for callback in self._callbacks:
            callback()

    def on_hosts_updated(self, timestamp: Any, update_res: Any = 0) -> None:
        """Report to this rank that the hosts have changed. On rank 0: the next check_host_updates()
        raises HostsUpdatedInterrupt on all ranks. On other ranks it has no effect."""
        self._updates.put((timestamp, update_res))

    def commit(self) -> None:
        """Save the state, and call check_host_updates()."""
        self._commits += 1
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raise HostsUpdatedInterrupt on all ranks if rank 0 has got a report that the hosts have
        changed."""
        changed = False
        while not self._updates.empty():
            self._updates.get()
            changed = True
        if self._bcast_object(changed):
            raise HostsUpdatedInterrupt()

    def save(self) -> None:
        """Keep a copy of the state."""
        raise NotImplementedError

    def restore(self) -> None:
        """Go back to the copy."""
        raise NotImplementedError

    def sync(self) -> None:
        """Give all ranks the same state."""
        raise NotImplementedError

    def reset(self) -> None:
        """For derived classes: called after the ranks have connected again, before the state is
        sent."""


class ObjectState(State):
    """A state of Python objects. Each keyword argument is an object, and becomes an attribute."""

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int],
                 **kwargs: Any) -> None:
        self._saved_state: Dict[str, Any] = kwargs
        self._set_attributes()
        super().__init__(bcast_object, get_rank)

    def save(self) -> None:
        """Keep the present values."""
        self._saved_state = {name: getattr(self, name) for name in self._saved_state}

    def restore(self) -> None:
        """Go back to the values that were kept."""
        self._set_attributes()

    def sync(self) -> None:
        """Give all ranks the values of rank 0."""
        if self._saved_state:
            self._saved_state = self._bcast_object(self._saved_state)
            self._set_attributes()

    def _set_attributes(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, value)


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """The function that `run` of a framework returns. `reset` ends the connections and makes new
    ones."""
    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        skip_sync = False
        while True:
            try:
                if not skip_sync:
                    state.sync()
                return func(state, *args, **kwargs)
            except HorovodInternalError as error:
                if error.status in HOPELESS:  # the program is wrong: it would fail again
                    raise
                state.restore()
                skip_sync = False
            except HostsUpdatedInterrupt as interrupt:
                skip_sync = interrupt.skip_sync
            _connect_again(reset)
            state.on_reset()
    return wrapper


def _connect_again(reset: Callable[[], None]) -> None:
    """Call `reset`, again if a rank dies in the meantime: its process is started again as well."""
    while True:
        try:
            reset()
            return
        except HorovodInternalError as error:
            if error.status != PEER_LOST:
                raise
