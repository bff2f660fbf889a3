# SPDX-License-Identifier: BSD-3-Clause
"""The results of each collective of c10d are compared with gloo or with arithmetic, for random
shapes and types."""

import math
import random
from types import SimpleNamespace
from typing import Any, List

import torch
import torch.distributed as dist

import torch_ranks
from torch_ranks import init, words

NUMBERS = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8,
           torch.int16, torch.int32, torch.int64]
MOVED = NUMBERS + [torch.bool, torch.complex64, torch.complex128]
NEW = hasattr(dist, "all_gather_single")  # names of torch 2.14


def numbers(shape: Any, dtype: torch.dtype, rank: int, seed: int) -> torch.Tensor:
    """Small whole numbers, so that sums are exact in every type. Every rank can compute the numbers
    of each rank."""
    generator = torch.Generator().manual_seed(seed * 1000 + rank)
    values = torch.randint(0, 4, shape, generator=generator)
    if dtype.is_complex:
        return torch.complex(values.double(), values.flip(-1).double() if values.dim() else
                             values.double()).to(dtype)
    return values.to(dtype)


def shape_of(dice: random.Random) -> List[int]:
    """A random shape of at most a million elements; the same on all ranks."""
    while True:
        shape = [dice.choice([0, 1, 2, 3, 5, 17, 300]) for _ in range(dice.choice([0, 1, 2, 3]))]
        if math.prod(shape) <= 1000000:
            return shape


def layout(t: torch.Tensor, dice: random.Random) -> torch.Tensor:
    """Returns the same values, perhaps in a tensor that is not contiguous."""
    way = dice.randrange(4)
    if way == 0 and t.dim() >= 2:
        return t.clone().transpose(0, 1).contiguous().transpose(0, 1)
    if way == 1 and t.dim() >= 1:
        wide = torch.zeros(list(t.shape[:-1]) + [t.shape[-1] * 2 + 1], dtype=t.dtype)
        wide[..., 1::2] = t
        return wide[..., 1::2]
    return t.clone()


def same(got: torch.Tensor, want: torch.Tensor, what: Any) -> None:
    """Check that types, shapes and values are equal."""
    assert got.dtype == want.dtype and got.shape == want.shape, (what, got.dtype, want.dtype)
    assert torch.equal(got.contiguous(), want.contiguous()), "%s: got %s, want %s" % (what, got,
                                                                                     want)


def reduced(parts: List[torch.Tensor], op: Any) -> torch.Tensor:
    """The result that a reduction must have."""
    total = parts[0].clone()
    for part in parts[1:]:
        if op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            total = total + part
        elif op == dist.ReduceOp.PRODUCT:
            total = total * part
        elif op == dist.ReduceOp.MIN:
            total = torch.minimum(total, part)
        elif op == dist.ReduceOp.MAX:
            total = torch.maximum(total, part)
        elif op == dist.ReduceOp.BAND:
            total = total & part
        elif op == dist.ReduceOp.BOR:
            total = total | part
        else:
            total = total ^ part
    if op == dist.ReduceOp.AVG:
        total = (total / len(parts)).to(total.dtype)
    return total


def operations(dtype: torch.dtype) -> List[Any]:
    """The operations that a type has."""
    r = dist.ReduceOp
    if dtype.is_complex:
        return [r.SUM, r.AVG]
    if dtype.is_floating_point:
        return [r.SUM, r.MIN, r.MAX, r.PRODUCT, r.AVG]
    return [r.SUM, r.MIN, r.MAX, r.PRODUCT, r.AVG, r.BAND, r.BOR, r.BXOR]


def test_reductions(rank: int, size: int) -> None:
    """all_reduce, reduce, reduce_scatter in all types and operations."""
    init()
    dice = random.Random(1)
    for seed in range(120):
        dtype = dice.choice(NUMBERS + [torch.complex64])
        op = dice.choice(operations(dtype))
        shape = shape_of(dice)
        parts = [numbers(shape, dtype, r, seed) for r in range(size)]
        want = reduced(parts, op)
        what = (seed, dtype, op, shape)
        t = layout(parts[rank], dice)
        if dice.random() < 0.5:
            dist.all_reduce(t, op)
        else:
            work = dist.all_reduce(t, op, async_op=True)
            work.wait()
            assert work.is_completed() and work.is_success()
        close(t, want, op, what)
        root = dice.randrange(size)
        t = layout(parts[rank], dice)
        dist.reduce(t, root, op)
        if rank == root:
            close(t, want, op, what)
        lists = [[numbers(shape, dtype, r * size + i, seed) for i in range(size)]
                 for r in range(size)]
        want = reduced([lists[r][rank] for r in range(size)], op)
        output = layout(torch.zeros(shape, dtype=dtype), dice)
        dist.reduce_scatter(output, [layout(t, dice) for t in lists[rank]], op)
        close(output, want, op, what)
        if shape:
            output = torch.zeros(shape, dtype=dtype)
            dist.reduce_scatter_tensor(output, torch.cat(lists[rank]), op)
            close(output, want, op, what)
    dist.destroy_process_group()


def close(got: torch.Tensor, want: torch.Tensor, op: Any, what: Any) -> None:
    """Compare results. AVG may round once more or once less than torch's arithmetic."""
    if op == dist.ReduceOp.AVG:
        torch.testing.assert_close(got.contiguous(), want.contiguous(), msg=str(what))
    else:
        same(got, want, what)


def test_average(rank: int, size: int) -> None:
    """The quotient of integers is truncated, also that of negative ones."""
    init()
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        t = torch.tensor([-5, 5, -1, 1, -(rank + 1), 7 * rank], dtype=dtype)
        sums = [size * v for v in (-5, 5, -1, 1)] + [-sum(range(1, size + 1)), 7 * sum(range(size))]
        dist.all_reduce(t, dist.ReduceOp.AVG)
        assert t.tolist() == [int(total / size) for total in sums], (dtype, t)
    dist.destroy_process_group()


def test_bool(rank: int, size: int) -> None:
    """For bool, SUM and MAX are a logical or; PRODUCT and MIN are a logical and."""
    init()
    parts = [torch.tensor([r == 0, r > 0, True, False]) for r in range(size)]
    for op, want in ((dist.ReduceOp.SUM, any), (dist.ReduceOp.MAX, any), (dist.ReduceOp.BOR, any),
                     (dist.ReduceOp.PRODUCT, all), (dist.ReduceOp.MIN, all),
                     (dist.ReduceOp.BAND, all)):
        t = parts[rank].clone()
        dist.all_reduce(t, op)
        assert t.tolist() == [want(bool(p[i]) for p in parts) for i in range(4)], (op, t)
    dist.destroy_process_group()


def test_moves(rank: int, size: int) -> None:
    """broadcast, all_gather, gather, scatter, all_to_all, with equal and with uneven parts."""
    init()
    dice = random.Random(2)
    for seed in range(100):
        dtype, shape = dice.choice(MOVED), shape_of(dice)
        what = (seed, dtype, shape)
        parts = [numbers(shape, dtype, r, seed) for r in range(size)]
        root = dice.randrange(size)
        t = layout(parts[rank], dice)
        dist.broadcast(t, root)
        same(t, parts[root], what)
        outputs = [layout(torch.zeros(shape, dtype=dtype), dice) for _ in range(size)]
        dist.all_gather(outputs, layout(parts[rank], dice))
        for got, want in zip(outputs, parts):
            same(got, want, what)
        uneven(rank, size, dtype, dice, seed, root)
        if rank == root:  # the root's tensor is only read
            dist.broadcast(torch.full((1,), seed).expand(3), root)
        else:
            t = torch.zeros(3, dtype=torch.int64)
            dist.broadcast(t, root)
            assert t.tolist() == [seed] * 3
        if shape:
            whole = torch.zeros([shape[0] * size] + shape[1:], dtype=dtype)
            dist.all_gather_into_tensor(whole, parts[rank])
            same(whole, torch.cat(parts), what)
            if hasattr(dist, "gather_single"):
                whole = torch.zeros_like(whole) if rank == root else None
                dist.gather_single(layout(parts[rank], dice), whole, root)
                if rank == root:
                    same(whole, torch.cat(parts), what)
    dist.destroy_process_group()


def uneven(rank: int, size: int, dtype: torch.dtype, dice: random.Random, seed: int,
           root: int) -> None:
    """Parts of different lengths."""
    rows = [[dice.choice([0, 1, 2, 7]) for _ in range(size)] for _ in range(size)]
    width = dice.choice([1, 3])
    sent = [[numbers([rows[a][b], width], dtype, a * size + b, seed) for b in range(size)]
            for a in range(size)]
    mine = [sent[a][rank] for a in range(size)]
    what = (seed, dtype, rows)
    lengths = [rows[r][0] for r in range(size)]
    outputs = [torch.zeros([n, width], dtype=dtype) for n in lengths]
    dist.all_gather(outputs, sent[rank][0])
    for r, got in enumerate(outputs):
        same(got, sent[r][0], what)
    outputs = [torch.zeros([n, width], dtype=dtype) for n in lengths]
    dist.gather(sent[rank][0], outputs if rank == root else None, dst=root)
    for r, got in enumerate(outputs if rank == root else []):
        same(got, sent[r][0], what)
    output = torch.zeros([rows[root][rank], width], dtype=dtype)
    dist.scatter(output, sent[root] if rank == root else None, src=root)
    same(output, sent[root][rank], what)
    whole = torch.zeros([sum(rows[a][rank] for a in range(size)), width], dtype=dtype)
    dist.all_to_all_single(whole, torch.cat(sent[rank]), [rows[a][rank] for a in range(size)],
                           rows[rank])
    same(whole, torch.cat(mine), what)
    outputs = [torch.zeros_like(t) for t in mine]
    dist.all_to_all(outputs, [layout(t, dice) for t in sent[rank]])
    for got, want in zip(outputs, mine):
        same(got, want, what)
    total = reduced([torch.cat([numbers([lengths[b]], torch.int32, a, seed + b)
                                for b in range(size)]) for a in range(size)], dist.ReduceOp.SUM)
    output = torch.zeros([lengths[rank]], dtype=torch.int32)
    dist.reduce_scatter(output, [numbers([n], torch.int32, rank, seed + b)
                                 for b, n in enumerate(lengths)])
    same(output, total.split(lengths)[rank], what)


def test_even_all_to_all(rank: int, size: int) -> None:
    """One rank may pass the sizes of equal parts, and another may omit them."""
    init()
    output = torch.zeros(3 * size)
    sizes = [3] * size if rank % 2 else None
    dist.all_to_all_single(output, torch.arange(3.0 * size) + 100 * rank, sizes, sizes)
    want = torch.cat([torch.arange(3.0) + 3 * rank + 100 * r for r in range(size)])
    same(output, want, rank)
    words(lambda: dist.all_to_all_single(output, torch.zeros(3 * size), [1] * size, None),
          "output", str(3 * size))
    dist.destroy_process_group()


def test_coalesced(rank: int, size: int) -> None:
    """The coalesced forms, and a coalescing manager with a device."""
    init()
    group = dist.distributed_c10d._get_default_group()
    tensors = [torch.full((n,), float(rank + n)) for n in (1, 0, 5, 70000)]
    group.allreduce_coalesced(tensors, dist.AllreduceCoalescedOptions()).wait()
    for n, t in zip((1, 0, 5, 70000), tensors):
        same(t, torch.full((n,), float(sum(range(size)) + n * size)), n)
    x, y = torch.ones(4) * rank, torch.ones(9) * (rank + 1)
    for device in (None, torch.device("cpu")):
        a, b = x.clone(), y.clone()
        with dist._coalescing_manager(device=device, async_ops=True) as manager:
            dist.all_reduce(a)
            dist.all_reduce(b)
        manager.wait()
        same(a, torch.ones(4) * sum(range(size)), device)
        same(b, torch.ones(9) * sum(range(1, size + 1)), device)
    outputs = [torch.zeros(2 * size), torch.zeros(size)]
    inputs = [torch.ones(2) * rank, torch.ones(1) * rank]
    with dist._coalescing_manager() as manager:
        for output, input_ in zip(outputs, inputs):
            dist.all_gather_into_tensor(output, input_)
    same(outputs[1], torch.arange(float(size)), "gather")
    outputs = [torch.zeros(2), torch.zeros(1)]
    with dist._coalescing_manager() as manager:
        dist.reduce_scatter_tensor(outputs[0], torch.ones(2 * size))
        dist.reduce_scatter_tensor(outputs[1], torch.arange(float(size)))
    same(outputs[0], torch.ones(2) * size, "scatter")
    same(outputs[1], torch.ones(1) * rank * size, "scatter")
    dist.destroy_process_group()


def test_premul_sum(rank: int, size: int) -> None:
    """PREMUL_SUM multiplies before the sum."""
    init()
    op = dist._make_nccl_premul_sum(0.25)
    t = torch.ones(5) * (rank + 1)
    dist.all_reduce(t, op)
    same(t, torch.ones(5) * sum(range(1, size + 1)) / 4, "premul")
    output = torch.zeros(2)
    dist.reduce_scatter_tensor(output, torch.ones(2 * size), op)
    same(output, torch.ones(2) * size / 4, "premul")
    words(lambda: dist.all_reduce(torch.ones(3, dtype=torch.int32), op), "floating point")
    words(lambda: dist.all_reduce(torch.ones(3), dist._make_nccl_premul_sum(0.0)), "0")
    group = dist.distributed_c10d._get_default_group()
    tensors, options = [torch.ones(2), torch.ones(3)], dist.AllreduceCoalescedOptions()
    options.reduceOp = op
    group.allreduce_coalesced(tensors, options).wait()
    same(tensors[1], torch.ones(3) * size / 4, "premul")
    dist.destroy_process_group()


def test_overlaps(rank: int, size: int) -> None:
    """One buffer lies inside the other one: in this rank's part, in another rank's, or across two
    parts."""
    init()
    ranks = torch.arange(1.0, size + 1)
    for start in range(3 * size - 2):
        whole = torch.zeros(size, 3)
        mine = whole.view(-1)[start:start + 3]
        mine.fill_(rank + 1)
        dist.gather(mine, list(whole) if rank == 0 else None, dst=0)
        if rank == 0:
            same(whole, ranks[:, None].expand(size, 3), start)
        for call in (lambda: dist.all_gather(list(whole), mine),
                     lambda: dist.all_gather_into_tensor(whole.view(-1), mine)):
            mine.fill_(rank + 1)
            call()
            same(whole, ranks[:, None].expand(size, 3), start)
        for call in (lambda: dist.reduce_scatter(mine, list(whole)),
                     lambda: dist.reduce_scatter_tensor(mine, whole.view(-1))):
            whole.copy_((10 * ranks + rank)[:, None].expand(size, 3))
            call()
            same(mine, torch.full((3,), size * 10.0 * (rank + 1) + sum(range(size))), start)
        whole.copy_(ranks[:, None].expand(size, 3))
        part = mine if rank == 0 else torch.zeros(3)
        dist.scatter(part, list(whole) if rank == 0 else None, src=0)
        same(part, torch.full((3,), rank + 1.0), start)
    for shift in range(3):  # the output is in front of the input, overlaps it, or is equal to it
        for lists in (False, True):
            memory = torch.zeros(3 * size)
            send, receive = memory[size:2 * size], memory[shift * size // 2:][:size]
            send.copy_(rank * 10 + ranks)
            if lists:
                dist.all_to_all(list(receive.split(1)), list(send.split(1)))
            else:
                dist.all_to_all_single(receive, send)
            same(receive, 10 * (ranks - 1) + rank + 1, shift)
    memory = torch.full((size + 1,), rank, dtype=torch.uint8)
    dist.all_to_all_single(memory[1:], memory[:size])
    same(memory[1:], torch.arange(size, dtype=torch.uint8), "one byte")
    dist.destroy_process_group()


def test_allocated(rank: int, size: int) -> None:
    """Tensors in shared memory, of one rank or of all ranks. They outlive the group."""
    init()
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    if not hasattr(backend, "allocate_tensor"):
        dist.destroy_process_group()  # torch 2.5
        return
    assert backend.supports_tensor_alloc(torch.device("cpu"))
    for n in (0, 1, 5000, 1 << 20):
        for everyone in (True, False):
            ours = everyone or rank == 0
            t = backend.allocate_tensor(n, dtype=torch.int32, device=torch.device("cpu")) \
                if ours else torch.zeros(n, dtype=torch.int32)
            t[:] = rank + 1
            dist.all_reduce(t)
            same(t, torch.full((n,), sum(range(1, size + 1)), dtype=torch.int32), "allocated")
    words(lambda: backend.allocate_tensor(2**62 + 256, dtype=torch.float32,
                                          device=torch.device("cpu")), "too many")
    kept = backend.allocate_tensor(1000, dtype=torch.float64, device=torch.device("cpu"))
    dist.destroy_process_group()
    kept += 1
    same(kept[-3:], torch.ones(3, dtype=torch.float64), "kept")
    words(lambda: backend.allocate_tensor(1, dtype=torch.float32, device=torch.device("cpu")),
          "shut down")


test_allocated.backends = ("cpp",)  # type: ignore[attr-defined]


def test_sparse(rank: int, size: int) -> None:
    """Sums of sparse tensors: with places that ranks have in common and others, with two values at
    one place, with no values on a rank, and with rows of several values."""
    init()
    for step, (shape, dense) in enumerate([((9,), 0), ((5, 7), 0), ((6, 4), 1), ((3, 4, 2), 2)]):
        for dtype in (torch.float32, torch.int64):
            parts = []
            for r in range(size):
                generator = torch.Generator().manual_seed(100 * step + r)
                rows = 0 if r == 0 else 3 + r
                places = torch.stack([torch.randint(n, (rows,), generator=generator)
                                      for n in shape[:len(shape) - dense]])
                values = torch.randint(1, 9, (rows,) + shape[len(shape) - dense:],
                                       generator=generator).to(dtype)
                parts.append(torch.sparse_coo_tensor(places, values, shape))
            mine, want = parts[rank], sum(part.to_dense() for part in parts)
            for is_async in (False, True):
                t = mine.clone()
                with torch.device("meta"):  # new tensors have no data unless they name a device
                    work = dist.all_reduce(t, async_op=is_async)
                    if is_async:
                        work.wait()
                assert t.dtype == dtype and torch.equal(t.to_dense(), want), (shape, t, want)
    other = torch.ones(3 + rank).to_sparse()
    if size > 1:
        words(lambda: dist.all_reduce(other), "[1, %d]" % (3 + rank))
    dist.all_reduce(torch.ones(1))  # the group still works
    dist.destroy_process_group()


def test_refused(rank: int, size: int) -> None:
    """Calls that have no meaning are refused with an error text before any rank waits."""
    init()
    group = dist.distributed_c10d._get_default_group()
    complex_ = torch.ones(2, dtype=torch.complex64)
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.MAX
    words(lambda: group.allreduce([complex_], options).wait(), "complex")
    words(lambda: dist.all_reduce(torch.ones(2).to_sparse(), dist.ReduceOp.MAX), "sparse")
    words(lambda: dist.all_gather([torch.ones(3)] * size, torch.ones(2)), "3", "2")
    words(lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND))
    words(lambda: group.send([torch.ones(1)], size + 3, 0), "rank %d" % (size + 3))
    t = torch.ones(1)
    dist.all_reduce(t)  # the group still works
    assert t.item() == size
    if NEW:  # older versions ask only torch's own backends
        assert group._get_sequence_number_for_group() >= 1
    dist.destroy_process_group()


def test_objects(rank: int, size: int) -> None:
    """Objects of different lengths."""
    init()
    mine = {"rank": rank, "text": "x" * rank * 100}
    everything: List[Any] = [None] * size
    dist.all_gather_object(everything, mine)
    assert [e["rank"] for e in everything] == list(range(size))
    gathered: List[Any] = [None] * size
    dist.gather_object(mine, gathered if rank == 0 else None, dst=0)
    assert rank or [len(e["text"]) for e in gathered] == [r * 100 for r in range(size)]
    values = [mine, "second"] if rank == size - 1 else [None, None]
    dist.broadcast_object_list(values, src=size - 1)
    assert values[0]["rank"] == size - 1 and values[1] == "second"
    received: List[Any] = [None]
    dist.scatter_object_list(received, list(range(size)) if rank == 0 else None, src=0)
    assert received == [rank]
    dist.destroy_process_group()


def test_futures(rank: int, size: int) -> None:
    """Callbacks of futures wait for further collectives, many at once. All of them complete."""
    init()
    group = dist.distributed_c10d._get_default_group()

    def chained(t: torch.Tensor) -> Any:
        def more(future: Any) -> torch.Tensor:
            [value] = future.value()
            work = group.allreduce([value], dist.AllreduceOptions())
            return work.get_future().wait()[0]
        work = group.allreduce([t], dist.AllreduceOptions())
        return work.get_future().then(more)

    # One callback at a time, so that the order of calls is the same on all ranks.
    for i in range(20):
        assert chained(torch.ones(3) * i).wait()[0] == i * size * size
    works = [dist.all_reduce(torch.ones(10) * i, async_op=True) for i in range(50)]
    for i, work in enumerate(works):
        assert work.get_future().wait()[0][0] == i * size
    for i in range(50):
        dist.all_reduce(torch.ones(1000), async_op=True)  # no rank waits for this call
    dist.barrier()
    dist.destroy_process_group()


def test_two_futures(rank: int, size: int) -> None:
    """The callbacks of a Work's two futures, and of two messages, make collectives of different
    names. The two collectives are pending at the same time, because the other ranks make them
    later."""
    init()
    store = dist.distributed_c10d._get_default_store()
    group = dist.distributed_c10d._get_default_group()
    started = []

    def more(_future: Any) -> None:
        t = torch.ones(2)
        started.append((group.allreduce([t], dist.AllreduceOptions()), t))

    works = [dist.all_reduce(torch.ones(1), async_op=True)] * 2
    if size == 2:
        for tag in (1, 2):
            t = torch.ones(3)
            works.append(dist.irecv(t, 0, tag=tag) if rank else dist.isend(t, 1, tag=tag))
    if rank != 0:
        store.wait(["started"])
    for future in [work.get_future() for work in works]:
        future.then(more).wait()
    if rank == 0:
        store.set("started", "x")
    assert len(started) == len(works)
    for work, t in started:
        work.wait()
        assert t.tolist() == [size] * 2
    dist.destroy_process_group()


def test_device_future(rank: int, size: int) -> None:
    """A collective in a callback of a device tensor's future is not part of the order of the
    program's calls. Host tensors are used, as if they were device tensors; torch's own class of
    futures would need the device."""
    from tutti.torch import build
    plain = torch.futures.Future.__init__
    build.load().TuttiWork.device = lambda work: "cuda:0"
    torch.futures.Future.__init__ = lambda future, devices=None: plain(future)
    init()
    store = dist.distributed_c10d._get_default_store()
    a, b, c = (torch.full((3,), float(value * (rank + 1))) for value in (1, 10, 100))
    if rank == 0:
        store.wait(["called"])  # after rank 1's call with c
    work = dist.all_reduce(a, async_op=True)
    after = work.get_future().then(
        lambda _: dist.all_reduce(b, async_op=True).get_future().wait())
    if rank == 0:
        after.wait()  # before this rank's call with c
    last = dist.all_reduce(c, async_op=True)
    if rank == 1:
        store.set("called", "x")
    for pending in (work, last, after):
        pending.wait()
    assert (a[0], b[0], c[0]) == (3, 30, 300), (a, b, c)
    dist.destroy_process_group()


test_device_future.backends = ("cpp",)  # type: ignore[attr-defined]
test_device_future.sizes = (2,)  # type: ignore[attr-defined]


class Group(SimpleNamespace):
    """Unlike its base class, it allows weak references."""


def test_other_stream(rank: int, size: int) -> None:
    """The requests of device tensors were taken in one stream. A wait in another stream also orders
    that stream, and so does a request for the future. Streams and tensors are imitated."""
    from tutti.torch import origin, python_work
    streams = {"present": "first"}
    orders = []
    python_work.wait_for = lambda request, limit, device: 0
    torch.cuda.current_stream = lambda device: SimpleNamespace(
        record_event=lambda at=streams["present"]: "behind the calls in " + at,
        wait_event=lambda event, at=streams["present"]: orders.append((at, event)))
    plain = torch.futures.Future.__init__
    torch.futures.Future.__init__ = lambda future, devices=None: plain(future)
    calls = python_work.Calls("all_reduce")
    calls.device = torch.device("cuda", 0)
    group = Group(label="tutti", has_new_timeout=False, forget=lambda work, is_asked: None,
                  release=lambda work: None)
    work = python_work.PythonWork(group, calls, [1], [])
    assert work.is_completed()
    streams["present"] = "second"
    work.wait()
    streams["present"] = "third"
    assert isinstance(work.get_future(), origin.Future)
    assert orders == [("second", "behind the calls in first"),
                      ("third", "behind the calls in first")], orders


test_other_stream.backends = ("python",)  # type: ignore[attr-defined]
test_other_stream.sizes = (1,)  # type: ignore[attr-defined]


def test_future_at_once(rank: int, size: int) -> None:
    """get_future does not wait, even if another thread waits for the same Work."""
    init()
    store = dist.distributed_c10d._get_default_store()
    if rank != 0:
        store.wait(["asked"])
    work = dist.all_reduce(torch.ones(1), async_op=True)
    future = work.get_future()
    assert work.get_future() is future
    if rank == 0:
        store.set("asked", "x")
    assert future.wait()[0][0] == size
    dist.destroy_process_group()


def test_not_waited_for(rank: int, size: int) -> None:
    """A Work for which no thread waits is dropped after its end, even if an older receive is
    pending."""
    init()
    group = dist.distributed_c10d._get_default_group()
    t = torch.zeros(1)
    receive = dist.irecv(t, 1) if rank == 0 else None
    for _ in range(50):
        dist.all_reduce(torch.ones(1), async_op=True)
        dist.barrier()
        assert len(group._works) < 10, len(group._works)
    if receive is not None:
        receive.wait()
    elif rank == 1:
        dist.send(t, 0)
    dist.destroy_process_group()


test_not_waited_for.backends = ("python",)  # type: ignore[attr-defined]
test_not_waited_for.sizes = (2,)  # type: ignore[attr-defined]


def test_polled(rank: int, size: int) -> None:
    """A Work that has a future is polled. is_completed does not wait for the end of the future, and
    the future does not wait for a call of is_completed."""
    init()
    for i in range(200):
        t, got = torch.full((1000,), float(rank + i)), torch.empty(1000 * size)
        work = dist.all_gather_into_tensor(got, t, async_op=True)
        future = work.get_future()
        while not work.is_completed():
            pass
        future.wait()
        assert got.view(size, 1000)[:, 0].tolist() == [r + i for r in range(size)]
    dist.destroy_process_group()


test_polled.sizes = (2,)  # type: ignore[attr-defined]


def test_against_gloo(rank: int, size: int) -> None:
    """Random sums of floats: close to gloo's, and the same bits on all ranks."""
    init()
    gloo = dist.new_group(backend="gloo")
    for n in (1, 1000, 100003):
        t = torch.randn(n)
        mine, theirs = t.clone(), t.clone()
        dist.all_reduce(mine)
        dist.all_reduce(theirs, group=gloo)
        torch.testing.assert_close(mine, theirs)
        everything = [torch.zeros(n) for _ in range(size)]
        dist.all_gather(everything, mine)
        for other in everything:
            same(other, mine, n)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch_ranks.main(sizes=(1, 2, 3, 4))
