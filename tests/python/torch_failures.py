# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that die, stop, or make different calls: the others soon get an error with a text."""

import gc
import os
import resource
import signal
import time
from datetime import timedelta
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import torch_ranks
from torch_ranks import init, words


def in_time(seconds: float, function: Callable[[], Any], *patterns: str) -> None:
    """Check that the function fails with these words within `seconds`."""
    began = time.monotonic()
    words(function, *patterns)
    assert time.monotonic() - began < seconds, time.monotonic() - began


def reduce_for_ever() -> None:
    """Calls until one fails."""
    while True:
        dist.all_reduce(torch.ones(1000))


def test_killed(rank: int, size: int) -> None:
    """A rank is killed by a signal while calls of all kinds are pending. The other ranks must get
    the error within 3 s."""
    init()
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    group = dist.distributed_c10d._get_default_group()
    in_time(3, reduce_for_ever, "rank 1", "lost")
    words(lambda: dist.all_reduce(torch.ones(1), async_op=True).wait(), "rank 1")
    words(lambda: group.allreduce([torch.ones(1)], dist.AllreduceOptions()).get_future().wait(),
          "rank 1")


test_killed.fatal = {1}  # type: ignore[attr-defined]


def test_killed_future(rank: int, size: int) -> None:
    """The future of a pending call gets the error as well, and so does its callback."""
    init()
    dist.barrier()
    if rank == 1:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    group = dist.distributed_c10d._get_default_group()
    future = group.allreduce([torch.ones(1)], dist.AllreduceOptions()).get_future()
    seen = []
    after = future.then(lambda f: seen.append(words(f.value, "rank 1")))
    in_time(4, future.wait, "rank 1", "lost")
    after.wait()
    assert seen


test_killed_future.fatal = {1}  # type: ignore[attr-defined]


def die_in_backward(rank: int, has_hook: bool) -> None:
    """Rank 1 dies in its backward pass. The backward pass of the other ranks raises an error that
    names rank 1."""
    init()
    net = DistributedDataParallel(nn.Linear(40, 40), bucket_cap_mb=0.001)
    if has_hook:
        net.register_comm_hook(None, default_hooks.fp16_compress_hook)
    net(torch.ones(8, 40)).sum().backward()
    if rank == 1:
        net.module.bias.register_hook(lambda gradient: os.kill(os.getpid(), signal.SIGKILL))
    words(lambda: net(torch.ones(8, 40)).sum().backward(), "rank 1", "lost")


def test_killed_backward(rank: int, size: int) -> None:
    """The error is passed on by torch's C++ code, which takes it from the future."""
    die_in_backward(rank, False)


def test_killed_hook(rank: int, size: int) -> None:
    """backward() also raises the error if DDP has a communication hook, whose callback then
    fails."""
    die_in_backward(rank, True)


test_killed_backward.fatal = test_killed_hook.fatal = {1}  # type: ignore[attr-defined]


def test_killed_any_source(rank: int, size: int) -> None:
    """A rank dies while two receives from any source are posted: both end with the error, long
    before the group's timeout."""
    init()
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["posted"])
        os.kill(os.getpid(), signal.SIGKILL)
    works = [dist.irecv(torch.zeros(4)) for _ in range(2)]
    store.set("posted", "x")
    for work in works:
        in_time(30, work.wait, "rank 1", "lost")


test_killed_any_source.fatal = {1}  # type: ignore[attr-defined]
test_killed_any_source.sizes = (2,)  # type: ignore[attr-defined]


def test_stopped(rank: int, size: int) -> None:
    """A rank is stopped: the group's timeout ends the call, and names the rank."""
    init(seconds=3)
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    began = time.monotonic()
    words(lambda: dist.all_reduce(torch.ones(10)), "1")
    assert 2 < time.monotonic() - began < 60, time.monotonic() - began


test_stopped.fatal = {1}  # type: ignore[attr-defined]


def test_stopped_future(rank: int, size: int) -> None:
    """A rank is stopped while no thread waits in the library, but a thread waits for a future, as
    in DDP."""
    init(seconds=3)
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    group = dist.distributed_c10d._get_default_group()
    began = time.monotonic()
    words(lambda: group.allreduce([torch.ones(9)], dist.AllreduceOptions()).get_future().wait())
    assert 2 < time.monotonic() - began < 60, time.monotonic() - began


test_stopped_future.fatal = {1}  # type: ignore[attr-defined]


def test_mismatch(rank: int, size: int) -> None:
    """Different shapes, types or operations: all ranks get the error text, and the group still
    works."""
    init()
    t = torch.ones(10 if rank == 0 else 11)
    words(lambda: dist.all_reduce(t), "10", "11", "allreduce")
    t = torch.ones(4, dtype=torch.float32 if rank == 0 else torch.float64)
    words(lambda: dist.all_reduce(t), "float32", "float64")
    words(lambda: dist.all_reduce(torch.ones(2)) if rank == 0 else
          dist.broadcast(torch.ones(2), 0), "allreduce", "broadcast")
    t = torch.ones(4)
    dist.all_reduce(t)
    assert t[0] == size
    if rank < 2:
        t = torch.ones(3 + rank)
        words(lambda: dist.send(t, 1) if rank == 0 else dist.recv(t, 0), "3", "4")
    dist.barrier()
    dist.destroy_process_group()


def test_new_timeout(rank: int, size: int) -> None:
    """set_timeout replaces the timeout of init_process_group, here for a call that one rank does
    not make."""
    init(seconds=600)
    dist.barrier()
    if rank == 0:
        dist.set_timeout(timedelta(seconds=2))
        words(lambda: dist.all_reduce(torch.ones(1)))
    else:
        words(lambda: dist.recv(torch.zeros(1), 0))


test_new_timeout.seconds = 60  # type: ignore[attr-defined]
if not hasattr(dist, "set_timeout"):  # torch 2.5
    test_new_timeout.backends = ()  # type: ignore[attr-defined]


def test_wait_timeout(rank: int, size: int) -> None:
    """A wait with its own timeout fails in time, and the call continues."""
    init()
    if rank == 1:
        store_gate(rank, size)
    work = dist.all_reduce(torch.ones(3), async_op=True)
    if rank != 1:
        in_time(20, lambda: work.wait(timedelta(milliseconds=300)), "300 ms")
        store_gate(rank, size)
    work.wait()
    dist.destroy_process_group()


def store_gate(rank: int, size: int) -> None:
    """Rank 1 passes this point after all other ranks have reached it."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["gate/%d" % r for r in range(size) if r != 1])
    else:
        store.set("gate/%d" % rank, "x")


def test_monitored_barrier(rank: int, size: int) -> None:
    """monitored_barrier names the absent ranks, and the group still works."""
    init()
    group = dist.distributed_c10d._get_default_group()
    barrier = group._get_backend(torch.device("cpu")).monitored_barrier \
        if not hasattr(group, "comm") else group.monitored_barrier
    barrier(timedelta(seconds=30))
    if rank == 0:
        missing = "Ranks 1, 2" if size > 2 else "Rank 1"
        words(lambda: barrier(timedelta(milliseconds=200), True),
              missing + " failed to pass monitoredBarrier")
    dist.barrier()
    if rank != 0:  # too late, but these ranks get an error as well
        words(lambda: barrier(timedelta(seconds=20)), "Rank %d" % rank, "rank 0")
    dist.barrier()
    barrier(timedelta(seconds=30))
    dist.destroy_process_group()


test_monitored_barrier.sizes = (2, 3)  # type: ignore[attr-defined]


def test_abort(rank: int, size: int) -> None:
    """abort ends the group on all ranks."""
    init()
    group = dist.distributed_c10d._get_default_group()
    backend = group if hasattr(group, "comm") else group._get_backend(torch.device("cpu"))
    if rank == 0 and hasattr(backend, "abort"):
        backend.abort()
        words(lambda: dist.all_reduce(torch.ones(1)))
    elif hasattr(backend, "abort"):
        in_time(20, reduce_for_ever, "aborted")


def test_state(rank: int, size: int) -> None:
    """The options of the backend, in versions of torch that have them. get_error() reports how the
    group has ended; a mismatch does not end it."""
    init(seconds=40)
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    assert backend.options.backend == "tutti"
    assert backend.options._timeout == timedelta(seconds=40), backend.options._timeout
    words(lambda: dist.all_reduce(torch.ones(2 + rank)), "allreduce")
    assert backend.get_error() == ErrorType.SUCCESS
    dist.barrier()
    if rank == 0:
        dist.set_timeout(timedelta(seconds=2))
        assert backend.options._timeout == timedelta(seconds=2), backend.options._timeout
        words(lambda: dist.all_reduce(torch.ones(1)))
        assert backend.get_error() == ErrorType.TIMEOUT, backend.get_error()
    else:
        words(lambda: dist.recv(torch.zeros(1), 0))
        assert backend.get_error() != ErrorType.SUCCESS


def test_state_killed(rank: int, size: int) -> None:
    """get_error() after the loss of a rank."""
    init()
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    words(reduce_for_ever, "rank 1", "lost")
    assert backend.get_error() == ErrorType.REMOTE_ERROR, backend.get_error()


test_state_killed.fatal = {1}  # type: ignore[attr-defined]


def test_left(rank: int, size: int) -> None:
    """If a rank has left, a call that needs this rank fails with an error text."""
    init()
    dist.barrier()
    if rank == 1:
        dist.destroy_process_group()
        return
    in_time(10, lambda: dist.all_reduce(torch.ones(1)), "rank 1")


def test_closed(rank: int, size: int) -> None:
    """Calls on a group that was shut down report this."""
    init()
    group = dist.distributed_c10d._get_default_group()
    if hasattr(group, "shutdown"):
        group.shutdown()
        words(lambda: group.allreduce([torch.ones(1)], dist.AllreduceOptions()), "shut down")


def test_closed_any_source(rank: int, size: int) -> None:
    """Two receives from any source end with the group."""
    init()
    dist.barrier()
    works = [dist.irecv(torch.zeros(1)) for _ in range(2)]
    dist.destroy_process_group()
    for work in works:
        try:
            work.wait()
        except dist.DistBackendError:
            continue
        raise AssertionError("no error was raised")


def test_dropped(rank: int, size: int) -> None:
    """Receives from any source end with the group, even if no reference to the group is left."""
    init()
    messages = dist.distributed_c10d._get_default_group()._messages
    work = dist.irecv(torch.zeros(1))
    dist.destroy_process_group()
    gc.collect()
    in_time(30, work.wait)
    messages.close()  # needs no group


test_dropped.backends = ("python",)  # type: ignore[attr-defined]


def test_connect(rank: int, size: int) -> None:
    """If a rank never connects, the other ranks get an error after the group's timeout."""
    if rank == 1:
        return
    store = torch_ranks.store()
    os.environ["TORCH_TUTTI"] = os.environ.get("TORCH_TUTTI", "auto")
    began = time.monotonic()
    words(lambda: dist.init_process_group("tutti", store=store, rank=rank, world_size=size,
                                          timeout=timedelta(seconds=2)), "tutti")
    assert time.monotonic() - began < 60
    if rank == 0:  # its process has the store
        store.wait(["ended/%d" % other for other in range(2, size)])
    else:
        store.set("ended/%d" % rank, "x")


def test_no_thread(rank: int, size: int) -> None:
    """The system starts no further thread: futures complete nevertheless."""
    init()
    dist.barrier()
    if os.geteuid() == 0:  # the limit does not apply to root
        os.setresuid(60000, 60000, 60000)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    works = [dist.all_reduce(torch.full((3,), float(i)), async_op=True) for i in range(4)]
    for i, future in enumerate([work.get_future() for work in works]):
        assert future.wait()[0].tolist() == [i * size] * 3
    dist.destroy_process_group()


test_no_thread.backends = ("cpp",)  # type: ignore[attr-defined]


ErrorType = getattr(torch._C._distributed_c10d, "ErrorType", None)  # from torch 2.8 on
test_state.backends = test_state_killed.backends = (  # type: ignore[attr-defined]
    ("cpp",) if ErrorType else ())

if __name__ == "__main__":
    torch_ranks.main(sizes=(2, 3))
