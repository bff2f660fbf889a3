# SPDX-License-Identifier: BSD-3-Clause
"""python -m tutti.torch build: compile the C++ backend ahead of the first job."""

import argparse
import logging
import sys

from . import build


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tutti.torch", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("build", help="compile the C++ backend, unless that was done")
    one.add_argument("--force", action="store_true", help="compile it again")
    commands.add_parser("path", help="print where the compiled backend is, or will be")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        print(build.build(arguments.force) if arguments.command == "build"
              else build.module_path())
    except (build.BuildError, OSError) as error:
        print("tutti: %s" % error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
