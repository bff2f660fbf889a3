# SPDX-License-Identifier: BSD-3-Clause
"""Training on random shapes leaks no memory, no descriptors and no threads.

TUTTI_TEST_SECONDS: how long each job trains, by default 30. In 30 s the test finds lost
descriptors, lost threads and large leaks. In an hour it also finds a leak of 4 KB for each network.
"""

import gc
import os
import random
import re
import statistics
import time
from typing import Any, List, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torch_ranks
from torch_ranks import init

TRAIN_S = float(os.environ.get("TUTTI_TEST_SECONDS", "30"))
# The fragmentation of the heap differs with each sequence of shapes. In addition, torch itself
# loses 1 to 2 KB with each network (measured with gloo, torch 2.15).
MOST_GROWTH = 16 << 20
MOST_THREADS = 16  # the C++ backend has more threads when more calls end at the same time
SAMPLES = 200
LEAST_SAMPLES = 24


class Sample(NamedTuple):
    """The resources of this process."""

    memory: int  # bytes of anonymous and of shared memory
    descriptors: int
    threads: int


def sample() -> Sample:
    """Measure this process. Call it while only the world's communicator is open."""
    gc.collect()
    with open("/proc/self/status", encoding="ascii") as status:
        sizes = re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", status.read(), re.M)
    return Sample(sum(int(size) << 10 for size in sizes), len(os.listdir("/proc/self/fd")),
                  len(os.listdir("/proc/self/task")))


def network(chance: random.Random) -> nn.Module:
    """Layers of random widths, the same on all ranks."""
    widths = [chance.randint(1, 400) for _ in range(chance.randint(2, 6))]
    layers: List[nn.Module] = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.Linear(inputs, outputs, bias=chance.random() < 0.5), nn.Tanh()]
    return nn.Sequential(*layers).to(chance.choice((torch.float32, torch.float64, torch.bfloat16)))


def train(chance: random.Random, group: Any) -> None:
    """Some steps of a new network, and some of the other calls that programs make."""
    net = DistributedDataParallel(network(chance), process_group=group,
                                  bucket_cap_mb=chance.choice((0.001, 0.01, 0.1, 25)),
                                  gradient_as_bucket_view=chance.random() < 0.5)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    first = next(net.parameters())
    for _ in range(chance.randint(1, 8)):
        optimizer.zero_grad()
        net(torch.ones(chance.randint(1, 16), first.shape[1], dtype=first.dtype)).sum().backward()
        optimizer.step()
    count = chance.randint(0, 5000)
    size = dist.get_world_size()
    parts = [torch.empty(count) for _ in range(size)]
    dist.all_gather(parts, torch.zeros(count), group=group)
    dist.broadcast(parts[0], 0, group=group)
    objects: List[Any] = [None] * size
    dist.all_gather_object(objects, {"count": count}, group=group)
    assert objects == [{"count": count}] * size


def test_ddp(rank: int, size: int) -> None:
    """Train new networks all the time. Every fourth network has a group of its own, which is
    destroyed after the training."""
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]  # it caches code by shape
    init()
    samples: List[Sample] = []
    train(random.Random(0), None)  # the first network imports large parts of torch
    began = time.monotonic()
    rounds, is_over = 0, torch.zeros(1)
    while not is_over:
        chance = random.Random(rounds)
        group = dist.new_group() if rounds % 4 == 3 else None
        train(chance, group)
        if group is not None:
            dist.destroy_process_group(group)
        rounds += 1
        passed = time.monotonic() - began
        if passed * SAMPLES >= len(samples) * TRAIN_S:
            samples.append(sample())
        is_over.fill_(passed >= TRAIN_S and len(samples) >= LEAST_SAMPLES)
        dist.all_reduce(is_over, dist.ReduceOp.MAX)
    dist.destroy_process_group()
    quarter = len(samples) // 4
    early, late = samples[quarter:2 * quarter], samples[-quarter:]
    grown = (statistics.median(s.memory for s in late) -
             statistics.median(s.memory for s in early))
    print("rank %d: %d networks in %.0f s; memory %.1f MiB, grown by %.2f MiB; %d descriptors, "
          "%d threads" % (rank, rounds, passed, late[-1].memory / 2**20, grown / 2**20,
                          late[-1].descriptors, late[-1].threads))
    assert {s.descriptors for s in late} == {s.descriptors for s in early}, samples
    assert max(s.threads for s in late) <= MOST_THREADS, samples
    assert grown <= MOST_GROWTH, [s.memory for s in samples]


test_ddp.seconds = TRAIN_S + torch_ranks.SECONDS  # type: ignore[attr-defined]

if __name__ == "__main__":
    torch_ranks.main(sizes=(2,))
