# SPDX-License-Identifier: BSD-3-Clause
"""A trace of all ranks: one file, which Perfetto's own trace processor opens. The trace processor
needs the package perfetto, and the program that this package downloads. Without them that test is
skipped."""

import json
import os
import shutil
import tempfile
import unittest

import numpy as np

import ranks
import tutti
from tutti import _lib
from tutti._lib import lib

STEPS = 8  # the last ones are a learned plan


class Trace(unittest.TestCase):
    def setUp(self) -> None:
        self.world = tutti.world()
        folder = np.zeros(256, np.uint8)
        if self.world.rank == 0:
            text = tempfile.mkdtemp().encode()
            folder[:len(text)] = np.frombuffer(text, np.uint8)
        tutti.broadcast(folder, 0)
        self.folder = bytes(folder).rstrip(b"\0").decode()
        self.path = os.path.join(self.folder, "trace.json")
        self._make()

    def tearDown(self) -> None:
        tutti.barrier()
        if self.world.rank == 0:
            shutil.rmtree(self.folder)

    def _make(self) -> None:
        _lib.check(lib.tutti_trace_start(self.path.encode()))
        tutti.barrier()
        for _ in range(STEPS):
            tutti.allreduce_async("traced", np.ones(100)).wait()
        _lib.check(lib.tutti_trace_stop())
        tutti.barrier()

    def test_json(self) -> None:
        with open(self.path) as file:
            events = json.load(file)["traceEvents"]
        for name in ("submit", "agree", "bucket", "wait"):
            for rank in range(self.world.size):
                found = [e for e in events if e["name"] == name and e["pid"] == rank]
                self.assertEqual(len(found), STEPS, (name, rank))

    def test_perfetto(self) -> None:
        try:
            from perfetto.trace_processor import TraceProcessor
            processor = TraceProcessor(trace=self.path)
        except Exception as error:  # no package, or its program cannot be downloaded
            self.skipTest("no trace processor: %s" % error)
        with processor:
            rows = processor.query("select count(*) as n from slice where name = 'bucket'")
            self.assertEqual([row.n for row in rows], [STEPS * self.world.size])
            wrong = processor.query("select count(*) as n from stats where severity = 'error' "
                                    "and value > 0")
            self.assertEqual([row.n for row in wrong], [0])


if __name__ == "__main__":
    ranks.main((1, 2, 3), before=tutti.init)
