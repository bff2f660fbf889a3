# SPDX-License-Identifier: BSD-3-Clause
"""Runs the functions of a torch test as the ranks of a job.

`import torch` takes seconds, so the ranks are forked from a process that has imported it. The
parent makes no tensors and no threads. A test is a function of (rank, size) that begins with
`test_`. main() runs each test with each number of ranks and each backend. The status is 0, 1 after
a failure, or 77 if there is no torch.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from datetime import timedelta
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

try:
    import torch
    import torch.distributed as dist
    MISSING = "" if dist.is_available() else "this torch has no torch.distributed"
except ImportError as error:
    MISSING = str(error)

SECONDS = 120  # for one job; only a limit for ranks that hang
_listener = _port = -1  # of the store of the present job
Result = Tuple[int, str]  # status as of waitpid, and the traceback


def use_tutti() -> None:
    """Make "tutti" known if the package is on the path but not installed."""
    import tutti.torch
    if not hasattr(dist.Backend, "TUTTI"):
        tutti.torch.register()


def store(seconds: float = 60) -> Any:
    """The store of the job. A rank may call this once. The store's port was bound before the ranks
    were forked, so that no other program can take it."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return dist.TCPStore("127.0.0.1", _port, size, rank == 0, timedelta(seconds=seconds),
                         master_listen_fd=_listener if rank == 0 else None,
                         wait_for_workers=False, use_libuv=False)


def init(backend: str = "tutti", seconds: float = 60, **more: Any) -> None:
    """init_process_group over the store of the job."""
    dist.init_process_group(backend, store=store(), rank=int(os.environ["RANK"]),
                            world_size=int(os.environ["WORLD_SIZE"]),
                            timeout=timedelta(seconds=seconds), **more)


def _child(function: Callable[..., None], rank: int, size: int, environment: Dict[str, str],
           out: int) -> None:
    """Run as a rank. Never returns."""
    status = 1
    try:
        os.environ.update(environment, RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank),
                          LOCAL_WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1")
        torch.set_num_threads(1)
        torch.manual_seed(rank)
        function(rank, size)
        status = 0
    except BaseException:
        os.write(out, traceback.format_exc().encode()[-8000:])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def start(function: Callable[..., None], size: int,
          environment: Optional[Dict[str, str]] = None) -> List[Tuple[int, int]]:
    """Fork the ranks. Returns process id and pipe of each."""
    global _listener, _port
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    _listener, _port = listener.fileno(), int(listener.getsockname()[1])
    ranks = []
    for rank in range(size):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            _child(function, rank, size, environment or {}, writer)
        os.close(writer)
        ranks.append((pid, reader))
    listener.close()
    return ranks


def finish(ranks: List[Tuple[int, int]], seconds: float = SECONDS) -> List[Result]:
    """Wait for the ranks. Ranks that hang are killed."""
    end = time.monotonic() + seconds
    results = []
    for pid, reader in ranks:
        words = ""
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                break
            if time.monotonic() > end:
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
                words = "killed after %g s" % seconds
                status = os.waitpid(pid, 0)[1]
                break
            time.sleep(0.01)
        with os.fdopen(reader, "rb") as pipe:
            text = pipe.read().decode(errors="replace")
        results.append((status, text + words))
    return results


def run(function: Callable[..., None], size: int, environment: Optional[Dict[str, str]] = None,
        seconds: float = SECONDS) -> List[Result]:
    """Run a function as the ranks of a job."""
    return finish(start(function, size, environment), seconds)


def torchrun(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run 2 ranks by torchrun with these arguments. Output and errors are in `stdout`."""
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone",
         *arguments], env=dict(os.environ, **environment), timeout=300, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True)


def words(function: Callable[[], Any], *patterns: str) -> str:
    """Returns the text of the error that a function must raise. The text must match each
    pattern."""
    try:
        function()
    except Exception as error:
        text = str(error)
    else:
        raise AssertionError("no error was raised")
    for pattern in patterns:
        assert pattern in text, "%r is not in %r" % (pattern, text)
    return text


def temporary() -> str:
    """A new folder, which the test leaves to the system's cleaning."""
    return tempfile.mkdtemp(prefix="tutti-test-")


def main(sizes: Iterable[int], backends: Iterable[str] = ("cpp", "python")) -> None:
    """Run the functions test_* of the calling script. Arguments select functions by a part of the
    name. A function may have these attributes: `sizes` and `backends`; `seconds`, a limit for ranks
    that hang; `fatal`, the ranks that do not end by themselves, or that end with another status
    than 0."""
    if MISSING:
        print("skipped: %s" % MISSING)
        sys.exit(77)
    use_tutti()
    import __main__
    from tutti.torch import build
    build.build()
    failed = jobs = 0
    for name, function in sorted(vars(__main__).items()):
        if not name.startswith("test_") or not callable(function):
            continue
        if len(sys.argv) > 1 and not any(part in name for part in sys.argv[1:]):
            continue
        for backend in getattr(function, "backends", backends):
            for size in getattr(function, "sizes", sizes):
                began = time.monotonic()
                ranks = start(function, size, {"TORCH_TUTTI": backend})
                fatal = getattr(function, "fatal", ())  # ranks that do not end by themselves
                results = finish([r for i, r in enumerate(ranks) if i not in fatal],
                                 getattr(function, "seconds", SECONDS))
                finish([r for i, r in enumerate(ranks) if i in fatal], 0)
                bad = [rank for rank, (status, _) in enumerate(results) if status]
                jobs += 1
                failed += bool(bad)
                print("%s, %s, %d ranks: %s (%.1f s)" % (name, backend, size,
                                                         "FAILED" if bad else "passed",
                                                         time.monotonic() - began), flush=True)
                for rank in bad:
                    print("--- rank %d, status %d:\n%s" % (rank, *results[rank]))
    print("%d jobs: %d failed" % (jobs, failed))
    sys.exit(1 if failed or not jobs else 0)
