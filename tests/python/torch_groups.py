# SPDX-License-Identifier: BSD-3-Clause
"""Groups that only members make, overlapping groups, groups of one rank, split groups, and one
group after another."""

import os
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import torch_ranks
from torch_ranks import init


def count_files() -> int:
    """Open descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def count_threads() -> int:
    """Threads of this process."""
    return len(os.listdir("/proc/self/task"))


def test_members(rank: int, size: int) -> None:
    """All ranks call new_group, but only the members make the group. The groups overlap."""
    init()
    pairs = [dist.new_group([a, (a + 1) % size]) for a in range(size)]
    alone = [dist.new_group([a]) for a in range(size)]
    everyone = dist.new_group()
    for a, pair in enumerate(pairs):
        members = {a, (a + 1) % size}
        t = torch.ones(3) * rank
        dist.all_reduce(t, group=pair)
        assert t.tolist() == [sum(members) if rank in members else rank] * 3
        if rank in members:
            root = max(members)
            dist.broadcast(t, root, group=pair)
    for a, group in enumerate(alone):
        if a == rank:
            t = torch.ones(2) * rank
            dist.all_reduce(t, group=group)
            dist.barrier(group=group)
            assert t.tolist() == [rank] * 2
    dist.barrier(group=everyone)
    dist.destroy_process_group(pairs[0])
    t = torch.ones(1)
    dist.all_reduce(t, group=everyone)
    assert t.item() == size
    dist.destroy_process_group()


def test_many(rank: int, size: int) -> None:
    """64 groups of all ranks exist together. Prints the time, descriptors and threads of a group.
    The test does not limit the time, because the machine may be busy."""
    init()
    dist.barrier()
    files, threads, began = count_files(), count_threads(), time.monotonic()
    groups = [dist.new_group() for _ in range(64)]
    seconds = time.monotonic() - began
    t = torch.ones(64)
    works = [dist.all_reduce(t[i:i + 1].mul_(rank + i), group=group, async_op=True)
             for i, group in enumerate(groups)]
    for work in works:
        work.wait()
    assert t.tolist() == [sum(r + i for r in range(size)) for i in range(64)]
    os.write(1, b"rank %d: 64 groups in %.2f s; each takes %.1f descriptors and %.1f threads\n"
             % (rank, seconds, (count_files() - files) / 64, (count_threads() - threads) / 64))
    del groups, works, work  # torch 2.5 destroys a group by dropping it
    dist.destroy_process_group()
    assert count_files() <= files, (count_files(), files)


test_many.sizes = (4,)  # type: ignore[attr-defined]


def test_late_members(rank: int, size: int) -> None:
    """A group does not wait for ranks outside it."""
    init()
    if rank == size - 1:
        time.sleep(0.5)
    began = time.monotonic()
    group = dist.new_group(list(range(size - 1)), use_local_synchronization=True) \
        if rank < size - 1 else None
    if rank < size - 1:
        t = torch.ones(1)
        dist.all_reduce(t, group=group)
        assert t.item() == size - 1
        assert time.monotonic() - began < 30
    dist.destroy_process_group()


def test_again(rank: int, size: int) -> None:
    """A process destroys and makes groups several times, with the same store and names. Nothing
    must be left over."""
    files, threads = [], []
    store = torch_ranks.store()
    for i in range(6):
        dist.init_process_group("tutti", store=store, rank=rank, world_size=size)
        t = torch.ones(4) * i
        dist.all_reduce(t)
        assert t[0] == i * size
        group = dist.new_group(list(range(size)))
        dist.barrier(group=group)
        dist.destroy_process_group()
        files.append(count_files())
        threads.append(count_threads())
    assert max(files[2:]) <= files[1] + 4, files
    assert max(threads[2:]) <= threads[1] + 4, threads


def test_grown(rank: int, size: int) -> None:
    """A group without the last rank, and then a group of all ranks with the same store and name."""
    store = torch_ranks.store()
    if rank < size - 1:
        dist.init_process_group("tutti", store=store, rank=rank, world_size=size - 1)
        dist.barrier()
        dist.destroy_process_group()
        store.set("ended/%d" % rank, "x")
    store.wait(["ended/%d" % other for other in range(size - 1)])
    dist.init_process_group("tutti", store=store, rank=rank, world_size=size,
                            timeout=timedelta(seconds=30))
    t = torch.ones(1)
    dist.all_reduce(t)
    assert t.item() == size
    dist.destroy_process_group()


def test_with_gloo(rank: int, size: int) -> None:
    """tutti is used beside gloo: in a map of devices, and as another group."""
    init("cpu:tutti")
    gloo = dist.new_group(backend="gloo")
    tutti = dist.new_group(backend="tutti")
    for group in (gloo, tutti, None):
        t = torch.ones(2)
        dist.all_reduce(t, group=group)
        assert t.tolist() == [size] * 2
    assert dist.get_backend(tutti) == "tutti"
    dist.destroy_process_group()


test_with_gloo.backends = ("cpp",)  # type: ignore[attr-defined]


def test_threads(rank: int, size: int) -> None:
    """Two threads use two groups at the same time."""
    init()
    groups = [dist.new_group() for _ in range(2)]
    errors = []

    def use(group: object, value: int) -> None:
        try:
            for i in range(100):
                t = torch.ones(50) * value
                dist.all_reduce(t, group=group)
                assert t[0] == value * size
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=use, args=(g, i + 1)) for i, g in enumerate(groups)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    dist.destroy_process_group()


def test_mixed(rank: int, size: int) -> None:
    """Ranks with the C++ backend and ranks with the Python backend in one group."""
    os.environ["TORCH_TUTTI"] = "python" if rank % 2 else "cpp"
    init()
    for n in (1, 1000):
        t = torch.ones(n)
        dist.all_reduce(t)
        assert (t == size).all()
        future = dist.all_reduce(t, async_op=True).get_future()
        assert future.then(lambda f: f.value()[0][0].item()).wait() == size * size
    parts = [torch.zeros(1) for _ in range(size)]
    dist.all_gather(parts, torch.full((1,), float(rank)))
    assert [int(p) for p in parts] == list(range(size))
    work = dist.isend(torch.ones(2) * rank, (rank + 1) % size, tag=5)
    t = torch.zeros(2)
    dist.recv(t, (rank - 1) % size, tag=5)
    work.wait()
    assert t[0] == (rank - 1) % size
    group = dist.distributed_c10d._get_default_group()
    a, b = torch.ones(3), torch.ones(4)
    group.allreduce_coalesced([a, b], dist.AllreduceCoalescedOptions()).wait()
    assert a[0] == b[0] == size
    dist.destroy_process_group()


test_mixed.backends = ("cpp",)  # type: ignore[attr-defined]


def test_split(rank: int, size: int) -> None:
    """split_group, in versions of torch that have it for all backends."""
    init()
    parts = [list(range(0, size, 2)), list(range(1, size, 2))]
    parts = [part for part in parts if part]
    group = dist.split_group(None, parts)
    t = torch.ones(1) * rank
    dist.all_reduce(t, group=group)
    assert t.item() == sum(parts[rank % 2])
    dist.destroy_process_group()


if __name__ == "__main__":
    if not torch_ranks.MISSING:
        version = tuple(int(n) for n in torch.__version__.split(".")[:2])
        test_split.backends = ("cpp",) if version >= (2, 10) else ()  # type: ignore[attr-defined]
        test_split.sizes = (2, 4)  # type: ignore[attr-defined]
    test_grown.sizes = test_late_members.sizes = (3, 4)  # type: ignore[attr-defined]
    torch_ranks.main(sizes=(2, 3, 4))
