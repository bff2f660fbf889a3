# SPDX-License-Identifier: BSD-3-Clause
"""Runs each example by torchrun with 2 ranks, over tutti and over gloo. The losses must be
equal. Then runs restart_script.py, in which a rank fails before it has made its group."""

import os
import re
import sys
import tempfile
from typing import List

import torch_ranks

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "python")
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "restart_script.py")
EXAMPLES = ["ddp", "fsdp", "zero", "powersgd", "tensor_parallel", "pipeline", "elastic"]


def run(restarts: int, script: str, *arguments: str, **environment: str) -> str:
    """Run a script by torchrun with 2 ranks. Returns its output."""
    done = torch_ranks.torchrun("--max-restarts", str(restarts), script, *arguments, **environment)
    assert done.returncode == 0, done.stdout
    return done.stdout


def losses(name: str, backend: str) -> List[float]:
    """The losses that an example prints, one for each epoch."""
    with tempfile.TemporaryDirectory() as folder:
        text = run(int(name == "elastic"), os.path.join(FOLDER, name + ".py"), backend,
                   CHECKPOINT=os.path.join(folder, "elastic.pt"))
    if name == "elastic":
        assert "goes on with epoch 1" in text, text
    return [float(loss) for loss in re.findall(r"loss ([0-9.]+)", text)]


def losses_of_gloo(name: str) -> List[float]:
    """The same with gloo, whose threads sometimes abort a process at its end. With gloo, elastic.py
    sometimes hangs when a rank dies. Without the death it trains like ddp.py, so ddp.py is used
    instead."""
    name = "ddp" if name == "elastic" else name
    for _ in range(2):
        try:
            return losses(name, "gloo")
        except AssertionError as error:
            if "terminate called without an active exception" not in str(error):
                raise
    return losses(name, "gloo")


def main() -> int:
    """Returns the exit status. The arguments select examples."""
    if torch_ranks.MISSING:
        print("skipped: %s" % torch_ranks.MISSING)
        return 77
    for name in sys.argv[1:] or EXAMPLES + ["restart"]:
        if name == "restart":
            for failing, backend in ((0, "cpp"), (0, "python"), (1, "cpp"), (1, "python")):
                run(1, SCRIPT, str(failing), TORCH_TUTTI=backend)
                print("restart, %s: rank %d has failed" % (backend, failing), flush=True)
            continue
        mine = losses(name, "tutti")
        assert len(mine) == 3 and mine[2] < 0.5 * mine[0], mine
        if name != "powersgd":  # gloo fails with several buckets
            theirs = losses_of_gloo(name)
            assert all(abs(a - b) < 0.01 * max(1, b) for a, b in zip(mine, theirs)), (mine, theirs)
        print("%s: %s" % (name, mine), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
