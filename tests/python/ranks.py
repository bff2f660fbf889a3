# SPDX-License-Identifier: BSD-3-Clause
"""Starts the ranks of a test as processes.

A test is a script with a unittest.TestCase, whose methods all ranks run in the same order, and with

    if __name__ == "__main__":
        ranks.main(sizes=(1, 2, 3))

As a parent the script starts itself once for each number of ranks; as a rank it runs the methods.
If a method fails, its rank ends, and then the other ranks end. The last line of the output counts
jobs. The status is 0, 1 after a failure, or 77 if everything was skipped.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import unittest
from typing import Callable, Dict, Iterable, List, Optional, Tuple

SECONDS = 300  # for one job; only a limit for ranks that hang
IS_RANK = "TUTTI_TEST_RANK"


_held: List[socket.socket] = []


def free_port() -> int:
    """A free port. A socket of this process stays bound to it, so that no other process is given
    it. Rank 0 can listen there, because both sockets have SO_REUSEADDR."""
    holder = socket.socket()
    _held.append(holder)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return int(holder.getsockname()[1])


def environment(rank: int, size: int, port: int) -> Dict[str, str]:
    """The variables of env://, for one rank on this host."""
    return dict(os.environ, RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank),
                LOCAL_WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))


def start(command: List[str], size: int, more: Optional[Dict[str, str]] = None) -> \
        List["subprocess.Popen[str]"]:
    """Start `size` ranks by env://, each with its output in a pipe."""
    port = free_port()
    return [subprocess.Popen(command, env=dict(environment(rank, size, port), **(more or {})),
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
            for rank in range(size)]


def finish(processes: List["subprocess.Popen[str]"], seconds: float = SECONDS) -> \
        List[Tuple[int, str]]:
    """Wait for the ranks. Ranks that hang are ended. Returns the status and the output of each
    rank."""
    end = time.monotonic() + seconds
    results = []
    for rank, process in enumerate(processes):
        try:
            output = process.communicate(timeout=max(0.1, end - time.monotonic()))[0]
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            output = process.communicate()[0] + "\nrank %d was ended after %d s\n" % (rank, seconds)
        results.append((process.returncode, output))
    return results


def mpirun_command(size: int) -> Optional[List[str]]:
    """The beginning of a command that starts ranks by MPI, or None without a launcher."""
    program = os.environ.get("MPIRUN") or "mpirun"
    try:
        seen = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True)
    except OSError:
        return None
    more = ["--oversubscribe", "--bind-to", "none"] if "Open MPI" in seen.stdout else []
    return [program, "-np", str(size)] + more


def only_pid_0(status: int, output: str) -> bool:
    """Did mpirun fail only because it names a process 0? See tests/repeat.sh."""
    return (status not in (0, 124, 137)
            and re.search("has exited due to process rank .* with PID 0 on", output) is not None
            and re.search("exited on signal|non-zero", output) is None)


def run_mpirun(command: List[str], **more: str) -> "subprocess.CompletedProcess[str]":
    """Run a command that begins as mpirun_command(), with more variables. The counterpart of
    by_mpirun in tests/repeat.sh."""
    for _ in range(4):
        done = subprocess.run(command, env=dict(os.environ, **more), timeout=SECONDS, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if not only_pid_0(done.returncode, done.stdout):
            break
    return done


def run_script(path: str, size: int, more: Optional[Dict[str, str]] = None) -> \
        List[Tuple[int, str]]:
    """Run a script as `size` ranks by env://."""
    return finish(start([sys.executable, path], size, dict(more or {}, **{IS_RANK: "1"})))


def _is_rank() -> bool:
    return IS_RANK in os.environ


def main(sizes: Iterable[int] = (1, 2, 3), before: Optional[Callable[[], None]] = None) -> None:
    """Be the parent or a rank; see above.

    sizes   the numbers of ranks; TUTTI_TEST_SIZES="2,3" replaces them
    before  a function, such as tutti.init, that each rank calls before its tests
    """
    if _is_rank():
        if before is not None:
            before()
        unittest.main(failfast=True, verbosity=0)
    if "TUTTI_TEST_SIZES" in os.environ:
        sizes = [int(size) for size in os.environ["TUTTI_TEST_SIZES"].split(",")]
    script = os.path.abspath(sys.argv[0])
    failed = skipped = jobs = 0
    for size in sizes:
        jobs += 1
        results = run_script(script, size)
        if all(status == 77 for status, _ in results):
            skipped += 1
            print("%d ranks: skipped: %s" % (size, results[0][1].strip()))
            continue
        bad = [rank for rank, (status, _) in enumerate(results) if status != 0]
        failed += bool(bad)
        print("%d ranks: %s" % (size, "failed" if bad else "passed"))
        for rank in bad:
            print("--- rank %d, status %d:\n%s" % (rank, results[rank][0], results[rank][1]))
    print("%d jobs: %d failed, %d skipped" % (jobs, failed, skipped))
    sys.exit(1 if failed else 77 if skipped == jobs else 0)
