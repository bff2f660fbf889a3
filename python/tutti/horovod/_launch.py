# SPDX-License-Identifier: BSD-3-Clause
"""Starts ranks on this host. With --restarts, it starts a rank that has died again.

Ranks meet by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. They inherit this process's output. If
a rank dies and is not started again, the other ranks get some seconds to end with the library's
error; then this process ends them by signals. This process passes SIGINT and SIGTERM on to the
ranks, except a SIGINT of the terminal, which the ranks have received as well. Then it gives the
ranks the same number of seconds before it ends them. At a second signal it ends the ranks at once.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Dict, List

GRACE_S = 10.0
POLL_S = 0.05
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _is_in_foreground() -> bool:
    """Whether a terminal sends its SIGINT to this process and to the ranks, which are in the same
    process group."""
    try:
        with open("/dev/tty") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:  # no terminal
        return False


class _Ranks:
    """The processes of a job."""

    def __init__(self, command: List[str], count: int) -> None:
        self.command, self.count = command, count
        self.port = os.environ.get("MASTER_PORT") or str(_free_port())
        self.processes: Dict[int, "subprocess.Popen[bytes]"] = {}

    def start(self, rank: int) -> None:
        """Start one rank."""
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(self.count), LOCAL_RANK=str(rank),
                   LOCAL_WORLD_SIZE=str(self.count), MASTER_PORT=self.port,
                   MASTER_ADDR=os.environ.get("MASTER_ADDR") or "127.0.0.1")
        self.processes[rank] = subprocess.Popen(self.command, env=env)

    def ended(self) -> Dict[int, int]:
        """The status of each rank that has ended since the last call."""
        found = {rank: process.returncode for rank, process in self.processes.items()
                 if process.poll() is not None}
        for rank in found:
            del self.processes[rank]
        return found

    def signal(self, number: int) -> None:
        """Send a signal to all ranks that run."""
        for process in self.processes.values():
            process.send_signal(number)

    def stop(self) -> None:
        """End all ranks: after the grace period by SIGTERM, then by SIGKILL."""
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                self.signal(number)
            limit = time.monotonic() + GRACE_S
            while self.processes and time.monotonic() < limit:
                self.ended()
                time.sleep(POLL_S)


def _status(code: int) -> int:
    """The exit status of this process for that of a rank; after a signal 128 + its number."""
    return code if code >= 0 else 128 - code


def launch(command: List[str], count: int, restarts: int = 0) -> int:
    """Run `command` as `count` ranks. Returns 0, or the status of the first rank that failed."""
    ranks = _Ranks(command, count)

    def kill(_number: int, _frame: Any) -> None:
        ranks.signal(signal.SIGKILL)

    def stop(number: int, _frame: Any) -> None:
        for n in SIGNALS:
            signal.signal(n, kill)
        # A second SIGINT would interrupt a rank that saves its state after the first.
        if number != signal.SIGINT or not _is_in_foreground():
            ranks.signal(number)
        raise SystemExit(128 + number)

    before = {n: signal.signal(n, stop) for n in SIGNALS}
    try:
        for rank in range(count):
            ranks.start(rank)
        return _watch(ranks, restarts)
    except SystemExit:
        # A rank that waits in the library does not handle the signal.
        ranks.stop()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(ranks: _Ranks, restarts: int) -> int:
    while ranks.processes:
        for rank, code in ranks.ended().items():
            if code == 0:
                continue
            if restarts > 0:
                restarts -= 1
                print("tutti.horovod: rank %d ended with status %d; it is started again"
                      % (rank, _status(code)), file=sys.stderr, flush=True)
                ranks.start(rank)
                continue
            print("tutti.horovod: rank %d ended with status %d" % (rank, _status(code)),
                  file=sys.stderr, flush=True)
            ranks.stop()
            return _status(code)
        time.sleep(POLL_S)
    return 0
