# SPDX-License-Identifier: BSD-3-Clause
"""Compares tutti.horovod with Horovod itself: interleaved runs of horovod_loop.py.

    python bench/python/compare_horovod.py --peer PYTHON [--python PYTHON] [--ranks 2] [--rounds 5]

    --peer    an interpreter with Horovod; docs/horovod.md describes how to build it
    --python  an interpreter with tutti and torch; by default this one

Each round runs Tutti, Horovod with its cycle time of 1 ms, and Horovod with 0.1 ms. Prints for each
case the median over all rounds, the lower and upper quartile, and Tutti's share of the better
Horovod.
"""

import argparse
import os
import statistics
import subprocess
import sys
from typing import Dict, List

HERE = os.path.dirname(os.path.abspath(__file__))


def one_run(python: str, module: str, ranks: int, **more: str) -> Dict[str, List[float]]:
    """The times of each case in one run."""
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), python,
               os.path.join(HERE, "horovod_loop.py"), module, "--optimizer"]
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
               OMP_NUM_THREADS="1", **more)
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("%s has failed:\n%s" % (" ".join(command), done.stderr))
    lines = [line.split(": ") for line in done.stdout.splitlines() if ": " in line]
    return {name: [float(value) for value in values.split()] for name, values in lines}


def table(times: Dict[str, Dict[str, List[float]]]) -> None:
    """Print medians, quartiles and shares."""
    for case, by_who in times.items():
        median = {who: statistics.median(values) for who, values in by_who.items()}
        for who, values in by_who.items():
            low, _, high = statistics.quantiles(values, n=4)
            print("%-22s %-15s %10.1f us  (%.1f to %.1f)" % (case, who, median[who], low, high))
        peer = min(value for who, value in median.items() if who != "tutti")
        print("%-22s share %.3f\n" % (case, median["tutti"] / peer), flush=True)


def main() -> None:
    """Run the rounds; print the table after each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    runs = {"tutti": (options.python, "tutti.horovod.torch", {}),
            "horovod 1 ms": (options.peer, "horovod.torch", {"HOROVOD_CYCLE_TIME": "1"}),
            "horovod 0.1 ms": (options.peer, "horovod.torch", {"HOROVOD_CYCLE_TIME": "0.1"})}
    times: Dict[str, Dict[str, List[float]]] = {}
    for number in range(options.rounds):
        for who, (python, module, more) in runs.items():
            for case, values in one_run(python, module, options.ranks, **more).items():
                times.setdefault(case, {}).setdefault(who, []).extend(values)
        print("---- after round %d ----" % (number + 1))
        table(times)


if __name__ == "__main__":
    main()
