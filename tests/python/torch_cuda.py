# SPDX-License-Identifier: BSD-3-Clause
"""CUDA tensors: every collective in stream order, futures, messages, streams, DDP and FSDP2.

Needs a GPU. If there are fewer GPUs than ranks, ranks share them: then, on one host, their data are
copied through the host's memory. A test whose name ends with `_apart` makes each rank a separate
host, which has a separate communicator of NCCL.
"""

import os
import sys
from typing import Any, Callable, Dict, List

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import torch_ranks
from torch_ranks import init, words

COUNT = 100003
CYCLES = 20_000_000  # GPU clock cycles, about 10 ms: the work that is queued before a call


def begin(rank: int, apart: bool = False) -> torch.device:
    """Make the process group. Returns this rank's device."""
    if apart:
        os.environ["TUTTI_HOST_ID"] = os.environ["NCCL_HOSTID"] = "host%d" % rank
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    init("tutti")
    return device


def late(device: torch.device, value: float, count: int = COUNT,
         dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor that gets its value when the GPU has done other work first."""
    t = torch.zeros(count, device=device, dtype=dtype)
    torch.cuda._sleep(CYCLES)
    return t.fill_(value)


def all_are(t: torch.Tensor, value: float) -> None:
    """Check, in the current stream, that each element has the value."""
    wrong = (t != value).sum().item()
    assert wrong == 0, "%d elements of %d are not %g; first %g" % (wrong, t.numel(), value,
                                                                   t.flatten()[0].item())


def collectives(rank: int, size: int, device: torch.device) -> None:
    """Each call is queued behind late work, and its result is read without a synchronisation."""
    total = size * (size + 1) // 2
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64,
                  torch.int32, torch.uint8):
        t = late(device, rank + 1, dtype=dtype)
        dist.all_reduce(t)
        all_are(t, total)
    t = late(device, rank + 1)
    dist.all_reduce(t, op=dist.ReduceOp.AVG)
    all_are(t, total / size)
    t = late(device, rank + 1)
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    all_are(t, size)
    t = late(device, rank)
    dist.broadcast(t, size - 1)
    all_are(t, size - 1)
    t = late(device, rank + 1)
    dist.reduce(t, 0)
    if rank == 0:
        all_are(t, total)
    t, whole = late(device, rank), torch.empty(size * COUNT, device=device)
    dist.all_gather_into_tensor(whole, t)
    for other, part in enumerate(whole.chunk(size)):
        all_are(part, other)
    parts = [torch.empty(COUNT, device=device) for _ in range(size)]
    dist.all_gather(parts, late(device, rank))
    for other, part in enumerate(parts):
        all_are(part, other)
    part = torch.empty(COUNT, device=device)
    dist.reduce_scatter_tensor(part, late(device, rank + 1, size * COUNT))
    all_are(part, total)
    whole = torch.empty(size * 1000, device=device)
    dist.all_to_all_single(whole, late(device, rank, size * 1000))
    for other, part in enumerate(whole.chunk(size)):
        all_are(part, other)
    uneven = torch.empty((rank + 1) * size, device=device)
    dist.all_to_all_single(uneven, late(device, rank, size * (size + 1) // 2),
                           [rank + 1] * size, list(range(1, size + 1)))
    for other, part in enumerate(uneven.chunk(size)):
        all_are(part, other)
    lists = [torch.empty(10, device=device) for _ in range(size)]
    dist.gather(late(device, rank, 10), lists if rank == 0 else None, 0)
    if rank == 0:
        for other, part in enumerate(lists):
            all_are(part, other)
    part = torch.empty(10, device=device)
    dist.scatter(part, [late(device, other, 10) for other in range(size)] if rank == 0 else None, 0)
    all_are(part, rank)
    dist.barrier()
    empty = torch.empty(0, device=device)
    dist.all_reduce(empty)
    odd = late(device, rank + 1, 64).view(8, 8).t()[1:]  # not contiguous
    dist.all_reduce(odd)
    all_are(odd, total)


def test_collectives(rank: int, size: int) -> None:
    """Ranks of one host."""
    collectives(rank, size, begin(rank))
    dist.destroy_process_group()


def test_collectives_apart(rank: int, size: int) -> None:
    """Each rank is a host."""
    collectives(rank, size, begin(rank, apart=True))
    dist.destroy_process_group()


def test_futures(rank: int, size: int) -> None:
    """wait() delays the current stream, not the host. A future's callback runs with a stream in
    which the result is complete."""
    device = begin(rank)
    total = size * (size + 1) // 2
    tensors = [late(device, rank + 1) for _ in range(4)]
    work = [dist.all_reduce(t, async_op=True) for t in tensors]
    doubled = [w.get_future().then(lambda f: f.value()[0] * 2) for w in work]
    for w, t in zip(work, tensors):
        w.wait()
        all_are(t, total)
    for future in doubled:
        all_are(future.wait(), 2 * total)
    dist.destroy_process_group()


def test_callback(rank: int, size: int) -> None:
    """A collective in a future's callback is not part of the order of the program's calls: rank 0
    makes it before the last call, the other ranks make it after this call."""
    device = begin(rank)
    store = dist.distributed_c10d._get_default_store()
    total = size * (size + 1) // 2
    a, b, c = (torch.full((COUNT,), float(value * (rank + 1)), device=device)
               for value in (1, 10, 100))
    if rank == 0:
        store.wait(["called/%d" % other for other in range(1, size)])
    work = dist.all_reduce(a, async_op=True)
    after = work.get_future().then(
        lambda _: dist.all_reduce(b, async_op=True).get_future().wait())
    if rank == 0:
        after.wait()
    last = dist.all_reduce(c, async_op=True)
    if rank > 0:
        store.set("called/%d" % rank, "x")
    for pending, t, value in ((work, a, 1), (last, c, 100), (after, b, 10)):
        pending.wait()
        all_are(t, value * total)
    dist.destroy_process_group()


def test_streams(rank: int, size: int) -> None:
    """Calls in two streams, each behind separate late work."""
    device = begin(rank)
    streams = [torch.cuda.Stream(device) for _ in range(2)]
    tensors = []
    for number, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            t = late(device, rank + 1 + number)
            dist.all_reduce(t)
            tensors.append(t * 2)
    for number, (stream, t) in enumerate(zip(streams, tensors)):
        with torch.cuda.stream(stream):
            all_are(t, 2 * (size * (size + 1) // 2 + size * number))
    dist.destroy_process_group()


def test_other_stream(rank: int, size: int) -> None:
    """A call in one stream is completed by a later call in another stream. A wait orders the first
    stream nevertheless."""
    device = begin(rank)
    first, second = (torch.cuda.Stream(device) for _ in range(2))
    with torch.cuda.stream(first):
        t = late(device, rank + 1)
        work = dist.all_reduce(t, async_op=True)
    with torch.cuda.stream(second):
        for _ in range(3):
            dist.all_reduce(torch.ones(1, device=device), async_op=True).wait()
    with torch.cuda.stream(first):
        work.wait()
        all_are(t, size * (size + 1) // 2)
    dist.destroy_process_group()


def messages(rank: int, size: int, device: torch.device) -> None:
    """A ring of messages, one after the other and as a batch."""
    right, left = (rank + 1) % size, (rank - 1) % size
    if size > 1:
        t = late(device, rank)
        if rank == 0:
            dist.send(t, 1)
        elif rank == 1:
            dist.recv(t, 0)
            all_are(t, 0)
        sent, got = late(device, rank), torch.full((COUNT,), -1.0, device=device)
        for w in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, right),
                                         dist.P2POp(dist.irecv, got, left)]):
            w.wait()
        all_are(got, left)


def test_messages(rank: int, size: int) -> None:
    """Ranks of one host."""
    messages(rank, size, begin(rank))
    dist.destroy_process_group()


def test_messages_apart(rank: int, size: int) -> None:
    """Each rank is a host."""
    messages(rank, size, begin(rank, apart=True))
    dist.destroy_process_group()


def model(device: torch.device) -> nn.Module:
    """A small network, the same on all ranks."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(),
                         nn.Linear(64, 5)).to(device)


def train(net: nn.Module, data: List[torch.Tensor]) -> List[float]:
    """The losses of some steps."""
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    losses = []
    for batch in data:
        optimizer.zero_grad()
        loss = net(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def trained(rank: int, size: int, device: torch.device,
            wrap: Callable[[nn.Module], nn.Module]) -> None:
    """The mean of the ranks' losses is the loss of one network trained on all their data."""
    generator = torch.Generator().manual_seed(7)
    batches = [torch.randn(size, 16, 20, generator=generator).to(device) for _ in range(6)]
    want = train(model(device), [batch.flatten(0, 1) for batch in batches])
    got = torch.tensor(train(wrap(model(device)), [batch[rank] for batch in batches]),
                       device=device)
    dist.all_reduce(got, op=dist.ReduceOp.AVG)
    torch.testing.assert_close(got.cpu(), torch.tensor(want), rtol=1e-4, atol=1e-5)


def test_ddp(rank: int, size: int) -> None:
    """Buckets so small that several are in flight."""
    device = begin(rank)
    trained(rank, size, device,
            lambda net: DistributedDataParallel(net, device_ids=[device.index],
                                                bucket_cap_mb=0.01))
    dist.destroy_process_group()


def test_ddp_apart(rank: int, size: int) -> None:
    """DDP as above, with each rank as a separate host."""
    device = begin(rank, apart=True)
    trained(rank, size, device,
            lambda net: DistributedDataParallel(net, device_ids=[device.index],
                                                bucket_cap_mb=0.01))
    dist.destroy_process_group()


def test_fsdp2(rank: int, size: int) -> None:
    """Parameters in parts on the ranks."""
    from torch.distributed.fsdp import fully_shard
    device = begin(rank)
    trained(rank, size, device, lambda net: fully_shard(net) and net)
    dist.destroy_process_group()


def test_refused(rank: int, size: int) -> None:
    """Tensors on different devices: the error names both devices, and the group still works."""
    device = begin(rank)
    t = torch.ones(4, device=device)
    if size > 1:
        words(lambda: dist.all_gather([torch.empty(4) for _ in range(size)], t), "cpu", "cuda")
    dist.all_reduce(t)
    all_are(t, size)
    dist.destroy_process_group()


if __name__ == "__main__":
    if torch_ranks.MISSING or torch.cuda.device_count() == 0:
        print("skipped: %s" % (torch_ranks.MISSING or "torch sees no GPU"))
        sys.exit(77)
    torch_ranks.main([1, 2])
