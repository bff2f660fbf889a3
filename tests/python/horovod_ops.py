# SPDX-License-Identifier: BSD-3-Clause
"""Every call of tutti.horovod.torch, on whole numbers, so that results are exact."""

import threading
import unittest

import horovod_jobs
import torch

import tutti.horovod.torch as hvd

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
TINY = [getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)]


def mine(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """A tensor of this rank: rank + 1 everywhere."""
    return torch.full(shape, hvd.rank() + 1, dtype=torch.float32).to(dtype)


def total() -> int:
    """The sum of rank + 1 over all ranks."""
    return hvd.size() * (hvd.size() + 1) // 2


class Allreduce(unittest.TestCase):
    """Reductions."""

    def same(self, tensor: torch.Tensor, value: float, dtype: torch.dtype, shape: tuple) -> None:
        """Check that the tensor has this type and shape, and the value everywhere."""
        self.assertEqual((tensor.dtype, tuple(tensor.shape)), (dtype, shape))
        self.assertEqual(tensor.to(torch.float64).unique().tolist(),
                         [value] if tensor.numel() else [])

    def test_types(self) -> None:
        """Sum, minimum, maximum of each type; shapes with 0 to 3 dimensions, and empty ones."""
        for dtype in FLOATS + INTEGERS + TINY:
            for shape in ((), (1,), (17,), (3, 5), (2, 3, 4), (0, 4)):
                t = mine(dtype, *shape)
                for op, value in ((hvd.Sum, total()), (hvd.Min, 1), (hvd.Max, hvd.size())):
                    result = hvd.allreduce(t, op=op, name="%s.%s" % (dtype, shape))
                    self.same(result, value, dtype, shape)
                self.same(t, hvd.rank() + 1, dtype, shape)  # the input is unchanged

    def test_product(self) -> None:
        """The product over the ranks: 1 * 2 * ..."""
        product = 1
        for rank in range(hvd.size()):
            product *= rank + 1
        for dtype in (torch.float32, torch.int64):
            self.same(hvd.allreduce(mine(dtype, 9), op=hvd.Product), product, dtype, (9,))

    def test_average(self) -> None:
        """The average, which is the default. For integers it is truncated toward zero."""
        for dtype in FLOATS:
            self.same(hvd.allreduce(mine(dtype, 6) * 2), hvd.size() + 1, dtype, (6,))
        for dtype in (torch.int32, torch.int64, torch.int8):
            self.same(hvd.allreduce(-mine(dtype, 6)), -(total() // hvd.size()), dtype, (6,))

    def test_average_parameter(self) -> None:
        """The older form of op."""
        with self.assertWarns(DeprecationWarning):
            result = hvd.allreduce(mine(torch.float32, 4), average=False)
        self.same(result, total(), torch.float32, (4,))
        with self.assertRaises(ValueError):
            hvd.allreduce(mine(torch.float32, 4), average=True, op=hvd.Sum)

    def test_in_place(self) -> None:
        """allreduce_ writes the result into the tensor, and returns this tensor."""
        t = mine(torch.float32, 5)
        result = hvd.allreduce_(t, op=hvd.Sum, name="in place")
        self.assertIs(result, t)
        self.same(t, total(), torch.float32, (5,))

    def test_scaling(self) -> None:
        """Factors of floating point types are passed to the library. Integers are truncated after
        each factor."""
        t = mine(torch.float32, 7)
        result = hvd.allreduce(t, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
        self.same(result, 2 * total(), torch.float32, (7,))
        result = hvd.allreduce(mine(torch.int32, 7), op=hvd.Sum, prescale_factor=1.5)
        self.same(result, sum((3 * (r + 1)) // 2 for r in range(hvd.size())), torch.int32, (7,))
        result = hvd.allreduce(mine(torch.int64, 7), postscale_factor=3.0)
        self.same(result, 3 * total() // hvd.size(), torch.int64, (7,))
        self.same(hvd.allreduce(t, prescale_factor=0.0), 0, torch.float32, (7,))
        self.same(hvd.allreduce(t, postscale_factor=0.0), 0, torch.float32, (7,))
        self.same(hvd.allreduce(t, prescale_factor=1e-46), 0, torch.float32, (7,))  # 0 in 32 bits

    def test_factor_bits(self) -> None:
        """A float32 is multiplied as in torch: by the factor rounded to 32 bits."""
        t, factor = torch.arange(-500.0, 500.0), 0.6394267984578837
        result = hvd.allreduce(t, op=hvd.Max, prescale_factor=factor)
        self.assertTrue(torch.equal(result, t * torch.tensor(factor, dtype=torch.float32)))

    def test_compression(self) -> None:
        """Tensors are sent in 16 bits, and the results have the tensors' type."""
        for compression in (hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16):
            result = hvd.allreduce(mine(torch.float64, 8), op=hvd.Sum, compression=compression)
            self.same(result, total(), torch.float64, (8,))
            result = hvd.allreduce(mine(torch.int32, 8), op=hvd.Sum, compression=compression)
            self.same(result, total(), torch.int32, (8,))
        t = torch.full((4,), 1.0 + 2.0 ** -9)
        self.same(hvd.allreduce(t, compression=hvd.Compression.bf16), 1, torch.float32, (4,))
        self.same(hvd.allreduce(t, compression=hvd.Compression.fp16), 1 + 2.0 ** -9,
                  torch.float32, (4,))

    def test_many_at_once(self) -> None:
        """Many handles are pending, and are waited for in another order. Also tests poll, and that
        a handle can be used once only."""
        tensors = [mine(torch.float32, 1 + i) for i in range(100)]
        handles = [hvd.allreduce_async(t, name="many.%d" % i, op=hvd.Sum)
                   for i, t in enumerate(tensors)]
        self.assertEqual(len(set(handles)), 100)
        for i in reversed(range(100)):
            self.same(hvd.synchronize(handles[i]), total(), torch.float32, (1 + i,))
        self.assertIsNone(hvd.synchronize(handles[0]))
        with self.assertRaises(ValueError):
            hvd.poll(handles[0])

    def test_repeated(self) -> None:
        """The same call is made many times, then with another buffer, count, operation and type,
        and with handles that are not waited for."""
        t = torch.empty(6)
        for step in range(5):
            t.fill_(hvd.rank() + step)
            handle = hvd.allreduce_async_(t, name="repeated", op=hvd.Sum)
            while step == 3 and not hvd.poll(handle):
                pass
            self.same(hvd.synchronize(handle), total() + hvd.size() * (step - 1), torch.float32,
                      (6,))
        for step in range(3):
            for other in (mine(torch.float32, 6), mine(torch.float32, 7), mine(torch.int32, 6)):
                for op, value in ((hvd.Sum, total()), (hvd.Max, hvd.size())):
                    result = hvd.allreduce(other, name="repeated", op=op)
                    self.same(result, value, other.dtype, tuple(other.shape))
        left = []
        for step in range(4):
            t.fill_(hvd.rank() + 1)
            left.append(hvd.allreduce_async_(t, name="left", op=hvd.Sum))
            hvd.barrier()
            while not hvd.poll(left[-1]):
                pass
        for handle in left:
            self.assertIs(hvd.synchronize(handle), t)
        self.same(t, total(), torch.float32, (6,))

    def test_poll(self) -> None:
        """poll() becomes true without synchronize()."""
        for start in (lambda: hvd.allreduce_async(mine(torch.float32, 3), op=hvd.Sum),
                      lambda: hvd.allgather_async(mine(torch.float32, 3)),
                      lambda: hvd.grouped_allreduce_async([mine(torch.float32, 3)] * 2),
                      lambda: hvd.alltoall_async(torch.ones(hvd.size()))):
            handle = start()
            while not hvd.poll(handle):
                pass
            self.assertIsNotNone(hvd.synchronize(handle))

    def test_other_order(self) -> None:
        """Ranks submit named tensors in different orders, and from several threads."""
        names = ["order.%d" % i for i in range(20)]
        shift = hvd.rank() * 7 % 20
        results = {}

        def part(chosen: list) -> None:
            for name in chosen:
                t = torch.full((3,), float(int(name.split(".")[1])))
                results[name] = hvd.allreduce(t, name=name, op=hvd.Max)

        if hvd.rank() % 2:
            threads = [threading.Thread(target=part, args=(names[k::20],)) for k in range(20)]
        else:
            order = names[shift:] + names[:shift]
            threads = [threading.Thread(target=part, args=([n],)) for n in order]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for i, name in enumerate(names):
            self.same(results[name], i, torch.float32, (3,))

    def test_same_name_of_two_kinds(self) -> None:
        """Calls of different kinds may have the same name."""
        first = hvd.allreduce_async(mine(torch.float32, 2), name="one name", op=hvd.Sum)
        second = hvd.broadcast_async(mine(torch.float32, 2), 0, name="one name")
        third = hvd.allgather_async(mine(torch.float32, 2), name="one name")
        self.same(hvd.synchronize(second), 1, torch.float32, (2,))
        self.same(hvd.synchronize(first), total(), torch.float32, (2,))
        self.assertEqual(hvd.synchronize(third).shape[0], 2 * hvd.size())

    def test_long_names(self) -> None:
        """Names that the library itself would refuse."""
        for name in ("x" * 1000, "zero\0byte", "\u00e4\u00f6\u00fc" * 100, ""):
            self.same(hvd.allreduce(mine(torch.float32, 2), name=name, op=hvd.Sum), total(),
                      torch.float32, (2,))
        handles = [hvd.allreduce_async(mine(torch.float32, 2), name="y" * 500 + end, op=hvd.Sum)
                   for end in ("1", "2")]
        for handle in handles:
            self.same(hvd.synchronize(handle), total(), torch.float32, (2,))

    def test_grouped(self) -> None:
        """Several tensors of several types in one submission."""
        dtypes = [torch.float32, torch.int32, torch.float32, torch.bfloat16]
        tensors = [mine(dtype, 3, i + 1) for i, dtype in enumerate(dtypes)]
        for results in (hvd.grouped_allreduce(tensors, op=hvd.Sum, name="grouped"),
                        hvd.grouped_allreduce(tensors, op=hvd.Sum)):
            for i, (dtype, result) in enumerate(zip(dtypes, results)):
                self.same(result, total(), dtype, (3, i + 1))
        results = hvd.grouped_allreduce([t.clone() for t in tensors], op=hvd.Sum,
                                        prescale_factor=2.0)
        for i, (dtype, result) in enumerate(zip(dtypes, results)):
            self.same(result, 2 * total(), dtype, (3, i + 1))
        hvd.grouped_allreduce_(tensors, op=hvd.Sum)
        for i, (dtype, result) in enumerate(zip(dtypes, tensors)):
            self.same(result, total(), dtype, (3, i + 1))


class Others(unittest.TestCase):
    """Allgather, broadcast, alltoall, reducescatter, sparse, barrier."""

    def test_allgather(self) -> None:
        """Different first dimensions, also 0, of each type."""
        for dtype in FLOATS + INTEGERS + TINY + [torch.bool]:
            rows = [(r * 2) % 5 for r in range(hvd.size())]
            t = torch.full((rows[hvd.rank()], 3), hvd.rank() + 1).to(dtype)
            result = hvd.allgather(t, name="gather %s" % dtype)
            expected = torch.cat([torch.full((n, 3), r + 1).to(dtype).float()
                                  for r, n in enumerate(rows)])
            self.assertEqual(result.dtype, dtype)
            self.assertTrue(torch.equal(result.float(), expected))

    def test_allgather_empty(self) -> None:
        """No rank has an element: no rows, or rows without elements."""
        for shape in ((0,), (0, 3), (2, 0)):
            result = hvd.allgather(torch.empty(shape))
            self.assertEqual(tuple(result.shape), (shape[0] * hvd.size(),) + shape[1:])

    def test_grouped_allgather(self) -> None:
        """Several tensors with different numbers of rows."""
        results = hvd.grouped_allgather([torch.full((hvd.rank() + 1,), 7.0),
                                         torch.full((2, 2), hvd.rank())])
        self.assertEqual(results[0].tolist(), [7.0] * total())
        self.assertEqual(results[1][:, 0].tolist(), [r for r in range(hvd.size()) for _ in "ab"])

    def test_allgather_nobody_asks(self) -> None:
        """A rank that does not ask for its result does not delay the others."""
        handle = hvd.allgather_async(torch.full((2,), float(hvd.rank())), name="nobody asks")
        if hvd.rank() == 0:
            hvd.barrier()
        result = hvd.synchronize(handle)
        if hvd.rank() != 0:
            hvd.barrier()
        self.assertEqual(result.numel(), 2 * hvd.size())

    def test_broadcast(self) -> None:
        """Broadcasts from each rank, of each type, in place or not."""
        for root in range(hvd.size()):
            for dtype in FLOATS + INTEGERS + TINY + [torch.bool]:
                t = torch.full((4, 2), hvd.rank() + 1).to(dtype)
                expected = torch.full((4, 2), root + 1).to(dtype).float()
                result = hvd.broadcast(t, root, name="broadcast %s" % dtype)
                self.assertTrue(torch.equal(result.float(), expected))
                self.assertEqual(t[0, 0].item(), torch.tensor(hvd.rank() + 1).to(dtype).item())
                self.assertIs(hvd.broadcast_(t, root), t)
                self.assertTrue(torch.equal(t.float(), expected))

    def test_alltoall(self) -> None:
        """Equal parts; then parts of different lengths, as a list and as tensors."""
        n, rank = hvd.size(), hvd.rank()
        result = hvd.alltoall(torch.arange(n * 2) + 100 * rank)
        self.assertEqual(result.tolist(), [100 * s + 2 * rank + i for s in range(n)
                                           for i in range(2)])
        splits = [(rank + r) % 3 for r in range(n)]
        rows = torch.arange(sum(splits) + 1).unsqueeze(1).repeat(1, 2)  # one row stays here
        for given in (splits, torch.tensor(splits, dtype=torch.int32), torch.tensor(splits)):
            result, received = hvd.alltoall(rows, given)
            self.assertEqual(received.tolist(), [(rank + s) % 3 for s in range(n)])
            self.assertEqual(received.dtype,
                             given.dtype if isinstance(given, torch.Tensor) else torch.int32)
            expected = []
            for s in range(n):
                first = sum((s + r) % 3 for r in range(rank))
                expected += range(first, first + (s + rank) % 3)
            self.assertEqual(result[:, 1].tolist(), expected)
        result, received = hvd.synchronize(hvd.alltoall_async(torch.ones(n)))
        self.assertEqual((result.tolist(), received.tolist()), ([1.0] * n, [1] * n))

    def test_reducescatter(self) -> None:
        """Numbers of rows that can be divided by the ranks, and others, of which the first ranks
        get one row more."""
        n, rank = hvd.size(), hvd.rank()
        for dtype in (torch.float32, torch.int64, torch.bfloat16):
            for rows in (2 * n, 2 * n + 1, 1, 0):
                t = (torch.arange(rows).unsqueeze(1).repeat(1, 3)).to(dtype)
                least, more = divmod(rows, n)
                first = rank * least + min(rank, more)
                own = list(range(first, first + least + (rank < more)))
                result = hvd.reducescatter(t, op=hvd.Sum)
                self.assertEqual((result.dtype, tuple(result.shape)), (dtype, (len(own), 3)))
                self.assertEqual(result[:, 2].tolist(), [n * row for row in own])
                self.assertEqual(hvd.reducescatter(t)[:, 0].tolist(), own)
                result = hvd.reducescatter(t, op=hvd.Sum, prescale_factor=2.0,
                                           postscale_factor=3.0)
                self.assertEqual(result[:, 1].tolist(), [6 * n * row for row in own])

    def test_grouped_reducescatter(self) -> None:
        """A tensor that can be divided and one that cannot, in one submission."""
        n = hvd.size()
        results = hvd.grouped_reducescatter([torch.ones(2 * n), torch.ones(n + 1, 2)], op=hvd.Sum)
        self.assertEqual(results[0].tolist(), [float(n)] * 2)
        self.assertEqual(tuple(results[1].shape), (2 if hvd.rank() == 0 and n > 1 else
                                                   2 if n == 1 else 1, 2))

    def test_sparse(self) -> None:
        """The gathered values equal the dense result."""
        dense = torch.zeros(5, 2)
        dense[hvd.rank() % 5] = 4.0
        dense[3] = 2.0
        for op in (hvd.Sum, hvd.Average):
            finish = hvd.sparse_allreduce_async(dense.to_sparse(1), name="sparse", op=op)
            result = finish()
            self.assertTrue(result.is_sparse)
            self.assertTrue(torch.equal(result.to_dense(), hvd.allreduce(dense, op=op)))

    def test_barrier(self) -> None:
        """No rank leaves a barrier before all ranks have come, even if other calls are pending."""
        handle = hvd.allreduce_async(torch.ones(3), op=hvd.Sum, name="over a barrier")
        hvd.barrier()
        self.assertEqual(hvd.synchronize(handle).tolist(), [float(hvd.size())] * 3)


class Gradients(unittest.TestCase):
    """Calls are differentiable, with Horovod's gradients."""

    def gradient_of(self, function: object, *shape: int) -> torch.Tensor:
        """The gradient of the sum of weighted results."""
        x = torch.arange(float(torch.Size(shape).numel())).view(shape).requires_grad_()
        outputs = function(x)
        outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        outputs = [o for o in outputs if o.requires_grad]
        weights = [torch.arange(float(o.numel())).view(o.shape) * (hvd.rank() + 1)
                   for o in outputs]
        torch.autograd.backward(outputs, weights)
        return x.grad

    def test_allreduce(self) -> None:
        """The gradients are reduced in the same way, even an expanded gradient."""
        steps = torch.arange(6.0).view(2, 3)
        got = self.gradient_of(lambda x: hvd.allreduce(x, op=hvd.Sum), 2, 3)
        self.assertTrue(torch.equal(got, steps * total()))
        got = self.gradient_of(lambda x: hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum), 2, 3)
        self.assertTrue(torch.equal(got, 3 * steps * total()))
        x = torch.ones(4, requires_grad=True)
        hvd.allreduce(x).sum().backward()
        self.assertEqual(x.grad.tolist(), [1.0] * 4)

    def test_allgather(self) -> None:
        """The averaged gradient's rows of this rank."""
        rows = hvd.rank() + 1
        for function in (hvd.allgather, lambda x: hvd.grouped_allgather([x])):
            got = self.gradient_of(function, rows, 2)
            first = hvd.rank() * (hvd.rank() + 1) // 2 * 2
            average = total() / hvd.size()
            self.assertEqual(got.flatten().tolist(),
                             [(first + i) * average for i in range(2 * rows)])

    def test_broadcast(self) -> None:
        """The average at the root, zero at the others."""
        root = hvd.size() - 1
        got = self.gradient_of(lambda x: hvd.broadcast(x, root), 3)
        average = total() / hvd.size() if hvd.rank() == root else 0.0
        self.assertEqual(got.tolist(), [i * average for i in range(3)])

    def test_alltoall(self) -> None:
        """The gradients of the parts return to the ranks that have sent the parts."""
        n, rank = hvd.size(), hvd.rank()
        for splits in (None, [2] * n):
            got = self.gradient_of(lambda x: hvd.alltoall(x, splits), 2 * n)
            self.assertEqual(got.tolist(), [(2 * rank + i) * (r + 1.0) for r in range(n)
                                            for i in range(2)])

    def test_reducescatter(self) -> None:
        """The gathered gradients, multiplied by the factors and, for sums, by the number of
        ranks."""
        n = hvd.size()
        expected = [i * (r + 1.0) for r in range(n) for i in range(2)]
        got = self.gradient_of(lambda x: hvd.reducescatter(x), 2 * n)
        self.assertEqual(got.tolist(), expected)
        got = self.gradient_of(lambda x: hvd.reducescatter(x, op=hvd.Sum, prescale_factor=2.0),
                               2 * n)
        self.assertEqual(got.tolist(), [2 * n * e for e in expected])
        got = self.gradient_of(lambda x: hvd.grouped_reducescatter([x], op=hvd.Sum), 2 * n)
        self.assertEqual(got.tolist(), [n * e for e in expected])


if __name__ == "__main__":
    horovod_jobs.main(env=(1, 2, 3, 4), mpi=(2,))
