# SPDX-License-Identifier: BSD-3-Clause
"""Runs an unchanged script that uses Horovod over Tutti.

    mpirun -np 4 python -m tutti.horovod train.py --epochs 3
    torchrun --nproc-per-node 4 -m tutti.horovod train.py --epochs 3
    python -m tutti.horovod -np 4 train.py --epochs 3        ranks on this host, no launcher
    python -m tutti.horovod -m package.train --epochs 3      a module instead of a file

With -np and --restarts N, a rank that dies is started again, at most N times in all; the others
must be able to wait for it: see elastic.run.
"""

import argparse
import os
import runpy
import sys
from typing import List, Optional

from . import _install
from ._launch import launch


def _parse(arguments: List[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tutti.horovod",
                                     description="Run a script that uses Horovod over Tutti.")
    parser.add_argument("-np", "--num-proc", type=int, metavar="N",
                        help="start N ranks on this host; without it, this process is one rank")
    parser.add_argument("--restarts", type=int, default=0, metavar="N",
                        help="with -np: start a rank that died again, N times in all")
    parser.add_argument("-m", dest="module", action="store_true",
                        help="run a module, as python -m does")
    parser.add_argument("script", help="the script, or the module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    if options.num_proc is not None and options.num_proc < 1:
        parser.error("-np is 1 or more")
    if options.restarts and options.num_proc is None:
        parser.error("--restarts needs -np")
    return options


def main(arguments: Optional[List[str]] = None) -> int:
    """Returns the exit status."""
    options = _parse(sys.argv[1:] if arguments is None else arguments)
    if options.num_proc is not None:
        command = [sys.executable, "-m", "tutti.horovod"]
        command += ["-m"] if options.module else []
        return launch(command + [options.script] + options.arguments, options.num_proc,
                      options.restarts)
    _install.install()
    _install.install_in_children()
    sys.argv = [options.script] + options.arguments
    if options.module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(options.script, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(options.script)))
        runpy.run_path(options.script, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
