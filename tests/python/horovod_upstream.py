# SPDX-License-Identifier: BSD-3-Clause
"""Runs a test file of Horovod over Tutti: one rank, started by horovod_upstream.sh.

usage: horovod_upstream.py CHECKOUT LOG ARGUMENTS-OF-PYTEST...

The output goes to LOG.RANK, because the lines of ranks that print at the same time would mix.
"""

import os
import sys
import types

from tutti.horovod import install


def stand_in() -> None:
    """Horovod's own helpers for its tests import a part of its launcher that no test here uses."""
    name = "horovod"
    for part in ("runner", "util", "threads"):
        name += "." + part
        sys.modules[name] = types.ModuleType(name)
    sys.modules[name].in_thread = None  # type: ignore[attr-defined]


def main() -> int:
    """Returns the status of pytest."""
    checkout, log = sys.argv[1:3]
    with open("%s.%s" % (log, os.environ.get("OMPI_COMM_WORLD_RANK", "0")), "wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    install()
    stand_in()
    sys.path.insert(0, os.path.join(checkout, "test", "utils"))
    import pytest
    return int(pytest.main(["-v", "--tb=short", "-p", "no:cacheprovider"] + sys.argv[3:]))


sys.exit(main())
