# SPDX-License-Identifier: BSD-3-Clause
"""Starts the ranks of a horovod_*.py test. This is not a test itself.

A test is a script with unittest classes whose methods all ranks run in the same order, and with

    if __name__ == "__main__":
        horovod_jobs.main(env=(1, 2, 3), mpi=(2,))

As a parent the script starts itself once for each number of ranks, by env:// and by mpirun; as a
rank it runs the methods. If a method fails, its rank and the job end. The last line of the output
counts jobs. The status is 0, 1 after a failure, or 77 if everything was skipped. Tests with
"tensorflow" or "keras" in their names are for TensorFlow, all others for torch. With
TUTTI_TEST_TORCH_DEVICE=cuda, torch makes its tensors on the GPUs.
"""

import faulthandler
import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ranks import free_port, only_pid_0

SECONDS = 240  # for one job; only a limit for ranks that hang
IS_RANK = "TUTTI_TEST_HOROVOD_RANK"
PYTHON = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")

try:
    import tutti  # noqa: F401, an installed package
except ImportError:
    sys.path.insert(0, os.path.abspath(PYTHON))

_name = os.path.basename(sys.argv[0])
FRAMEWORK = "tensorflow" if "tensorflow" in _name or "keras" in _name else "torch"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only
try:
    framework: Any = importlib.import_module(FRAMEWORK)
except ImportError as _error:
    print("skipped: %s cannot be imported: %s" % (FRAMEWORK, _error))
    sys.exit(77)

Result = Tuple[int, str]  # status and output


def environment(**more: str) -> Dict[str, str]:
    """The environment of a rank: with this tree's package unless one is installed, and with one
    thread for the framework."""
    env = dict(os.environ, **more)
    if sys.path[0] == os.path.abspath(PYTHON):
        env["PYTHONPATH"] = os.pathsep.join(
            [sys.path[0]] + [p for p in [env.get("PYTHONPATH")] if p])
    env.update(OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1",
               OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return env


def start(command: List[str], size: int, **more: str) -> List["subprocess.Popen[str]"]:
    """Start `size` ranks by env://, each with its output in a pipe."""
    port = str(free_port())
    return [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True,
                             env=environment(RANK=str(rank), WORLD_SIZE=str(size),
                                             LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size),
                                             MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **more))
            for rank in range(size)]


def finish(processes: Sequence["subprocess.Popen[str]"]) -> List[Result]:
    """Wait for processes. Processes that hang are ended."""
    end = time.monotonic() + SECONDS
    results = []
    for rank, process in enumerate(processes):
        try:
            output = process.communicate(timeout=max(0.1, end - time.monotonic()))[0]
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            output = process.communicate()[0] + "\nprocess %d hung and was ended\n" % rank
        results.append((process.returncode, output))
    return results


def run(command: List[str], **more: str) -> Result:
    """Run one process. If mpirun fails only because it names a process 0, it runs again."""
    for _ in range(4):
        result = finish([subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                          env=environment(**more))])[0]
        if not only_pid_0(*result):
            break
    return result


def mpirun(size: int) -> Optional[List[str]]:
    """The beginning of a command that starts ranks by MPI; None without a launcher."""
    program = os.environ.get("MPIRUN") or shutil.which("mpirun")
    if not program:
        return None
    text = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True).stdout
    more = ["--oversubscribe", "--bind-to", "none"] if "Open MPI" in text else []
    return [program, "-np", str(size)] + more


def _use_device() -> None:
    device = os.environ.get("TUTTI_TEST_TORCH_DEVICE", "cpu")
    if device == "cuda":
        local = int(os.environ.get("LOCAL_RANK") or os.environ["OMPI_COMM_WORLD_LOCAL_RANK"])
        framework.cuda.set_device(local % framework.cuda.device_count())
        framework.zeros(1, device=device)  # so CUDA is in the process before init()
        framework.set_default_device(device)


def _be_rank() -> None:
    faulthandler.dump_traceback_later(SECONDS - 20, exit=True)  # shows where the rank hangs
    if FRAMEWORK == "torch":
        framework.set_num_threads(1)
        _use_device()
    else:
        framework.config.threading.set_intra_op_parallelism_threads(1)
    importlib.import_module("tutti.horovod." + FRAMEWORK).init()
    unittest.main(failfast=True, verbosity=0, argv=sys.argv[:1] + sys.argv[1:])


def _jobs(env: Sequence[int], mpi: Sequence[int]) -> List[Tuple[str, Any]]:
    script = [sys.executable, os.path.abspath(sys.argv[0])] + sys.argv[1:]
    jobs: List[Tuple[str, Any]] = []
    for size in env:
        jobs.append(("%d ranks, env://" % size,
                     lambda size=size: finish(start(script, size, **{IS_RANK: "1"}))))
    for size in mpi:
        begin = mpirun(size)
        jobs.append(("%d ranks, mpirun" % size, None if begin is None else
                     lambda begin=begin: [run(begin + script, **{IS_RANK: "1"})]))
    return jobs


def main(env: Sequence[int] = (1, 2, 3), mpi: Sequence[int] = ()) -> None:
    """Be the parent or a rank; see above. env, mpi: numbers of ranks."""
    if IS_RANK in os.environ:
        _be_rank()
    failed = skipped = 0
    jobs = _jobs(env, mpi)
    for name, job in jobs:
        if job is None:
            skipped += 1
            print("%s: skipped, there is no mpirun" % name)
            continue
        results = job()
        bad = [(rank, result) for rank, result in enumerate(results) if result[0] != 0]
        failed += bool(bad)
        print("%s: %s" % (name, "failed" if bad else "passed"), flush=True)
        for rank, (status, output) in bad:
            print("--- process %d, status %d:\n%s" % (rank, status, output))
    finish_counts(len(jobs), failed, skipped)


def finish_counts(jobs: int, failed: int, skipped: int) -> None:
    """Print the last line and end."""
    print("%d jobs: %d failed, %d skipped" % (jobs, failed, skipped))
    sys.exit(1 if failed else 77 if skipped == jobs else 0)
