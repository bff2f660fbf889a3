# SPDX-License-Identifier: BSD-3-Clause
"""Asynchronous calls: requests and the references that keep their arrays, several calls at once,
persistent requests, joins."""

import contextlib
import ctypes
import functools
import gc
import signal
import sys
import threading
import time
import unittest
import warnings
import weakref
from typing import Any
from unittest import mock

import numpy as np

import ranks
import tutti
from tutti import _calls, _lib, _requests


class Held(np.ndarray):
    """An array that a weak reference can watch."""


class Stopped(Exception):
    """Raised by the signal handler of interrupted()."""


@contextlib.contextmanager
def interrupted(name: str):
    """A signal arrives during each call of the library's function `name`, which must return OK. The
    handler raises Stopped. Python runs it when the call has returned."""
    raise_signal = ctypes.CDLL(None)["raise"]
    raise_signal.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.py_object, ctypes.py_object]
    real = getattr(_lib.lib, name)
    function = ctypes.CDLL(_lib.lib.path)[name]
    function.restype, function.argtypes = real.restype, real.argtypes
    # ctypes calls it with (result, function, arguments), and returns its 0. No Python code runs.
    function.errcheck = functools.partial(raise_signal, signal.SIGALRM)

    def handler(_number, _frame):
        raise Stopped

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with mock.patch.dict(_lib.lib.__dict__, {name: function}):
            yield
    finally:
        signal.signal(signal.SIGALRM, before)


class Asynchronous(unittest.TestCase):
    def setUp(self) -> None:
        self.world = tutti.world()
        self.rank, self.size = self.world.rank, self.world.size
        self.sum = float(sum(range(self.size)))

    def test_all_kinds(self) -> None:
        rank, size = self.rank, self.size
        x = np.full(size, float(rank))
        after, before = (rank + 1) % size, (rank - 1) % size
        first = rank == 0
        every = list(range(size))
        ones = [1] * size
        calls = {
            "allreduce": ([x], [self.sum] * size),
            "reduce": ([x], [self.sum] * size if first else None),
            "broadcast": ([x.copy()], [0.0] * size),
            "reduce_scatter": ([x], [self.sum]),
            "reduce_scatterv": ([x, ones], [self.sum]),
            "allgather": ([x[:1]], every),
            "allgatherv": ([x[:1], ones], every),
            "gather": ([x[:1]], every if first else None),
            "gatherv": ([x[:1], ones], every if first else None),
            "scatter": ([x, 0, np.empty(1)], [0.0]),
            "scatterv": ([x, ones, None, 0, np.empty(1)], [0.0]),
            "alltoall": ([x], every),
            "alltoallv": ([x, ones, ones], every),
            "scan": ([x], [float(sum(range(rank + 1)))] * size),
            "exscan": ([x], None if first else [float(sum(range(rank)))] * size),
            "barrier": ([], None),
            "sendrecv": ([x, after, np.empty(size), before], [float(before)] * size),
        }
        if size == 1:
            del calls["sendrecv"]  # no rank sends to itself
        names = sorted(calls, reverse=rank % 2 == 1)  # ranks start them in different orders
        started = {name: getattr(tutti, name + "_async")(name, *calls[name][0])
                   for name in names}
        for name in calls:
            with self.subTest(name):
                seen, wanted = started[name].wait(), calls[name][1]
                self.assertEqual(None if seen is None else seen.tolist(), wanted)
        described = [tutti.Call(name, name, *calls[name][0]) for name in sorted(calls)]
        for call, seen in zip(described, tutti.wait_all(tutti.submit(described))):
            with self.subTest("submitted " + call.kind):
                wanted = calls[call.kind][1]
                self.assertEqual(None if seen is None else seen.tolist(), wanted)

    def test_messages(self) -> None:
        if self.rank == 0 and self.size > 1:
            tutti.send_async("m", np.arange(3), 1).wait()
        elif self.rank == 1:
            out = np.zeros(3, int)
            self.assertIs(tutti.recv_async("m", out, 0).wait(), out)
            self.assertEqual(out.tolist(), [0, 1, 2])

    def test_unknown_counts(self) -> None:
        mine = np.full((self.rank, 2), self.rank)
        request = tutti.allgatherv_async("v", mine)
        while not request.test():
            pass
        wanted = [[rank] * 2 for rank in range(self.size) for _ in range(rank)]
        self.assertEqual(request.wait().tolist(), wanted)
        self.assertEqual(tutti.allgatherv_async("w", mine).wait(60).tolist(), wanted)
        counts = [self.rank + 1] * self.size
        x = np.repeat(self.rank, sum(counts))
        got = tutti.alltoallv_async("t", x, counts)
        wanted = [rank for rank in range(self.size) for _ in range(rank + 1)]
        self.assertEqual(tutti.wait_any([got]), 0)
        self.assertEqual(got.wait().tolist(), wanted)
        with self.assertRaisesRegex(ValueError, "counts"):
            tutti.alltoallv_async("t", x, counts, out=np.empty(9, int))
        for shape in ((self.size, 0), (self.size, 2, 0)):
            x = np.empty(shape)
            with self.assertRaisesRegex(ValueError, "rows of shape .* have no elements"):
                tutti.allgatherv_async("e", x)
            with self.assertRaisesRegex(ValueError, "rows of shape .* have no elements"):
                tutti.alltoallv_async("e", x, [1] * self.size)
            counts = [self.size] * self.size
            self.assertEqual(tutti.allgatherv_async("e", x, counts).wait().shape,
                             (self.size ** 2,) + shape[1:])

    def test_odd_rows(self) -> None:
        """The ranks pass rows of different sizes. The library writes nothing beyond the result."""
        if self.size == 1:
            return
        guards = []
        real = _calls.new_like

        def guarded(call, source, shape):
            count = int(np.prod(shape))
            whole = real(call, source, (count + 8,))
            whole.owner.fill(-1)
            guards.append(whole.owner[count:])
            return whole._replace(shape=shape, size=count,
                                  owner=whole.owner[:count].reshape(shape))

        x = np.ones((1, 3 + self.rank))
        with mock.patch.object(_calls, "new_like", guarded):
            for request in (tutti.allgatherv_async("v", x),
                            tutti.alltoallv_async("w", x.repeat(self.size, 0),
                                                  [1] * self.size)):
                with self.assertRaisesRegex(
                        tutti.MismatchError, r"rank \d sends \d elements, .* shape \(\d,\)"):
                    request.wait()
                with self.assertRaises(tutti.MismatchError):
                    request.wait()
        self.assertTrue(guards)
        for guard in guards:
            self.assertEqual(guard.tolist(), [-1.0] * 8)
        self.assertEqual(tutti.allgatherv_async("v", np.ones((1, 3))).wait().shape, (self.size, 3))

    def test_request(self) -> None:
        x = np.full(3, float(self.rank))
        request = tutti.allreduce_async("a", x, out=x)
        self.assertIs(request.wait(), x)
        self.assertIs(request.result(), x)
        self.assertTrue(request.test())
        self.assertEqual((request.name, x.tolist()), ("a", [self.sum] * 3))
        self.assertIn("'a' of allreduce, done", repr(request))

    def test_timeout_continues(self) -> None:
        if self.size == 1:
            return
        x = np.full(3, float(self.rank))
        if self.rank == 0:
            request = tutti.allreduce_async("late", x)
            with self.assertRaises(tutti.TimeoutError):
                request.wait(0.01)
            with self.assertRaises(TimeoutError):  # Python's own
                request.wait(0)
            with self.assertRaises(tutti.TimeoutError):
                tutti.wait_any([request], 0.01)
            with self.assertRaises(tutti.TimeoutError):
                tutti.wait_all([request], 0.01)
            self.assertFalse(request.test())
            tutti.barrier()
        else:
            tutti.barrier()
            request = tutti.allreduce_async("late", x)
        self.assertEqual(request.wait().tolist(), [self.sum] * 3)

    def test_counts_time_out(self) -> None:
        if self.size == 1:
            return
        if self.rank == 0:
            request = tutti.allgatherv_async("later", np.ones(2))
            with self.assertRaises(tutti.TimeoutError):
                request.wait(0.01)
            self.assertFalse(request.test())
            with self.assertRaises(tutti.TimeoutError):
                tutti.wait_any([request], 0.02)
        tutti.barrier()
        if self.rank != 0:
            request = tutti.allgatherv_async("later", np.ones(2))
        self.assertEqual(request.wait().shape, (2 * self.size,))

    def test_arrays_live(self) -> None:
        """The program has dropped its references to the arrays. The request keeps its own
        references until the call is complete."""
        if self.size == 1:
            return
        x = np.ones(1000).view(Held)
        watch = weakref.ref(x)
        if self.rank == 0:
            request = tutti.allreduce_async("kept", x)
            del x
            gc.collect()
            self.assertIsNotNone(watch())
            tutti.barrier()
        else:
            tutti.barrier()
            request = tutti.allreduce_async("kept", x)
            del x
        self.assertEqual(request.wait()[999], self.size)
        gc.collect()
        self.assertIsNone(watch())

    def test_dropped(self) -> None:
        """A request that is dropped keeps its arrays until it is complete, and is freed later."""
        if self.size == 1:
            return
        x = np.ones(1000).view(Held)
        watch = weakref.ref(x)
        if self.rank != 0:
            tutti.barrier()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            tutti.allreduce_async("dropped", x)
        self.assertEqual([warning.category for warning in seen], [ResourceWarning])
        del x, seen
        gc.collect()
        if self.rank == 0:
            self.assertIsNotNone(watch())
            tutti.barrier()
        tutti.allreduce_async("next", np.ones(1)).wait()
        while _requests._dropped:
            _requests.free_dropped()
        self.assertIsNone(watch())

    def test_dropped_error(self) -> None:
        """A request is dropped as above, and its warning raises an exception, which Python ignores
        in __del__."""
        while _requests._dropped:
            _requests.free_dropped()
        seen = []
        before, sys.unraisablehook = sys.unraisablehook, lambda failure: seen.append(
            failure.exc_type)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                tutti.allreduce_async("dropped with an error", np.ones(1000))
            self.assertEqual(seen, [ResourceWarning])
            self.assertEqual(len(_requests._dropped), 1)
        finally:
            sys.unraisablehook = before
        while _requests._dropped:
            _requests.free_dropped()

    def test_signal_in_a_start(self) -> None:
        """The program has dropped the request while the library uses the arrays. The arrays live
        until the call is complete."""
        if self.size == 1:
            return
        starts = {
            "tutti_allreduce_async": lambda x: tutti.allreduce_async("started", x),
            "tutti_submit": lambda x: tutti.submit([tutti.Call("allreduce", "started", x),
                                                    tutti.Call("barrier", "with it")])}
        for name, start in starts.items():
            x = np.ones(1000).view(Held)
            watch = weakref.ref(x)
            if self.rank == 0:
                with warnings.catch_warnings(), interrupted(name):
                    warnings.simplefilter("ignore")
                    with self.assertRaises(Stopped):
                        start(x)
                del x
                gc.collect()
                self.assertIsNotNone(watch(), name)
                tutti.barrier()
            else:
                tutti.barrier()
                started = start(x)
                tutti.wait_all(started if isinstance(started, list) else [started])
            while _requests._dropped:
                _requests.free_dropped()
            if self.rank == 0:
                self.assertIsNone(watch())

    def test_signal_in_a_persistent_start(self) -> None:
        x = np.ones(3)
        with tutti.persistent(tutti.Call("allreduce", "p", x, out=x)) as step:
            with interrupted("tutti_start"), self.assertRaises(Stopped):
                step.start()
            self.assertIs(step.wait(), x)
            self.assertEqual(x.tolist(), [self.size] * 3)

    def test_signal_in_a_wait(self) -> None:
        """A signal interrupts a wait. The next wait returns the result."""
        x = np.full(2, float(self.rank))
        waits = {
            "tutti_wait": lambda request: request.wait(),
            "tutti_wait_any": lambda request: tutti.wait_any([request])}
        for name, wait in waits.items():
            with self.subTest(name):
                request = tutti.allreduce_async("w", x)
                untested = mock.patch.object(_requests.Request, "test", lambda _: False)
                with interrupted(name), untested, self.assertRaises(Stopped):
                    wait(request)
                self.assertTrue(request.test())
                self.assertEqual(tutti.wait_any([request]), 0)
                self.assertEqual(request.wait(10).tolist(), [self.sum] * 2)
                self.assertEqual(request.wait().tolist(), [self.sum] * 2)
        with tutti.persistent(tutti.Call("allreduce", "p", x)) as step:
            for _ in range(2):
                step.start()
                with interrupted("tutti_wait"), self.assertRaises(Stopped):
                    step.wait()
                self.assertEqual(step.wait().tolist(), [self.sum] * 2)

    def test_signal_before_a_start(self) -> None:
        """In one turn of a persistent request the operation raises an exception, and a signal
        interrupts the wait. The next turn does not raise the operation's exception."""
        if self.size == 1:
            return

        def function(left: Any, right: Any) -> Any:
            if 99 in left or 99 in right:
                raise KeyError("99")
            return left + right

        op, x = tutti.create_op(function), np.full(3, 99.0)
        with tutti.persistent(tutti.Call("allreduce", "p", x, op)) as step:
            step.start()
            with interrupted("tutti_wait"), self.assertRaises(Stopped):
                step.wait()
            x.fill(1)
            self.assertEqual(step.start().wait().tolist(), [float(self.size)] * 3)
        op.free()

    def test_signal_before_a_drop(self) -> None:
        """A wait has ended the request, so the arrays are freed at once."""
        x = np.ones(1000).view(Held)
        watch = weakref.ref(x)
        request = tutti.allreduce_async("w", x)
        with interrupted("tutti_wait"), self.assertRaises(Stopped):
            request.wait()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            del request, x
        gc.collect()
        _requests.free_dropped()
        self.assertEqual(_requests._dropped, [])
        self.assertIsNone(watch())

    def test_signal_after_the_counts(self) -> None:
        """A signal arrives when the library has got the receive buffer, and before the package has
        noted this. The next wait returns the result."""
        request = tutti.allgatherv_async("v", np.full(2, float(self.rank)))
        with interrupted("tutti_request_receive"), self.assertRaises(Stopped):
            request.wait()
        wanted = np.arange(self.size, dtype=float).repeat(2).tolist()
        self.assertEqual(request.wait().tolist(), wanted)

    def test_dropped_without_memory(self) -> None:
        """There is no memory for the result of a dropped request. Other calls do not fail, and the
        request keeps its arrays."""
        while _requests._dropped:
            _requests.free_dropped()
        x = np.ones(1000).view(Held)
        watch = weakref.ref(x)
        request = tutti.allgatherv_async("dropped", x)
        del x
        counts = np.empty(self.size, np.uintp)
        _lib.check(_lib.lib.tutti_request_recvcounts(request._handle, -1, counts.ctypes.data))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            del request
        gc.collect()

        def no_memory(*_arguments):
            raise MemoryError

        with mock.patch.object(_calls, "new_like", no_memory):
            for _ in range(2):
                tutti.barrier_async("next").wait()
                self.assertEqual(len(_requests._dropped), 1)
                self.assertIsNotNone(watch())
        while _requests._dropped:
            _requests.free_dropped()
        gc.collect()
        self.assertIsNone(watch())

    def test_submit_is_all_or_nothing(self) -> None:
        x = np.ones(3)
        with self.assertRaisesRegex(ValueError, "allreduce: op"):
            tutti.submit([tutti.Call("barrier", "b"), tutti.Call("allreduce", "x", x, "no")])
        with self.assertRaises(tutti.InvalidArgumentError):
            tutti.submit([tutti.Call("barrier", "b"), tutti.Call("barrier", "b")])
        with self.assertRaisesRegex(ValueError, "kind"):
            tutti.Call("reduces", "x")
        with self.assertRaises(TypeError):
            tutti.submit([tutti.Call("barrier", "b", 1, 2)])
        self.assertEqual(tutti.submit([]), [])
        tutti.wait_all(tutti.submit([tutti.Call("barrier", "b")]))

    def test_factors(self) -> None:
        x = np.full(2, float(self.rank))
        seen = tutti.allreduce_async("f", x, prescale=2.0, postscale=3.0).wait()
        self.assertEqual(seen.tolist(), [6 * self.sum] * 2)
        calls = [tutti.Call("reduce_scatter", "g", np.ones(self.size), prescale=5.0)]
        self.assertEqual(tutti.submit(calls)[0].wait().tolist(), [5.0 * self.size])
        with self.assertRaisesRegex(ValueError, "prescale"):
            tutti.allreduce_async("f", x, prescale=0.0)

    def test_priority(self) -> None:
        x = np.full(2, float(self.rank))
        seen = tutti.allreduce_async("p", x, priority=np.int64(255)).wait()
        self.assertEqual(seen.tolist(), [self.sum] * 2)
        for priority in (-1, 256, 2**32 + 7, -2**32 + 3):
            with self.assertRaisesRegex(ValueError, "priority"):
                tutti.allreduce_async("p", x, priority=priority)

    def test_wire(self) -> None:
        """On one host a wire format changes no result, but is checked and compared between
        ranks."""
        x = np.full(2000, np.float32(4097))
        for wire in ("float32", "bfloat16", "float16", "float8_e4m3"):
            seen = tutti.allreduce_async("w", x, wire=wire).wait()
            self.assertEqual(seen.tolist(), [4097.0 * self.size] * 2000)
        seen = tutti.submit([tutti.Call("allreduce", "w", x, wire="bfloat16")])[0].wait()
        self.assertEqual(seen.tolist(), [4097.0 * self.size] * 2000)
        with self.assertRaisesRegex(ValueError, "wire is 'int8'; it must be one of float32, "):
            tutti.allreduce_async("w", x, wire="int8")
        with self.assertRaisesRegex(ValueError, "options->wire is for sums and averages"):
            tutti.allreduce_async("w", x, op="max", wire="float16")
        if self.size > 1:
            with self.assertRaisesRegex(tutti.MismatchError, "as bfloat16 between hosts"):
                tutti.allreduce_async("w", x, wire="bfloat16" if self.rank else "float16").wait()

    def test_any(self) -> None:
        requests = [tutti.allreduce_async("n%d" % i, np.full(2, float(i))) for i in range(5)]
        left = dict(enumerate(requests))
        while left:
            keys = list(left)
            key = keys[tutti.wait_any([left[k] for k in keys])]
            self.assertEqual(left.pop(key).wait().tolist(), [float(key * self.size)] * 2)
        self.assertEqual(tutti.wait_any([requests[0], requests[0]]), 0)
        with self.assertRaises(ValueError):
            tutti.wait_any([])

    def test_any_beside_a_wait(self) -> None:
        """Another thread waits for a request that is not done. Meanwhile wait_any() fails at its
        own timeout while no request is done, and returns another request when that one is done."""
        if self.size == 1:
            return
        if self.rank == 0:
            first = tutti.allreduce_async("first", np.ones(2))
            second = tutti.allreduce_async("second", np.ones(2))
            seen = []

            def wait() -> None:
                try:
                    seen.append(first.wait(60)[1])
                except tutti.TuttiError as error:
                    seen.append(error)

            thread = threading.Thread(target=wait)
            thread.start()
            while not first._lock.locked():
                time.sleep(0.001)
            with self.assertRaises(tutti.TimeoutError):
                tutti.wait_any([first], 0.01)
            with self.assertRaises(tutti.TimeoutError):
                tutti.wait_any([first, second], 0.01)
            tutti.barrier()
            self.assertEqual(tutti.wait_any([first, second]), 1)
            tutti.barrier()
            thread.join()
            self.assertEqual(seen, [self.size])
        else:
            tutti.barrier()
            second = tutti.allreduce_async("second", np.ones(2))
            tutti.barrier()
            tutti.allreduce_async("first", np.ones(2)).wait()
        self.assertEqual(second.wait()[0], self.size)

    def test_persistent(self) -> None:
        x = np.zeros(4)
        with tutti.persistent(tutti.Call("allreduce", "p", x, out=x)) as step:
            self.assertTrue(step.test())
            with self.assertRaises(tutti.InvalidArgumentError):
                step.wait()
            for turn in range(5):
                x[:] = turn
                self.assertIs(step.start(), step)
                self.assertIs(step.wait(), x)
                self.assertEqual(x.tolist(), [float(turn * self.size)] * 4)
            with self.assertRaises(tutti.InvalidArgumentError):
                step.wait()
            step.start()
            with self.assertRaises(tutti.InvalidArgumentError):
                step.start()
            self.assertEqual(tutti.wait_any([step]), 0)
        with self.assertRaises(tutti.InvalidArgumentError):
            step.start()
        with self.assertRaisesRegex(ValueError, "counts"):
            tutti.persistent(tutti.Call("allgatherv", "q", x))

    def test_persistent_ended_elsewhere(self) -> None:
        """Another thread ends the requests after wait_any() has tested them."""
        real = _requests._wait_any

        def late(requests, wait_ms):
            for request in requests:
                request.wait()
            return real(requests, wait_ms)

        x = np.ones(2)
        with tutti.persistent(tutti.Call("allreduce", "p", x)) as step:
            for others in ([], [tutti.allreduce_async("q", x)]):
                step.start()
                with mock.patch.object(_requests, "_wait_any", late), \
                        mock.patch.object(_requests.Request, "test", lambda _: False):
                    self.assertEqual(tutti.wait_any([step] + others), 0)
                tutti.wait_all(others)

    def test_persistent_copies(self) -> None:
        """If an input were copied, the copy would have the data of the time at which the request
        was made."""
        x, y = np.zeros((4, 2)), np.zeros(4)
        for call in (tutti.Call("allreduce", "p", x[:, 0], out=y),
                     tutti.Call("allreduce", "p", array=[1.0, 2.0], out=np.zeros(2)),
                     tutti.Call("broadcast", "p", 5)):
            with self.subTest(call.kind):
                if call.kind == "broadcast" and self.rank != 0:
                    continue  # these ranks need an array
                with self.assertRaisesRegex(ValueError, call.kind + ": array, .* copied"):
                    tutti.persistent(call)
        memory = bytearray(4)
        with tutti.persistent(tutti.Call("allreduce", "p", memory, out=np.zeros(4, "u1"))) as step:
            for turn in range(3):
                memory[:] = [turn] * 4
                self.assertEqual(step.start().wait().tolist(), [turn * self.size] * 4)

    def test_persistent_dropped(self) -> None:
        step = tutti.persistent(tutti.Call("barrier", "d"))
        step.start().wait()
        del step
        step = tutti.persistent(tutti.Call("barrier", "d")).start()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            del step
        tutti.barrier_async("e").wait()
        while _requests._dropped:
            _requests.free_dropped()

    def test_threads(self) -> None:
        """Threads submit and wait at the same time, and share a request."""
        seen = {}
        shared = tutti.allreduce_async("shared", np.ones(2))

        def work(i: int) -> None:
            for turn in range(20):
                name = "thread %d, %d" % (i, turn)
                seen[name] = tutti.allreduce_async(name, np.full(3, float(i + turn))).wait()[2]
            seen[i] = shared.wait()[0]

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([seen[i] for i in range(4)], [self.size] * 4)
        for i in range(4):
            for turn in range(20):
                self.assertEqual(seen["thread %d, %d" % (i, turn)], self.size * (i + turn))

    def test_user_operation(self) -> None:
        """The library's thread may run a Python operation while this thread computes with the
        GIL."""
        op = tutti.create_op(lambda left, right: np.hypot(left, right))
        request = tutti.allreduce_async("hypot", np.array([3.0, 4.0]), op)
        while not request.test():
            sum(range(1000))
        wanted = np.array([3.0, 4.0]) * np.sqrt(self.size)
        np.testing.assert_allclose(request.wait(), wanted)
        op.free()

    def test_failing_operation(self) -> None:
        """An exception of an operation's function is raised by the requests that were pending at
        that time, and by no later call."""
        if self.size == 1:
            return

        raised = []

        def function(left: Any, right: Any) -> Any:
            if 99 in left or 99 in right:
                raised.append(99)
                raise KeyError("99")
            return left + right

        op = tutti.create_op(function)
        bad, good = np.full(3, 99.0), np.ones(3)
        x = good.copy()
        step = tutti.persistent(tutti.Call("allreduce", "step", x, op, out=x))
        failed, beside = tutti.submit([tutti.Call("allreduce", "failed", bad, op),
                                       tutti.Call("allreduce", "beside", good, op)])
        while not failed.test() or not beside.test():
            pass
        on_this_rank = len(raised) > 0  # the function may run on other ranks only
        for request in (beside, failed):
            if on_this_rank:
                with self.assertRaises(KeyError):
                    request.wait()
            else:
                request.wait()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tutti.allreduce_async("dropped", bad, op)
        while _requests._dropped:
            _requests.free_dropped()
        tutti.barrier()
        for call in (lambda: tutti.allreduce(good, op),
                     lambda: tutti.allreduce_async("next", good, op).wait(),
                     lambda: step.start().wait()):
            self.assertEqual(call().tolist(), [float(self.size)] * 3)
        step.free()
        op.free()

    def test_failing_operation_in_stream(self) -> None:
        def function(left: Any, right: Any) -> Any:
            raise KeyError("99")

        op, x = tutti.create_op(function), np.ones(1)

        def cuda_run(*_: Any) -> int:  # only calls the operation, as the library does
            op._combine(x.ctypes.data, x.ctypes.data, x.ctypes.data, 1, _lib.FLOAT64, None)
            return _lib.OK

        with mock.patch.object(_lib.lib, "tutti_cuda_run", cuda_run):
            with self.assertRaises(KeyError):
                tutti.cuda_run(tutti.Call("allreduce", None, x, op), 1)
        op.free()

    def test_mismatch(self) -> None:
        if self.size == 1:
            return
        request = tutti.allreduce_async("odd", np.ones(3 + self.rank))
        with self.assertRaisesRegex(tutti.MismatchError,
                                    r"'odd': rank \d has an allreduce of \d elements of float64"):
            request.wait()
        with self.assertRaises(tutti.MismatchError) as again:
            request.wait()
        self.assertEqual(again.exception.status, 2)
        good = tutti.allreduce_async("odd", np.ones(3))
        bad = tutti.allreduce_async("even", np.ones(3, "f4" if self.rank else "f8"))
        with self.assertRaisesRegex(tutti.MismatchError, "even"):
            tutti.wait_all([bad, good])
        self.assertEqual(good.wait().tolist(), [float(self.size)] * 3)
        self.assertIsNone(self.world.error)

    def test_names(self) -> None:
        with self.assertRaises(tutti.InvalidArgumentError):
            tutti.barrier_async("")
        with self.assertRaises(tutti.InvalidArgumentError):
            tutti.barrier_async("x" * 256)
        with self.assertRaisesRegex(TypeError, "name"):
            tutti.barrier_async(5)
        for call in (lambda: tutti.barrier_async("x\0a"),
                     lambda: tutti.submit([tutti.Call("barrier", "x\0a")]),
                     lambda: tutti.persistent(tutti.Call("barrier", "x\0a"))):
            with self.assertRaisesRegex(ValueError, "name .* zero"):
                call()
        tutti.barrier_async("h\u00e9, \u6771\u4eac").wait()

    def test_stream_error(self) -> None:
        """After an error of the CUDA stream the request continues."""
        request = tutti.allreduce_async("s", np.full(3, float(self.rank)))
        with mock.patch.object(_lib.lib, "tutti_cuda_wait", lambda *_: _lib.SYSTEM):
            with self.assertRaises(tutti.SystemCallError):
                request.wait(stream=1)
        self.assertIn("started", repr(request))
        self.assertEqual(request.wait().tolist(), [self.sum] * 3)

    def test_without_names(self) -> None:
        """Calls without a name are matched by their order."""
        x = np.full(3, float(self.rank))
        try:
            first = tutti.allreduce_async(None, x)
        except tutti.InvalidArgumentError:
            self.skipTest("this library wants names")
        second = tutti.allreduce_async(None, x, "max")
        self.assertEqual(second.wait().tolist(), [float(self.size - 1)] * 3)
        self.assertEqual(first.wait().tolist(), [self.sum] * 3)

    def test_z_join(self) -> None:
        for turn in range(self.rank):
            seen = tutti.allreduce_async("batch", np.ones(2)).wait()
            self.assertEqual(seen.tolist(), [float(self.size - 1 - turn)] * 2)
        self.assertEqual(tutti.join(), self.size - 1)


if __name__ == "__main__":
    ranks.main((1, 2, 3), before=tutti.init)
