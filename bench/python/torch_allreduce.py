# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed over tutti and over gloo, in turn, in one run.

    torchrun --nproc-per-node 2 torch_allreduce.py [--busy]

Prints the median time and the median CPU time of rank 0's process, with all its threads. First it
measures dist.all_reduce, for some sizes, in ordinary memory and in memory that tutti shares between
ranks. Then it measures a step of DistributedDataParallel over gradients of the sizes of ResNet-18,
without any model: the backward pass only makes gradients. DDP's buckets are in shared memory,
unless DDP_DISABLE_COMM_MEM=1. With --busy it measures this step again, beside a Python thread of
rank 0's process that computes all the time; the CPU time then includes that of this thread.
"""

import statistics
import sys
import threading
import time
from typing import Any, Callable, Iterator, List, Tuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SIZES = (4, 1 << 20, 25 << 20)
# The parameters of ResNet-18: stem, four stages of two blocks, classifier.
RESNET18 = [64 * 3 * 49, 64, 64] + sum(
    ([cout * cin * 9, cout, cout, cout * cout * 9, cout, cout]
     + ([cout * cin, cout, cout] if cin != cout else [])
     + [cout * cout * 9, cout, cout] * 2
     for cin, cout in ((64, 64), (64, 128), (128, 256), (256, 512))), []) + [512000, 1000]


def measure(call: Callable[[], Any], group: Any, times: int) -> Tuple[List[float], List[float]]:
    """Seconds and CPU seconds of each call."""
    wall, cpu = [], []
    for _ in range(times):
        dist.barrier(group=group)
        began, used = time.perf_counter(), time.process_time()
        call()
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - used)
    return wall, cpu


class Gradients(nn.Module):
    """Parameters whose backward pass costs nothing but a fill."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.zeros(n)) for n in RESNET18])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Each parameter is used once."""
        total = x.sum()
        for weight in self.weights:
            total = total + weight.sum()
        return total


def rounds(name: str, calls: List[Tuple[str, Any, Callable[[], Any]]], times: int) -> None:
    """Time the backends in turn, so that the machine's load affects both alike."""
    wall = {backend: [] for backend, _, _ in calls}
    cpu = {backend: [] for backend, _, _ in calls}
    for _ in range(10):
        for backend, group, call in calls:
            seconds, used = measure(call, group, times)
            wall[backend] += seconds
            cpu[backend] += used
    if dist.get_rank() == 0:
        a, b = (statistics.median(wall[backend]) * 1e6 for backend in ("tutti", "gloo"))
        c, d = (statistics.median(cpu[backend]) * 1e6 for backend in ("tutti", "gloo"))
        print("%-18s tutti %9.1f us  gloo %9.1f us  ratio %.3f   CPU %9.1f us, %9.1f us, %.3f"
              % (name, a, b, a / b, c, d, c / d), flush=True)


def tensors(count: int) -> Iterator[Tuple[str, torch.Tensor]]:
    """Yield an ordinary tensor, and one in memory that tutti need not copy, like DDP's buckets."""
    yield "", torch.zeros(count)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    if getattr(backend, "supports_tensor_alloc", lambda device: False)(torch.device("cpu")):
        t = backend.allocate_tensor(count, dtype=torch.float32, device=torch.device("cpu"))
        yield ", shared", t.zero_()


def busy(stop: threading.Event) -> None:
    """Compute, and hold Python's lock, until `stop` is set."""
    while not stop.is_set():
        sum(range(1000))


def main() -> None:
    """Measure."""
    torch.set_num_threads(1)
    dist.init_process_group("tutti")
    groups = {"tutti": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    for size in SIZES:
        times = 200 if size < 1 << 20 else 30 if size < 10 << 20 else 4
        for kind, t in tensors(size // 4):
            rounds("%d B%s" % (size, kind),
                   [(name, group, lambda t=t, group=group: dist.all_reduce(t, group=group))
                    for name, group in groups.items()], times)
    calls = []
    for name, group in groups.items():
        net = DistributedDataParallel(Gradients(), process_group=group)

        def step(net: Any = net) -> None:
            net.zero_grad()
            net(torch.zeros(1)).backward()
        for _ in range(3):
            step()
        calls.append((name, group, step))
    rounds("DDP step", calls, 3)
    if "--busy" in sys.argv[1:]:
        stop = threading.Event()
        thread = threading.Thread(target=busy, args=(stop,), daemon=True)  # an error ends rank 0
        if dist.get_rank() == 0:
            thread.start()
        rounds("DDP step, busy", calls, 3)
        stop.set()
        if dist.get_rank() == 0:
            thread.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
