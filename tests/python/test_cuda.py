# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of torch and (if installed) of CuPy in GPU memory: direct calls, asynchronous calls and
calls in CUDA streams.

Needs a GPU and torch. Ranks that share a GPU exchange their data through host memory.
"""

import os
import sys
import unittest
from typing import Any, Callable, List

import ranks

try:
    import torch
    MISSING = "" if torch.cuda.device_count() > 0 else "torch sees no GPU"
except ImportError as error:
    MISSING = str(error)
try:
    import cupy
except ImportError:
    cupy = None
import tutti

COUNT = 100003
CYCLES = 20_000_000  # GPU clock cycles, about 10 ms: the work that is queued before a call


class Cuda(unittest.TestCase):
    def setUp(self) -> None:
        self.rank, self.size = tutti.world().rank, tutti.world().size
        self.sum = self.size * (self.size + 1) // 2
        self.device = torch.device("cuda", torch.cuda.current_device())

    def full(self, value: float, count: int = COUNT, dtype: Any = torch.float32) -> torch.Tensor:
        return torch.full((count,), value, device=self.device, dtype=dtype)

    def late(self, value: float) -> torch.Tensor:
        """A tensor that gets its value after other work in the current CUDA stream."""
        t = self.full(-1)
        torch.cuda._sleep(CYCLES)
        return t.fill_(value)

    def all_are(self, t: Any, value: float) -> None:
        """Check, in the current CUDA stream, that each element has the value."""
        wrong = int((t != value).sum())
        self.assertEqual(wrong, 0, "%d elements are not %g" % (wrong, value))

    def test_device(self) -> None:
        self.assertEqual(tutti.cuda_device(), self.device.index)

    def test_types(self) -> None:
        """The list includes types that NCCL does not reduce and types that only DLPack can name."""
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8,
                      torch.int8, torch.int16, torch.int32, torch.int64):
            t, out = self.full(self.rank + 1, dtype=dtype), self.full(0, dtype=dtype)
            torch.cuda.synchronize()
            self.assertIs(tutti.allreduce(t, out=out), out)
            self.all_are(out, self.sum)
            self.all_are(t, self.rank + 1)
            tutti.allreduce(t, "max", out=t)
            self.all_are(t, self.size)

    def test_collectives(self) -> None:
        every, part = self.full(0, self.size), self.full(0, 1)
        mine = self.full(self.rank + 1, self.size)
        ranks_ = torch.arange(1.0, self.size + 1, device=self.device)
        torch.cuda.synchronize()
        calls: List[Any] = [
            (lambda: tutti.allgather(mine[:1], out=every), every, ranks_),
            (lambda: tutti.alltoall(mine, out=every), every, ranks_),
            (lambda: tutti.broadcast(every, 0), every, ranks_),
            (lambda: tutti.reduce_scatter(mine, out=part), part, self.full(self.sum, 1)),
            (lambda: tutti.scan(mine, out=every), every,
             self.full((self.rank + 1) * (self.rank + 2) // 2, self.size)),
        ]
        for call, out, want in calls:
            call()
            self.assertTrue(torch.equal(out, want), "%s, wanted %s" % (out, want))

    def test_streams(self) -> None:
        """A call runs after earlier work in its CUDA stream, and later work reads the result."""
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            t = self.late(self.rank + 1)
            tutti.cuda_run(tutti.Call("allreduce", None, t, out=t), stream)
            self.all_are(t, self.sum)
            given, out = self.late(self.rank + 1), self.full(0)
            request, = tutti.submit([tutti.Call("allreduce", "x", given, out=out)], stream=stream)
            request.wait(stream=stream)
            self.all_are(out, self.sum)

    def test_many(self) -> None:
        """Asynchronous calls by name, in opposite orders on even and odd ranks."""
        tensors = [self.full(self.rank + i, 1 + 100 * i) for i in range(40)]
        torch.cuda.synchronize()
        order = list(range(40))[::1 if self.rank % 2 else -1]
        requests = {i: tutti.allreduce_async("t%d" % i, tensors[i], out=tensors[i]) for i in order}
        for i in order:
            requests[i].wait()
            self.all_are(tensors[i], self.sum + self.size * (i - 1))

    def test_persistent(self) -> None:
        t = self.full(0)
        with tutti.persistent(tutti.Call("allreduce", "again", t, out=t)) as request:
            for step in range(5):
                t.fill_(self.rank + 1 + step)
                torch.cuda.synchronize()
                request.start().wait()
                self.all_are(t, self.sum + step * self.size)

    def test_cupy(self) -> None:
        """CuPy arrays (by __cuda_array_interface__ or DLPack) and a CUDA stream of CuPy."""
        if cupy is None:
            self.skipTest("no CuPy")
        stream = cupy.cuda.Stream()
        with stream:
            x = cupy.full(COUNT, self.rank + 1, dtype=cupy.float64)
            tutti.cuda_run(tutti.Call("allreduce", None, x, out=x), stream)
            self.all_are(x, self.sum)
        x = cupy.full(7, self.rank + 1, dtype=cupy.int32)
        cupy.cuda.Device().synchronize()
        tutti.allreduce(x, out=x)
        self.all_are(x, self.sum)

    def test_refused(self) -> None:
        """Refused: no `out`, an `out` in host memory, and a view that is not contiguous."""
        t = self.full(1, 10)
        refused: List[Callable[[], Any]] = [
            lambda: tutti.allreduce(t),
            lambda: tutti.allreduce(t, out=torch.zeros(10)),
            lambda: tutti.allreduce(t[::2], out=t[::2]),
        ]
        for call in refused:
            self.assertRaises(ValueError, call)
        tutti.barrier()


def begin() -> None:
    """Choose the device and initialize CUDA before tutti.init."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.zeros(1, device="cuda")
    tutti.init()


if __name__ == "__main__":
    if MISSING:
        print("skipped: %s" % MISSING)
        sys.exit(77)
    ranks.main((1, 2), before=begin)
