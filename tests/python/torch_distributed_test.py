# SPDX-License-Identifier: BSD-3-Clause
"""Runs torch's own DistributedTest, which is in the wheel, over a backend.

    torch_distributed_test.py [--ranks 2,3,4,8] [--only PART]
                            over gloo and over tutti; fails if gloo passes a test that tutti does
                            not pass and that is not in EXPECTED
    torch_distributed_test.py --backend tutti|gloo [--ranks 2,3,4,8] [--only PART]
                            over one backend; fails if a test fails

With 8 ranks or more, this driver runs only the tests that the suite skips with fewer ranks. The
suite starts new processes for each test. This driver imports torch once and forks a child per rank
and test. Only tests for host memory run.
"""

import argparse
import io
import os
import signal
import sys
import tempfile
import time
import unittest
from datetime import timedelta
from typing import Any, Dict, List, Tuple

import torch_ranks

SECONDS = 60  # for one test

# Tests that gloo passes and tutti does not, with the reason.
_NAMES = "the test sets its model only for the names gloo, nccl and mpi"
EXPECTED: Dict[str, str] = {
    "test_accumulate_gradients_no_sync": _NAMES,
    "test_accumulate_gradients_no_sync_allreduce_hook": _NAMES,
    "test_accumulate_gradients_no_sync_allreduce_with_then_hook": _NAMES,
    "test_accumulate_gradients_no_sync_grad_is_view": _NAMES,
    "test_ddp_logging_data_cpu": "torch calls every backend from outside \"custom\" there",
}

# Before torch 2.14, monitored_barrier itself refuses every other name than gloo.
EXPECTED_BEFORE_2_14 = dict.fromkeys(
    ("test_monitored_barrier_failure_order", "test_monitored_barrier_gloo",
     "test_monitored_barrier_gloo_subgroup", "test_monitored_barrier_wait_all_ranks"),
    "torch < 2.14 accepts gloo only")

# Tests that do not test a backend: profilers, sleeping, GPUs. The entries are parts of names.
LEFT_OUT = ("profiler", "cuda", "gpu", "nccl", "timeout_global", "timeout_group",
            "timeout_full_group")


def needs_eight(test: Any) -> bool:
    """Whether the suite skips a test with fewer than 8 ranks: the decorator has this word."""
    while test is not None:
        if "small_worldsize" in test.__code__.co_consts:
            return True
        test = getattr(test, "__wrapped__", None)
    return False


def prepare(backend: str, size: int) -> Any:
    """The suite's class for a backend. The suite's environment must be set before the import."""
    os.environ.update(BACKEND=backend, WORLD_SIZE=str(size), TEMP_DIR=tempfile.gettempdir(),
                      INIT_METHOD="", MASTER_ADDR="127.0.0.1")
    sys.argv = sys.argv[:1]
    from torch.testing._internal import common_distributed
    if backend == "tutti":
        torch_ranks.use_tutti()
        from tutti.torch import build
        build.build()
        features = common_distributed.DistTestCases.backend_feature
        for name in ("plugin", "ddp", "subgroup"):
            features.setdefault(name, set()).add("tutti")
    from torch.testing._internal.distributed import distributed_test

    class Suite(distributed_test.TestDistBackend,  # type: ignore[misc,name-defined]
                distributed_test.DistributedTest._DistTestBase):
        """The tests of the suite. This driver starts the processes that the suite itself would
        start."""

    return Suite


def child(suite: Any, name: str, rank: int, size: int, folder: str, out: int) -> None:
    """Run one test as one rank; never returns. Writes to `out` the verdict as one letter (P, S, F
    or E, see run_test), and the text of the error or of the skip."""
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed import distributed_test
    verdict, text = "F", ""
    try:
        os.environ["TEMP_DIR"] = folder
        distributed_test.INIT_METHOD = "file://%s/init/file" % folder
        distributed_test.TEMP_DIR = folder
        torch.set_num_threads(1)
        torch.manual_seed(0)
        test = suite(name)
        test.rank = rank
        test.file_name = folder + "/init/file"
        dist.init_process_group(init_method="file://%s/init/file" % folder,
                                backend=os.environ["BACKEND"], world_size=size, rank=rank,
                                timeout=timedelta(seconds=distributed_test.CUSTOM_PG_TIMEOUT.get(
                                    name, SECONDS)))
        test._barrier(timeout=SECONDS)
        function = getattr(test, name)
        # The decorators of the suite choose between parent and rank by the attribute `rank`.
        function()
        verdict = "P"
        test._barrier(timeout=SECONDS)
        dist.destroy_process_group()
    except unittest.SkipTest as skip:
        verdict, text = "S", str(skip)
    except SystemExit as end:
        verdict, text = "S", "exit %s" % end.code
    except BaseException as error:
        import traceback
        verdict = "F" if verdict != "P" else "E"
        text = "%s: %s\n%s" % (type(error).__name__, error, traceback.format_exc()[-1500:])
    finally:
        os.write(out, (verdict + text).encode()[:6000])
        sys.stdout.flush()
        os._exit(0)


def run_ranks(suite: Any, name: str, size: int, folder: str) -> List[Tuple[str, str]]:
    """Runs a test in `size` processes; returns each rank's verdict and text."""
    children = []
    for rank in range(size):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(1, 2)
            child(suite, name, rank, size, folder, writer)
        os.close(writer)
        children.append((pid, reader))
    end, verdicts = time.monotonic() + SECONDS, []
    for pid, reader in children:
        done = 0
        while not done and time.monotonic() < end:
            done, status = os.waitpid(pid, os.WNOHANG)
            time.sleep(0.005)
        if not done:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        with os.fdopen(reader, "rb") as pipe:
            text = pipe.read().decode(errors="replace")
        verdicts.append((text[:1], text[1:]) if text else
                        ("T", "hung" if not done else "ended by status %d" % status))
    return verdicts


def run_test(suite: Any, name: str, size: int) -> Tuple[str, str]:
    """The verdict of a test over all ranks: P, S, F (failed), E (failed at the end), T (hung)."""
    with tempfile.TemporaryDirectory(prefix="tutti-dist-") as folder:
        for part in ("barrier", "test_dir", "init"):
            os.mkdir(os.path.join(folder, part))
        verdicts = run_ranks(suite, name, size, folder)
    for letter in "TFE":
        for verdict, text in verdicts:
            if verdict == letter:
                return letter, text
    if any(verdict == "S" for verdict, _ in verdicts):
        return "S", [text for verdict, text in verdicts if verdict == "S"][0]
    return "P", ""


def run_suite(backend: str, size: int, only: str, names: List[str]) -> Dict[str, Tuple[str, str]]:
    """All tests of the suite."""
    suite = prepare(backend, size)
    results = {}
    for name in sorted(dir(suite)):
        if not name.startswith("test_") or any(part in name for part in LEFT_OUT):
            continue
        if only and only not in name or names and name not in names:
            continue
        if needs_eight(getattr(suite, name)) != (size >= 8):
            continue
        results[name] = run_test(suite, name, size)
        letter, text = results[name]
        print("%s %s %d %s%s" % (letter, backend, size, name,
                                 "" if letter == "P" else ": " + text.split("\n")[0][:200]),
              flush=True)
        if only and letter in "FET":
            print(text)
    return results


def in_process(backend: str, size: int, only: str, names: List[str]) -> Dict[str, str]:
    """run_suite in a child: the suite reads backend and size when it is imported."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        results = run_suite(backend, size, only, names)
        os.write(writer, " ".join("%s:%s" % (n, v[0]) for n, v in results.items()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(pid, 0)
    return dict(item.split(":") for item in text.split())


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="")
    parser.add_argument("--ranks", default="2,3,4,8")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    if torch_ranks.MISSING:
        print("skipped: %s" % torch_ranks.MISSING)
        return 77
    import torch
    if tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 14):
        EXPECTED.update(EXPECTED_BEFORE_2_14)
    bad = 0
    for size in [int(n) for n in arguments.ranks.split(",")]:
        names: List[str] = []
        if not arguments.backend:
            gloo = in_process("gloo", size, arguments.only, [])
            names = [name for name, letter in gloo.items() if letter == "P"]
        mine = in_process(arguments.backend or "tutti", size, arguments.only, names)
        if not mine or not arguments.backend and not names:
            print("%d ranks: the suite did not run" % size)
            bad += 1
        counts = {letter: list(mine.values()).count(letter) for letter in "PSFET"}
        print("%d ranks, %s: %s" % (size, arguments.backend or "tutti", counts))
        if not arguments.backend:
            differ = [n for n in names if mine.get(n) != "P"]
            new = [n for n in differ if n not in EXPECTED]
            print("%d ranks: gloo passes %d, tutti %d of them; not expected: %s"
                  % (size, len(names), len(names) - len(differ), " ".join(new) or "none"))
            bad += len(new)
        else:
            bad += counts["F"] + counts["E"] + counts["T"]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
