# SPDX-License-Identifier: BSD-3-Clause
"""Messages: with tags, from any source, in batches, to the rank itself."""

import os
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import torch_ranks
from torch_ranks import init, words


def test_tags(rank: int, size: int) -> None:
    """A message is matched with a receive of the same tag. Messages of one tag keep their order."""
    init()
    to, source = (rank + 1) % size, (rank - 1) % size
    works = [dist.isend(torch.full((3,), float(10 * rank + tag)), to, tag=tag)
             for tag in (0, 1, 2)]
    works += [dist.isend(torch.full((2,), float(rank)), to, tag=1)]
    for tag in (2, 0, 1):
        t = torch.zeros(3)
        assert dist.recv(t, source, tag=tag) == source
        assert t.tolist() == [10 * source + tag] * 3
    t = torch.zeros(2)
    dist.recv(t, source, tag=1)
    assert t.tolist() == [source] * 2
    for work in works:
        work.wait()
    dist.destroy_process_group()


def test_layouts(rank: int, size: int) -> None:
    """Tensors that are not contiguous, empty, complex, bool."""
    init()
    for t in (torch.arange(12.0).view(3, 4).t(), torch.zeros(0), torch.ones(3) + 1j,
              torch.tensor([True, False]), torch.arange(10)[::3]):
        if rank == 0:
            for to in range(1, size):
                dist.send(t, to)
        else:
            got = torch.zeros_like(t) if t.is_contiguous() else torch.zeros(
                t.shape[::-1], dtype=t.dtype).t()
            dist.recv(got, 0)
            assert torch.equal(got, t), (got, t)
    dist.destroy_process_group()


def test_batch(rank: int, size: int) -> None:
    """A ring of batched messages, and a batch of some ranks only."""
    init()
    to, source = (rank + 1) % size, (rank - 1) % size
    for n in (1, 100000):
        sent, got = torch.full((n,), float(rank)), torch.zeros(n)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, got, source),
                                            dist.P2POp(dist.isend, sent, to)]):
            work.wait()
        assert (got == source).all()
    if rank < 2:
        got = torch.zeros(1)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.ones(1), 1 - rank),
                                            dist.P2POp(dist.irecv, got, 1 - rank)]):
            work.wait()
        assert got.item() == 1
    dist.barrier()
    dist.destroy_process_group()


def test_any_source(rank: int, size: int) -> None:
    """Receives from any source, then one from a given rank with the same tag."""
    init()
    for _ in range(5):
        if rank == 0:
            seen = []
            for _ in range(size - 1):
                t = torch.zeros(2)
                source = dist.recv(t)
                assert t.tolist() == [source, 1]
                seen.append(source)
            assert sorted(seen) == list(range(1, size))
            for source in range(1, size):
                dist.send(torch.ones(1), source, tag=7)
                t = torch.zeros(2)
                dist.recv(t, source)
                assert t.tolist() == [source, 2]
        else:
            dist.send(torch.tensor([float(rank), 1]), 0)
            dist.recv(torch.zeros(1), 0, tag=7)  # now rank 0 has all first messages
            dist.send(torch.tensor([float(rank), 2]), 0)
        dist.barrier()
    if rank == 0:
        works = [dist.irecv(torch.zeros(1), tag=3) for _ in range(size - 1)]
        sources = []
        for work in works:
            work.wait()
            sources.append(work._source_rank())
        assert sorted(sources) == list(range(1, size))
        if size > 2:  # receives of one element are still posted
            words(lambda: dist.irecv(torch.zeros(9), tag=3), "any source", "Use another tag")
    else:
        dist.send(torch.ones(1), 0, tag=3)
    dist.barrier()
    dist.destroy_process_group()


def test_any_source_inference(rank: int, size: int) -> None:
    """A receive from any source into an inference tensor. Another thread delivers the message."""
    init()
    store = dist.distributed_c10d._get_default_store()
    with torch.inference_mode():
        if rank == 0:
            t = torch.zeros(2)
            work = dist.irecv(t)
            store.set("posted", "x")
            work.wait()
            assert t.tolist() == [1, 1]
        elif rank == 1:
            store.wait(["posted"])
            dist.send(torch.ones(2), 0)
    dist.barrier()
    dist.destroy_process_group()


def let_pass(rank: int, seconds: float) -> None:
    """Both ranks return when rank 0 has slept so long."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        time.sleep(seconds)
        store.set("passed", "x")
    store.wait(["passed"])


def receive_early(rank: int, seconds: float) -> None:
    """Post a receive this long before the message is sent, and end the group."""
    t = torch.zeros(4)
    work = dist.irecv(t, 1) if rank == 0 else None
    let_pass(rank, seconds)
    if rank == 1:
        dist.send(torch.ones(4), 0)
    if work is not None:
        work.wait()
        assert t.tolist() == [1] * 4
    dist.barrier()
    dist.destroy_process_group()


def test_early(rank: int, size: int) -> None:
    """The group's timeout does not apply to a receive that is posted early."""
    init(seconds=6)
    receive_early(rank, 7.5)


def test_early_in_block(rank: int, size: int) -> None:
    """Nor does it if the receive is in a coalesced block with a collective."""
    init(seconds=6)
    group, device = dist.distributed_c10d._get_default_group(), torch.device("cpu")
    t, total = torch.zeros(4), torch.ones(1)
    group._start_coalescing(device)
    group.allreduce([total], dist.AllreduceOptions())
    if rank == 0:
        group.recv([t], 1, 5)
    work = group._end_coalescing(device)
    let_pass(rank, 7.5)
    if rank == 1:
        dist.send(torch.ones(4), 0, tag=5)
    work.wait()
    assert total.item() == size
    assert (t == 1 - rank).all()
    dist.barrier()
    dist.destroy_process_group()


def test_early_future(rank: int, size: int) -> None:
    """The group's timeout does not apply to an early receive whose future was requested. A wait has
    the group's timeout."""
    init(seconds=5)
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        t = torch.zeros(4)
        work = dist.irecv(t, 1)
        future = work.get_future()
        if os.environ["TORCH_TUTTI"] == "python":
            words(work.wait, "Timed out")
        else:
            time.sleep(6)
        store.set("waited", "x")
        assert future.wait()[0].tolist() == [1] * 4
        work.wait()
    else:
        store.wait(["waited"])
        dist.send(torch.ones(4), 0)
    dist.barrier()
    dist.destroy_process_group()


def test_early_new_timeout(rank: int, size: int) -> None:
    """A timeout of set_timeout does not apply to an early receive."""
    init()
    dist.set_timeout(timedelta(seconds=5))
    receive_early(rank, 6)


if not hasattr(dist, "set_timeout"):  # torch 2.5
    test_early_new_timeout.backends = ()  # type: ignore[attr-defined]
for early in (test_early, test_early_in_block, test_early_future, test_early_new_timeout):
    early.sizes = (2,)  # type: ignore[attr-defined]


def test_self(rank: int, size: int) -> None:
    """Messages of a rank to itself, in any order."""
    init()
    got = torch.zeros(3)
    send = dist.isend(torch.arange(3.0), rank, tag=1)
    dist.irecv(got, rank, tag=1).wait()
    send.wait()
    assert got.tolist() == [0, 1, 2]
    receive = dist.irecv(got, rank)
    assert not receive.is_completed()
    dist.isend(torch.ones(3), rank).wait()
    receive.wait()
    assert got.tolist() == [1, 1, 1]
    receive = dist.irecv(torch.zeros(3), rank, tag=2)
    dist.isend(torch.ones(4), rank, tag=2).wait()
    words(receive.wait)  # the message has another length
    receive = dist.irecv(torch.zeros(3, dtype=torch.int32), rank, tag=3)
    dist.isend(torch.ones(3), rank, tag=3).wait()
    words(receive.wait)  # the message has another type
    got = torch.zeros(6)
    receive = dist.irecv(got, rank, tag=4)
    dist.isend(torch.arange(6.0).reshape(2, 3).t(), rank, tag=4).wait()
    receive.wait()  # the message has another shape
    assert got.tolist() == [0, 3, 1, 4, 2, 5]
    dist.destroy_process_group()


def test_synchronize(rank: int, size: int) -> None:
    """synchronize waits without Python's lock: another thread sends the message."""
    init(seconds=10)
    got = torch.zeros(2)
    receive = dist.irecv(got, rank)

    def send() -> None:
        time.sleep(0.3)
        dist.isend(torch.ones(2), rank).wait()

    thread = threading.Thread(target=send)
    thread.start()
    receive.synchronize()
    thread.join()
    assert got.tolist() == [1, 1]
    dist.destroy_process_group()


test_synchronize.sizes = (1,)  # type: ignore[attr-defined]


def test_refused(rank: int, size: int) -> None:
    """A message that was refused has no effect on later ones."""
    init()
    if rank == 0:
        words(lambda: dist.isend(torch.ones(2).to_sparse(), 1))
        dist.send(torch.ones(2), 1)
    elif rank == 1:
        words(lambda: dist.irecv(torch.ones(2).to_sparse(), 0))
        dist.recv(torch.zeros(2), 0)
    dist.barrier()
    dist.destroy_process_group()


test_self.sizes = (1, 2)  # type: ignore[attr-defined]


if __name__ == "__main__":
    torch_ranks.main(sizes=(2, 3, 4))
