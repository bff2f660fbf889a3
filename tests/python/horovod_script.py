# SPDX-License-Identifier: BSD-3-Clause
"""Scripts as their users run them: unchanged, by python -m tutti.horovod. Elastic scripts have
ranks that fail and ranks that die."""

import os
import sys
import tempfile
import textwrap
import unittest
from typing import List

import horovod_jobs

# This script imports "horovod" only. A Horovod that is installed must not be used.
SCRIPT = """
    import multiprocessing
    import os
    import sys
    import torch
    import horovod
    import horovod.torch as hvd
    from horovod.torch.elastic import TorchState
    from horovod.torch.mpi_ops import synchronize
    from horovod.common.exceptions import HorovodInternalError
    import helper_beside_the_script

    if __name__ == "__mp_main__":
        print("spawned", hvd.__name__, flush=True)

    def main():
        hvd.init()
        check_modules()
        train()
        if hvd.rank() == 0:
            worker = multiprocessing.get_context("spawn").Process(target=int)
            worker.start()
            worker.join()
            assert worker.exitcode == 0

    def check_modules():
        assert hvd.HorovodInternalError is HorovodInternalError
        assert hvd.elastic.TorchState is TorchState and hvd.synchronize is synchronize
        assert horovod.torch is hvd and hvd.__name__ == "tutti.horovod.torch", hvd.__name__
        assert hvd.__spec__.name == "tutti.horovod.torch", hvd.__spec__
        try:
            import horovod.mxnet as other
        except ImportError as error:
            assert "horovod.mxnet" in str(error), error

    def train():
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        total = hvd.allreduce(torch.tensor(1), op=hvd.Sum, name="barrier")
        line = "rank %d of %d %s" % (hvd.rank(), total.item(), sys.argv[1:])
        os.write(1, (line + chr(10)).encode())  # one call, so that lines stay whole

    if __name__ == "__main__":
        main()
"""

# Rank 1 fails once, in its fifth batch, in one of several ways. All ranks then repeat the batches
# that were not committed: two batches are always committed together.
ELASTIC = """
    import os, sys
    import torch
    import tutti.horovod.torch as hvd

    how, marker = sys.argv[1:]
    if how == "die twice" and os.path.exists(marker) and not os.path.exists(marker + "2"):
        def die(_):
            open(marker + "2", "w").close()
            os._exit(3)

        from tutti.horovod.common.job import Job
        Job._look_around = die  # when the ranks are connected, but before init() has returned
    hvd.init()
    torch.manual_seed(7)
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.5)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(range(16 * hvd.size()), shuffle=True)
    resets = []

    def fail():
        if hvd.rank() != 1 or os.path.exists(marker):
            return
        open(marker, "w").close()
        if how == "raise":
            raise hvd.HorovodInternalError("on purpose")
        if how.startswith("die"):
            os._exit(3)
        if how == "wrong":
            hvd.allreduce(torch.ones(2, 2), name="wrong")

    @hvd.elastic.run
    def train(state):
        while state.batch < 8:
            state.sampler.record_batch(state.batch, 2)
            if state.batch == 5:
                fail()
            if how == "wrong" and state.batch == 5 and hvd.rank() != 1:
                hvd.allreduce(torch.ones(5), name="wrong")
            optimizer.zero_grad()
            model(torch.ones(1, 1)).sum().backward()
            optimizer.step()
            state.batch += 1
            if state.batch % 2 == 0:
                state.commit()
        return "returned"

    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=0, sampler=sampler)
    state.register_reset_callbacks([lambda: resets.append(state.batch)])
    result = train(state)
    weights = hvd.allgather(model.weight.detach())
    assert len(torch.unique(weights)) == 1, weights
    line = "rank %d %s %d %d weight %s resets %s" % (hvd.rank(), result, state.batch,
        sampler.processed_num, model.weight.item(), resets)
    os.write(1, (line + chr(10)).encode())  # one call, so that lines stay whole
"""


def expected_weight() -> float:
    """The weight after eight steps with gradient 1."""
    weight = velocity = 0.0
    for step in range(8):
        velocity = 0.5 * velocity + 1.0 if step else 1.0
        weight -= velocity
    return weight


class Scripts(unittest.TestCase):
    """Each test starts its own jobs; there is one parent."""

    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "script.py")
        self.marker = os.path.join(self.folder.name, "marker")
        with open(os.path.join(self.folder.name, "helper_beside_the_script.py"), "w"):
            pass

    def write(self, text: str) -> None:
        """The script of this test."""
        with open(self.path, "w") as script:
            script.write(textwrap.dedent(text))

    def run_module(self, *arguments: str) -> tuple:
        """python -m tutti.horovod ARGUMENTS"""
        return horovod_jobs.run([sys.executable, "-m", "tutti.horovod"] + list(arguments))

    def check_script(self, status: int, output: str, size: int) -> None:
        """Check that every rank has printed its line."""
        self.assertEqual(status, 0, output)
        for rank in range(size):
            self.assertIn("rank %d of %d ['--epochs', '3']" % (rank, size), output)
        self.assertIn("spawned tutti.horovod.torch", output)

    def test_unchanged(self) -> None:
        """By env://, by mpirun, by -np, and as one rank."""
        self.write(SCRIPT)
        arguments = [self.path, "--epochs", "3"]
        self.check_script(*self.run_module(*arguments), size=1)
        self.check_script(*self.run_module("-np", "3", *arguments), size=3)
        command = [sys.executable, "-m", "tutti.horovod"] + arguments
        results = horovod_jobs.finish(horovod_jobs.start(command, 2))
        self.check_script(max(s for s, _ in results), "".join(o for _, o in results), size=2)
        begin = horovod_jobs.mpirun(2)
        if begin is not None:
            self.check_script(*horovod_jobs.run(begin + command), size=2)

    def test_status(self) -> None:
        """The launcher's status is that of the rank that fails. Another rank, which got the error
        but does not end, is ended."""
        self.write("""
            import sys, time, horovod.torch as hvd
            hvd.init()
            if hvd.rank() == 1:
                sys.exit(5)
            try:
                hvd.barrier()
            except hvd.HorovodInternalError as error:
                print("the error:", error, flush=True)
            time.sleep(1000)
        """)
        status, output = self.run_module("-np", "2", self.path)
        self.assertEqual(status, 5, output)
        self.assertIn("the error: rank 1 has called tutti_finalize", output)
        self.assertIn("rank 1 ended with status 5", output)
        for wrong in (["-np", "0", self.path], ["--restarts", "1", self.path], []):
            self.assertEqual(self.run_module(*wrong)[0], 2, wrong)

    def elastic(self, how: str, *options: str) -> List[str]:
        """Run the elastic script; returns the lines of the ranks."""
        self.write(ELASTIC)
        status, output = self.run_module("-np", "3", *options, self.path, how, self.marker)
        self.assertEqual(status, 0, output)
        lines = sorted(line for line in output.splitlines() if line.startswith("rank "))
        self.assertEqual(len(lines), 3, output)
        for rank, line in enumerate(lines):
            self.assertIn("rank %d returned 8 48 weight %s" % (rank, expected_weight()), line)
        return lines

    def test_nothing_fails(self) -> None:
        """The reference: no reset."""
        for line in self.elastic("never"):
            self.assertTrue(line.endswith("resets []"), line)

    def test_error(self) -> None:
        """After a HorovodInternalError on one rank, all ranks restore their states and continue
        from batch 4."""
        for line in self.elastic("raise"):
            self.assertTrue(line.endswith("resets [4]"), line)

    def test_death(self) -> None:
        """A rank dies and is started again: it gets the state of the others."""
        lines = self.elastic("die", "--restarts", "1")
        self.assertTrue(lines[0].endswith("resets [4]"), lines[0])
        self.assertTrue(lines[1].endswith("resets []"), lines[1])

    def test_death_in_init(self) -> None:
        """The rank that is started again dies in init(), while the others are in init() as well."""
        lines = self.elastic("die twice", "--restarts", "2")
        self.assertTrue(lines[0].endswith("resets [4]"), lines[0])

    def test_wrong_program(self) -> None:
        """A mismatch would occur again after a restore, so the error ends the script."""
        self.write(ELASTIC)
        status, output = self.run_module("-np", "2", self.path, "wrong", self.marker)
        self.assertEqual(status, 1, output)
        self.assertIn("allreduce.wrong", output)


if __name__ == "__main__":
    unittest.main()
