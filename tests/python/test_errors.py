# SPDX-License-Identifier: BSD-3-Clause
"""Failures: the error that each rank gets, and how its process ends."""

import os
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

import ranks
import tutti
from tutti import _lib

CASE = "TUTTI_TEST_CASE"
FOLDER = "TUTTI_TEST_FOLDER"


def uncaught() -> None:
    world = tutti.init()
    if world.rank == 1 or world.size == 1:
        raise ValueError("no more data")
    tutti.allreduce(np.ones(3))


def in_a_block() -> None:
    try:
        with tutti.init() as world:
            if world.rank == 1:
                raise ValueError("no more data")
            tutti.allreduce(np.ones(3))
    except (ValueError, tutti.PeerLostError) as error:
        print("%s: %s; world: %s" % (type(error).__name__, error, tutti.is_initialized()))


def ends_a_block() -> None:
    """A `with` block ends by finalize(), and by sys.exit()."""
    with tutti.init():
        tutti.barrier()
        tutti.finalize()
    try:
        with tutti.init():
            tutti.finalize()
            raise KeyError("after the end")
    except KeyError as error:
        print(error)
    world = tutti.init()
    for code in ("no more data", 1, None, 0, False):
        group = world.split()
        try:
            with group:
                if world.rank == 1:
                    sys.exit(code)
                tutti.allreduce_async("x", np.ones(3), comm=group).wait()
        except (SystemExit, tutti.TuttiError) as error:
            print("%r: %s" % (code, type(error).__name__))


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def with_bad_text() -> None:
    """An exception's text cannot be encoded in UTF-8, or its __str__ fails."""
    world = tutti.init()
    for group, failure in ((world.split(), ValueError("no file caf\udce9")),
                           (world.split(), Unprintable())):
        try:
            with group:
                if world.rank == 1:
                    raise failure
                tutti.allreduce(np.ones(3), comm=group)
        except (ValueError, Unprintable, tutti.PeerLostError) as error:
            print(type(error).__name__, ascii(error.args))
        try:
            tutti.barrier(group)
        except tutti.InvalidArgumentError:
            print("freed")
    if world.rank == 1:
        raise ValueError("no file caf\udce9")
    try:
        tutti.allreduce(np.ones(3))
    except tutti.PeerLostError as error:
        print("at the exit:", error)


def dies() -> None:
    world = tutti.init()
    tutti.barrier()
    if world.rank == 1:
        os._exit(3)
    try:
        tutti.allreduce_async("gradient", np.ones(3)).wait()
    except tutti.PeerLostError as error:
        assert error.status == 3
        print(error)
        print(type(world.error).__name__)
        tutti.finalize()


def leaves() -> None:
    world = tutti.init()
    tutti.barrier()
    if world.rank == 1:
        tutti.finalize()
        return
    try:
        tutti.allreduce(np.ones(3))
    except tutti.ShutdownError as error:
        print(error)


def init_together() -> tutti.Communicator:
    """TUTTI_TIMEOUT applies to tutti.init() as well, so the ranks call it at the same time."""
    folder = os.environ[FOLDER]
    open(os.path.join(folder, os.environ["RANK"]), "w").close()
    while len(os.listdir(folder)) < 2:
        time.sleep(0.01)
    return tutti.init()


def late() -> None:
    world = init_together()
    if world.rank == 1:
        while world.error is None:
            time.sleep(0.01)
        print(type(world.error).__name__)
        return
    try:
        tutti.allreduce_async("gradient", np.ones(3)).wait()
    except TimeoutError as error:  # Python's own
        print("%s: %s" % (type(error).__name__, error))


def gives_no_buffer() -> None:
    """All ranks have received the counts of a call, but rank 1 never passes its buffer."""
    world = init_together()
    request = tutti.allgatherv_async("v", np.ones(2))
    if world.rank == 1:
        counts, end = np.empty(2, np.uintp), time.monotonic() + 60
        _lib.check(_lib.lib.tutti_request_recvcounts(request._handle, -1, counts.ctypes.data))
        while world.error is None and time.monotonic() < end:
            time.sleep(0.01)
        os._exit(0)
    try:
        tutti.wait_any([request])
        request.wait()
    except tutti.TuttiError as error:
        print("%s: %s" % (type(error).__name__, error))


def own_deadline() -> None:
    """A deadline of one call. Rank 1 never makes this call."""
    world = tutti.init()
    tutti.barrier()
    if world.rank == 1:
        while world.error is None:
            time.sleep(0.01)
        return
    try:
        requests = [tutti.allreduce_async(name, np.ones(3), timeout=0.5)
                    for name in ("gradient", "polled")]
    except tutti.UnsupportedError as error:
        print(error)
        world.abort()
        return
    try:
        requests[0].wait()
    except tutti.TimeoutError as error:
        print("%s: %s" % (type(error).__name__, error))
    try:
        requests[1].wait(60)
    except tutti.ShutdownError as error:
        print("%s: %s" % (type(error).__name__, error))


def aborts() -> None:
    world = tutti.init()
    half = world.split()
    if world.rank == 1:
        half.abort("the disk is full")
    else:
        try:
            tutti.barrier(half)
        except tutti.PeerLostError as error:
            print(error)
    tutti.barrier()
    half.free()


def aborts_between() -> None:
    """A group ends when the counts of a call are known, and the ranks have not passed their buffers
    yet."""
    world = tutti.init()
    half = world.split()
    request = tutti.alltoallv_async("v", np.ones(2), [1, 1], comm=half)
    counts, done = np.empty(2, np.uintp), _lib.c_int(0)
    _lib.check(_lib.lib.tutti_request_recvcounts(request._handle, -1, counts.ctypes.data))
    tutti.barrier()
    if world.rank == 1:
        half.abort("the disk is full")
    while not done.value:
        _lib.lib.tutti_test(request._handle, _lib.byref(done))
    assert request.test()
    try:
        request.wait()
    except tutti.TuttiError as error:
        print(error)
    print(request)
    tutti.barrier()
    half.free()


def leaves_requests() -> None:
    """The process ends while it has a request, an array and a group of the library."""
    world = tutti.init()
    memory = tutti.mem_alloc(1000)
    left = [world.split(), tutti.allreduce_async("kept", memory),
            tutti.persistent(tutti.Call("barrier", "step"))]
    if world.rank == 0:
        tutti.allreduce_async("only rank 0", np.ones(1000))
    tutti.barrier()
    print("end", len(left))


def ends_in_call() -> None:
    """The process of rank 0 ends while a daemon thread, which Python does not join, is inside a
    direct call. Rank 1 does not make this call."""
    world = tutti.init()
    tutti.barrier()
    if world.rank == 1:
        time.sleep(3)  # so the thread's call does not end because this rank leaves
        try:
            tutti.allreduce_async("only rank 1", np.ones(3)).wait()
        except tutti.ShutdownError as error:
            print(error)
        return

    def work() -> None:
        while True:
            try:
                tutti.allreduce(np.ones(1000))
            except tutti.InvalidArgumentError:
                continue  # the main thread is in its own call
            except tutti.ShutdownError:
                return

    threading.Thread(target=work, daemon=True).start()
    while True:
        try:
            tutti.send(np.ones(1), world.rank)
        except tutti.InvalidArgumentError as error:
            if "another thread is in a direct call" in str(error):
                break
    print("end")


def forks() -> None:
    """A child is forked while another thread of its parent waits for a request."""
    tutti.init()
    request = tutti.allreduce_async("x", np.ones(3))
    request._lock.acquire()  # as a waiting thread does
    child = os.fork()
    if child == 0:
        seen = []
        for call in (lambda: request.wait(10), request.test):
            try:
                call()
            except tutti.TuttiError as error:
                seen.append(type(error).__name__)
        print(" ".join(seen), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    request._lock.release()
    assert request.wait().tolist() == [1.0] * 3


def mismatch() -> None:
    world = tutti.init()
    x = np.ones(3 + world.rank)
    try:
        tutti.allreduce(x, out=x)
    except tutti.MismatchError as error:
        print(error)
    assert x.tolist() == [1.0] * (3 + world.rank)
    assert tutti.allreduce(1) == world.size
    try:
        tutti.allreduce(np.ones(3, "f4" if world.rank else "f8"))
    except tutti.TuttiError as error:
        print(error)
    assert tutti.allreduce(1) == world.size


def life() -> None:
    """Calls before, during and after the world."""
    for call in (tutti.world, tutti.barrier, lambda: tutti.allreduce(1.0)):
        try:
            call()
        except tutti.InvalidArgumentError as error:
            assert "tutti.init()" in str(error), error
        else:
            raise AssertionError("no error")
    assert not tutti.is_initialized()
    for _ in range(2):
        world = tutti.init()
        assert tutti.world() is world and tutti.is_initialized()
        try:
            tutti.init()
        except tutti.InvalidArgumentError as error:
            assert "already" in str(error), error
        else:
            raise AssertionError("no error")
        group = world.split()
        world.free()
        assert not tutti.is_initialized()
        for comm in (world, group):
            try:
                tutti.barrier(comm)
            except tutti.InvalidArgumentError:
                pass
            else:
                raise AssertionError("no error")
    tutti.finalize()  # nothing to end
    print("end")


class Errors(unittest.TestCase):
    def job(self, case, size=2, **more):
        """Run one of the functions above on `size` ranks."""
        return ranks.run_script(__file__, size, dict({CASE: case.__name__}, **more))

    def succeeds(self, case, size=2, **more):
        results = self.job(case, size, **more)
        for status, output in results:
            self.assertEqual(status, 0, output)
        return [output for _, output in results]

    def test_uncaught(self) -> None:
        (status, seen), (other, raised) = self.job(uncaught)
        self.assertEqual((status, other), (1, 1))
        self.assertIn("PeerLostError", seen)
        self.assertIn("ValueError: no more data", seen)
        self.assertIn("rank 1", seen)
        self.assertIn("ValueError: no more data", raised)
        (status, alone), = self.job(uncaught, 1)
        self.assertEqual(status, 1)
        self.assertNotIn("tutti_abort", alone)  # there is no other rank to inform

    def test_in_a_block(self) -> None:
        first, second = self.succeeds(in_a_block)
        self.assertIn("PeerLostError: ", first)
        self.assertIn("ValueError: no more data; world: False", first)
        self.assertIn("ValueError: no more data; world: False", second)

    def test_ends_a_block(self) -> None:
        first, second = self.succeeds(ends_a_block)
        for output in (first, second):
            self.assertIn("after the end", output)
        for code in ("'no more data'", "1"):
            self.assertIn("%s: PeerLostError" % code, first)
        for code in ("None", "0", "False"):
            self.assertIn("%s: ShutdownError" % code, first)
        self.assertEqual(second.count(": SystemExit\n"), 5, second)

    def test_with_bad_text(self) -> None:
        (status, first), (_, second) = self.job(with_bad_text, TUTTI_TIMEOUT="30")
        self.assertEqual(status, 0, first)
        self.assertRegex(first, r"PeerLostError .*ValueError: no file caf\\+udce9")
        self.assertIn("tutti_abort: Unprintable", first)
        self.assertRegex(first, r"at the exit: .*ValueError: no file caf\\udce9")
        self.assertRegex(second, r"ValueError .*caf\\udce9")
        self.assertIn("Unprintable ()", second)
        for output in (first, second):
            self.assertEqual(output.count("freed"), 2, output)

    def test_dies(self) -> None:
        (status, seen), (other, _) = self.job(dies)
        self.assertEqual((status, other), (0, 3), seen)
        self.assertIn("rank 1", seen)
        self.assertIn("PeerLostError", seen)

    def test_leaves(self) -> None:
        self.assertIn("rank 1", self.succeeds(leaves)[0])

    def test_late(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            first, second = self.succeeds(late, TUTTI_TIMEOUT="5", **{FOLDER: folder})
        self.assertIn("TimeoutError: ", first)
        self.assertIn("gradient", first)
        self.assertIn("Error", second)

    def test_gives_no_buffer(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            first, _ = self.succeeds(gives_no_buffer, TUTTI_TIMEOUT="5", **{FOLDER: folder})
        self.assertIn("TimeoutError: ", first)

    def test_own_deadline(self) -> None:
        first, _ = self.succeeds(own_deadline)
        if "has no timeouts in options" in first:
            self.skipTest("the library has no deadlines of requests")
        self.assertIn("TimeoutError: ", first)
        self.assertIn("gradient", first)
        self.assertIn("ShutdownError: the communicator ended at a deadline: ", first)

    def test_aborts(self) -> None:
        self.assertIn("the disk is full", self.succeeds(aborts)[0])

    def test_aborts_between(self) -> None:
        for output in self.succeeds(aborts_between):
            self.assertIn("the disk is full", output)
            self.assertIn("alltoallv, done", output)

    def test_leaves_requests(self) -> None:
        for output in self.succeeds(leaves_requests):
            self.assertIn("end", output)
            self.assertNotIn("Traceback", output)

    def test_ends_in_call(self) -> None:
        first, second = self.succeeds(ends_in_call)
        self.assertIn("end", first)
        self.assertIn("rank 0", second)

    def test_forks(self) -> None:
        output, = self.succeeds(forks, 1)
        self.assertIn("ShutdownError ShutdownError", output)

    def test_mismatch(self) -> None:
        for output in self.succeeds(mismatch, 3):
            self.assertRegex(output, r"\d elements of float64, sum; rank \d has an allreduce of")
            self.assertRegex(output, "float32")

    def test_life(self) -> None:
        for size in (1, 2):
            self.assertIn("end", self.succeeds(life, size)[0])


if __name__ == "__main__":
    if CASE in os.environ:
        globals()[os.environ[CASE]]()
        sys.exit()
    unittest.main()
