# SPDX-License-Identifier: BSD-3-Clause
"""python -m tutti.horovod -np: an interrupt also ends ranks that do not handle it."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import unittest
from typing import Any, List

SECONDS = 60  # a limit for a launcher that hangs

# With a further argument it reports the signals that it passes on.
LAUNCHER = """
import os, sys
from tutti.horovod import _launch
_launch.GRACE_S = float(sys.argv[1])
pass_on = _launch._Ranks.signal
def report(ranks, number):
    if len(sys.argv) > 3:
        os.write(1, b"passed on: %d\\n" % number)
    pass_on(ranks, number)
_launch._Ranks.signal = report
sys.exit(_launch.launch([sys.executable, "-c", sys.argv[2]], 2))
"""

# As in a call of the library, Python's handlers do not run. With PYTHONUNBUFFERED, print() writes
# the end of a line separately, so the lines of two ranks could mix. os.write writes a whole line.
RANK = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
os.write(1, b"%d\\n" % os.getpid())
signal.sigwait({signal.SIGINT})
os.write(1, b"interrupted\\n")
signal.pause()
"""


class Interrupts(unittest.TestCase):
    """The launcher and its two ranks write into one pipe."""

    def interrupt(self, launcher: "subprocess.Popen[str]") -> List[int]:
        """Interrupt the launcher when both ranks run, and return the ranks' process numbers when
        they have received the signal."""
        pids = [int(launcher.stdout.readline()) for _ in range(2)]
        self.addCleanup(self.kill, pids)
        launcher.send_signal(signal.SIGINT)
        for _ in range(2):
            self.assertEqual(launcher.stdout.readline(), "interrupted\n")
        return pids

    def kill(self, pids: List[int]) -> None:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def start(self, grace_s: float, *arguments: str, **more: Any) -> "subprocess.Popen[str]":
        launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, str(grace_s), RANK,
                                     *arguments], stdout=subprocess.PIPE, text=True, **more)
        self.addCleanup(launcher.stdout.close)
        return launcher

    def check_ended(self, launcher: "subprocess.Popen[str]", pids: List[int]) -> None:
        self.assertEqual(launcher.wait(SECONDS), 128 + signal.SIGINT)
        for pid in pids:
            with self.assertRaises(ProcessLookupError):
                os.kill(pid, 0)

    def test_once(self) -> None:
        """After one interrupt, the launcher ends such ranks when the grace period is over."""
        launcher = self.start(0.2)
        self.check_ended(launcher, self.interrupt(launcher))

    def test_twice(self) -> None:
        """After a second interrupt, the launcher ends the ranks at once. The grace period is longer
        than this test may take."""
        launcher = self.start(10.0 * SECONDS)
        pids = self.interrupt(launcher)
        launcher.send_signal(signal.SIGINT)
        self.check_ended(launcher, pids)

    def test_terminal(self) -> None:
        """The terminal interrupts all ranks, so the launcher does not interrupt them again."""
        controller, terminal = pty.openpty()
        self.addCleanup(os.close, controller)
        self.addCleanup(os.close, terminal)
        launcher = self.start(0.2, "report", stdin=terminal, start_new_session=True,
                              preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        pids = [int(launcher.stdout.readline()) for _ in range(2)]
        self.addCleanup(self.kill, pids)
        os.write(controller, b"\x03")
        lines = launcher.stdout.readlines()
        self.assertEqual(lines.count("interrupted\n"), 2, lines)
        self.assertNotIn("passed on: %d\n" % signal.SIGINT, lines)
        self.check_ended(launcher, pids)


if __name__ == "__main__":
    unittest.main()
