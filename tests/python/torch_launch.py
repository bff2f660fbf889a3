# SPDX-License-Identifier: BSD-3-Clause
"""A rank is killed or stopped under torchrun: the other rank ends with the library's error, and
torchrun with a status that is not 0. Also tests init_process_group under mpirun, as in
docs/pytorch.md."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from typing import Any, Dict

import torch_ranks
from ranks import free_port, mpirun_command, run_mpirun

SECONDS = 60  # for the end of the other rank; only a limit for a machine that is busy
CASE = "TUTTI_TEST_CASE"
FOLDER = "TUTTI_TEST_FOLDER"

# As in docs/pytorch.md, but for MPICH as well.
UNDER_MPIRUN = """
export RANK=${OMPI_COMM_WORLD_RANK:-$PMI_RANK} WORLD_SIZE=${OMPI_COMM_WORLD_SIZE:-$PMI_SIZE}
export LOCAL_RANK=${OMPI_COMM_WORLD_LOCAL_RANK:-$MPI_LOCALRANKID}
exec "$@"
"""


def write(name: str, **values: Any) -> None:
    """Leave a file for the parent. The clock is the same in all processes."""
    with open(os.path.join(os.environ[FOLDER], name), "w") as file:
        json.dump(dict(values, time=time.monotonic()), file)


def read(folder: str, name: str) -> Dict[str, Any]:
    """A file of write()."""
    with open(os.path.join(folder, name)) as file:
        return dict(json.load(file))


def fail(number: int) -> None:
    """A rank. After some calls, rank 1 sends itself a signal. Before SIGSTOP, the group's timeout
    becomes 3 s."""
    import torch
    import torch.distributed as dist
    torch_ranks.use_tutti()
    dist.init_process_group("tutti", timeout=timedelta(seconds=100))
    for _ in range(100):
        dist.all_reduce(torch.ones(1000))
    if number == signal.SIGSTOP:
        dist.set_timeout(timedelta(seconds=3))
    if dist.get_rank() == 1:
        write("signalled")
        os.kill(os.getpid(), number)
    try:
        dist.all_reduce(torch.ones(1000))
    finally:
        write("failed")


def kill() -> None:
    """Rank 1 dies."""
    fail(signal.SIGKILL)


def stop() -> None:
    """Rank 1 stops, but its process stays."""
    fail(signal.SIGSTOP)


def watch(case: str) -> None:
    """Run a case as a child, and report how the child has ended. When a rank has failed, torchrun
    ends the others by SIGTERM, which may come before the other rank has raised its error. So the
    child and this process ignore SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    done = subprocess.run([sys.executable, os.path.abspath(__file__)], text=True,
                          env=dict(os.environ, **{CASE: case}), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    write("ended", status=done.returncode, output=done.stdout)
    sys.exit(done.returncode)


def failing(case: str, backend: str) -> str:
    """Run a case by torchrun. Returns the output of rank 0. Prints the times from the signal to the
    error, and to the end of the process."""
    with tempfile.TemporaryDirectory() as folder:
        done = torch_ranks.torchrun(os.path.abspath(__file__), TORCH_TUTTI=backend,
                                    **{FOLDER: folder, CASE: "watched " + case})
        assert done.returncode != 0, done.stdout
        signalled, failed, ended = (read(folder, name) for name in ("signalled", "failed", "ended"))
    assert ended["status"] == 1, ended  # the status after an exception
    seconds = [moment["time"] - signalled["time"] for moment in (failed, ended)]
    print("%s, %s: rank 0 got the error after %.2f s, and had ended after %.2f s"
          % (case, backend, *seconds), flush=True)
    assert seconds[1] < SECONDS, seconds
    return str(ended["output"])


def test_killed(backend: str) -> None:
    """The other rank gets the error long before the group's timeout."""
    output = failing("kill", backend)
    for words in ("DistBackendError: tutti: ", "rank 1", "lost"):
        assert words in output, output


def test_stopped(backend: str) -> None:
    """The other rank gets the error after the group's timeout."""
    output = failing("stop", backend)
    for words in ("DistBackendError: tutti: ", "rank 1"):
        assert words in output, output


def reduce() -> None:
    """Run one rank: make the group and reduce a tensor, as an unchanged script does."""
    import torch
    import torch.distributed as dist
    torch_ranks.use_tutti()
    dist.init_process_group("tutti", timeout=timedelta(seconds=100))
    t = torch.ones(2) * (dist.get_rank() + 1)
    dist.all_reduce(t)
    os.write(1, b"rank %d of %d, local %s: %d\n" % (dist.get_rank(), dist.get_world_size(),
                                                    os.environ["LOCAL_RANK"].encode(), t[0].item()))
    dist.destroy_process_group()


def test_mpirun(backend: str) -> None:
    """The ranks have the numbers of mpirun, and meet at MASTER_ADDR."""
    begin = mpirun_command(3)
    if begin is None:
        print("under mpirun: skipped, there is no mpirun")
        return
    done = run_mpirun(
        begin + ["sh", "-c", UNDER_MPIRUN, "sh", sys.executable, os.path.abspath(__file__)],
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), TORCH_TUTTI=backend,
        **{CASE: "reduce"})
    assert done.returncode == 0, done.stdout
    for rank in range(3):
        assert "rank %d of 3, local %d: 6\n" % (rank, rank) in done.stdout, done.stdout
    print("under mpirun, %s: passed" % backend, flush=True)


def main() -> int:
    """Returns the exit status. The arguments select tests by parts of their names."""
    if torch_ranks.MISSING:
        print("skipped: %s" % torch_ranks.MISSING)
        return 77
    from tutti.torch import build
    build.build()
    for name, test in sorted(globals().items()):
        if name.startswith("test_") and any(part in name for part in sys.argv[1:] or [""]):
            for backend in ("cpp", "python"):
                test(backend)
    return 0


if __name__ == "__main__":
    case = os.environ.get(CASE, "")
    if not case:
        sys.exit(main())
    words = case.split(" ")
    if words[0] == "watched" and os.environ["RANK"] == "0":
        watch(words[-1])
    globals()[words[-1]]()
