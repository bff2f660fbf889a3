# SPDX-License-Identifier: BSD-3-Clause
"""One rank of a comparison with Horovod: the loop that its users write, over Horovod or Tutti.

    mpirun -np 2 python horovod_loop.py tutti.horovod.torch
    mpirun -np 2 python horovod_loop.py horovod.torch

Each case submits named tensors in place and synchronizes them in order, as DistributedOptimizer
does. Rank 0 prints a line for each case: its name, and the time of every repetition in us. Where
ranks differ, the slowest counts. With --optimizer each case also runs as a step of
DistributedOptimizer.
"""

import importlib
import sys
import time
from typing import Any, Callable, Dict, List

import torch

CASES = (("small", 1, 16, 200), ("1000x1KiB", 1000, 1024, 20), ("160x640KiB", 160, 640 * 1024, 6))


def loop(hvd: Any, tensors: List[torch.Tensor], names: List[str]) -> Callable[[], None]:
    """One step: submit all tensors, then wait for each."""
    def step() -> None:
        handles = [hvd.allreduce_async_(tensor, name=name, op=hvd.Sum)
                   for tensor, name in zip(tensors, names)]
        for handle in handles:
            hvd.synchronize(handle)
    return step


def optimizer(hvd: Any, tensors: List[torch.Tensor], names: List[str]) -> Callable[[], None]:
    """One step: a backward pass that makes all gradients, then the optimizer's step."""
    parameters = [torch.nn.Parameter(tensor) for tensor in tensors]
    opt = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.0),
                                   named_parameters=list(zip(names, parameters)))

    def step() -> None:
        opt.zero_grad()
        sum((p[0] for p in parameters[1:]), parameters[0][0]).backward()
        opt.step()
    return step


def measure(hvd: Any, step: Callable[[], None], repetitions: int) -> List[float]:
    """The slowest rank's time of each repetition, in us."""
    times = torch.zeros(repetitions, dtype=torch.float64)
    for index in range(-max(2, repetitions // 4), repetitions):
        hvd.barrier()
        begin = time.perf_counter()
        step()
        if index >= 0:
            times[index] = (time.perf_counter() - begin) * 1e6
    return hvd.allreduce(times, op=hvd.Max, name="times").tolist()


def main() -> None:
    """Run all cases."""
    hvd = importlib.import_module(sys.argv[1])
    hvd.init()
    torch.set_num_threads(1)
    makers: Dict[str, Any] = {"": loop}
    if "--optimizer" in sys.argv:
        makers["optimizer "] = optimizer
    for kind, make in makers.items():
        for name, count, size, repetitions in CASES:
            tensors = [torch.ones(size // 4) for _ in range(count)]
            names = ["%s%s.%d" % (kind, name, index) for index in range(count)]
            times = measure(hvd, make(hvd, tensors, names), repetitions)
            if hvd.rank() == 0:
                print("%s%s: %s" % (kind, name, " ".join("%.1f" % t for t in times)), flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
