# SPDX-License-Identifier: BSD-3-Clause
"""How ranks meet: unique id, the caller's store, MPI, groups without a world."""

import multiprocessing
import os
import sys
import tempfile
import time
import unittest

import numpy as np

import ranks
import tutti
from tutti import _lib

CASE = "TUTTI_TEST_CASE"


class FolderStore:
    """A store in a folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def set(self, key: str, value: bytes) -> None:
        path = os.path.join(self.folder, key.replace("/", "_"))
        with open(path + ".new", "wb") as file:
            file.write(value)
        os.rename(path + ".new", path)

    def get(self, key: str, timeout_ms: int):
        path = os.path.join(self.folder, key.replace("/", "_"))
        end = time.monotonic() + timeout_ms / 1000
        while not os.path.exists(path):
            if time.monotonic() > end:
                return None
            time.sleep(0.001)
        with open(path, "rb") as file:
            return file.read()


class BrokenStore:
    """A store whose two functions fail."""

    def set(self, key: str, value: bytes) -> None:
        raise KeyError("the store is full")

    def get(self, key: str, timeout_ms: int):
        raise KeyError("the store is gone")


def by_unique_id(rank: int, size: int, unique_id: bytes, results) -> None:
    with tutti.init(unique_id=unique_id, rank=rank, size=size) as world:
        results.put((world.rank, float(tutti.allreduce(1.0))))


def by_store(rank: int, size: int, folder: str, results) -> None:
    store = FolderStore(folder)
    for turn in range(2):
        with tutti.init(store=store, rank=rank, size=size, prefix="job %d" % turn) as world:
            results.put((world.rank, float(tutti.allreduce(1.0))))


def by_connect(rank: int, size: int, folder: str, results) -> None:
    """Groups of members only, without a world."""
    store = FolderStore(folder)
    everyone = tutti.connect(rank, size, store=store, prefix="all", timeout=200.0)
    if rank > 0:
        with tutti.connect(rank - 1, size - 1, store=store, prefix="some") as some:
            assert tutti.allreduce(1.0, comm=some) == size - 1
    assert not tutti.is_initialized()
    request = tutti.allreduce_async("a", np.ones(2), comm=everyone)
    assert request.wait().tolist() == [size, size]
    half = everyone.split()
    memory = tutti.mem_alloc(3, comm=half)
    with tutti.init(store=store, rank=rank, size=size, prefix="world"):
        tutti.barrier()
    memory[:] = 1  # the memory does not belong to the world, which has ended
    assert tutti.allreduce(memory, comm=half).tolist() == [size] * 3
    results.put((everyone.rank, float(tutti.allreduce(1.0, comm=everyone))))
    everyone.free()
    try:
        tutti.barrier(half)  # `half` has ended with its parent
    except tutti.InvalidArgumentError:
        return
    raise AssertionError("no error")


def under_mpi() -> None:
    world = tutti.init()
    total = int(tutti.allreduce(world.rank + 1))
    print("rank %d of %d: %d" % (world.rank, world.size, total))


class Meeting(unittest.TestCase):
    def start(self, function, size: int, place, rounds: int = 1) -> None:
        """Run a function in `size` processes, which put their rank and the number of ranks into a
        queue."""
        context = multiprocessing.get_context("spawn")
        results = context.Queue()
        processes = [context.Process(target=function, args=(rank, size, place, results))
                     for rank in range(size)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(ranks.SECONDS)
            if process.exitcode is None:
                process.kill()
        self.assertEqual([process.exitcode for process in processes], [0] * size)
        seen = sorted(results.get() for _ in range(size * rounds))
        self.assertEqual(seen, sorted([(rank, float(size)) for rank in range(size)] * rounds))

    def test_unique_id(self) -> None:
        unique_id = tutti.unique_id_create()
        self.assertEqual(len(unique_id), 128)
        self.start(by_unique_id, 3, unique_id)
        tutti.finalize()

    def test_store(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.start(by_store, 2, folder, 2)

    def test_connect(self) -> None:
        if not _lib.has("tutti_comm_connect"):
            with self.assertRaisesRegex(tutti.UnsupportedError, "has no tutti_comm_connect"):
                tutti.connect(0, 1, unique_id=bytes(128))
            self.skipTest("the library has no tutti_comm_connect")
        with tempfile.TemporaryDirectory() as folder:
            self.start(by_connect, 3, folder)

    def test_broken_store(self) -> None:
        for rank, words in ((0, "full"), (1, "gone")):
            with self.assertRaises(tutti.SystemCallError) as seen:
                tutti.init(store=BrokenStore(), rank=rank, size=2)
            self.assertIsInstance(seen.exception.__cause__, KeyError)
            self.assertIn(words, str(seen.exception.__cause__))

    def test_refused(self) -> None:
        for more in (dict(unique_id=b"short", rank=0, size=1), dict(rank=0, size=1),
                     dict(unique_id=bytes(128)), dict(store=BrokenStore(), rank=0),
                     dict(unique_id=bytes(128), store=BrokenStore(), rank=0, size=1),
                     dict(store=BrokenStore(), rank=2**32, size=2),
                     dict(store=BrokenStore(), rank=0, size=2**32 + 2), dict(timeout=-1.0)):
            with self.assertRaises(ValueError):
                tutti.init(**more)
        with self.assertRaises(tutti.InvalidArgumentError):
            tutti.init(unique_id=bytes(128), rank=0, size=1)
        self.assertFalse(tutti.is_initialized())

    def test_mpirun(self) -> None:
        command = ranks.mpirun_command(2)
        if command is None:
            self.skipTest("no mpirun")
        done = ranks.run_mpirun(command + [sys.executable, __file__], **{CASE: "under_mpi"})
        self.assertEqual(done.returncode, 0, done.stdout)
        for rank in range(2):
            self.assertIn("rank %d of 2: 3" % rank, done.stdout)

    def test_mpirun_two_hosts(self) -> None:
        """The ranks pretend to be on two hosts, so they need the module for MPI."""
        command = ranks.mpirun_command(2)
        if command is None:
            self.skipTest("no mpirun")
        program = "TUTTI_HOST_ID=$OMPI_COMM_WORLD_RANK$PMI_RANK exec %s %s" % (
            sys.executable, __file__)
        done = ranks.run_mpirun(command + ["sh", "-c", program], **{CASE: "under_mpi"})
        if "UnsupportedError" in done.stdout:
            self.skipTest("no module for this MPI")
        self.assertEqual(done.returncode, 0, done.stdout)
        for rank in range(2):
            self.assertIn("rank %d of 2: 3" % rank, done.stdout)


if __name__ == "__main__":
    if CASE in os.environ:
        globals()[os.environ[CASE]]()
        sys.exit()
    unittest.main()
