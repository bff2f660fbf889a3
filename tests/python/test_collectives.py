# SPDX-License-Identifier: BSD-3-Clause
"""All direct collectives on numpy arrays, against results that numpy computes."""

import gc
import unittest

import numpy as np

import ranks
import tutti

TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16",
         "float32", "float64")


def data(rank: int, shape=(4, 3), dtype="float64") -> np.ndarray:
    """Whole numbers, so that sums are exact; different for each rank."""
    return (np.arange(int(np.prod(shape))).reshape(shape) % 5 + rank).astype(dtype)


class Collectives(unittest.TestCase):
    def setUp(self) -> None:
        self.world = tutti.world()
        self.rank, self.size = self.world.rank, self.world.size

    def equal(self, seen, wanted) -> None:
        np.testing.assert_array_equal(seen, wanted)
        self.assertEqual(np.asarray(seen).dtype, np.asarray(wanted).dtype)
        self.assertEqual(np.asarray(seen).shape, np.asarray(wanted).shape)

    def all(self, **how) -> list:
        return [data(rank, **how) for rank in range(self.size)]

    def test_stats(self) -> None:
        with self.world.split() as group:
            for _ in range(3):
                tutti.allreduce(np.ones(8), comm=group)
            tutti.allreduce_async("x", np.ones(4, "float32"), comm=group).wait()
            seen = tutti.stats(group)
        self.assertEqual(seen["direct"], {"allreduce": {"operations": 3, "bytes": 192}})
        self.assertEqual(seen["async"], {"allreduce": {"operations": 1, "bytes": 16}})
        self.assertEqual((seen["requests"], seen["buckets"], seen["failed"]), (1, 1, 0))
        self.assertEqual((seen["times"], seen["exposed_ns"]), (False, 0))
        self.assertEqual(seen["direct_bytes"]["count"], 3)
        self.assertEqual(seen["direct_bytes"]["buckets"][6], 3)
        modes = [(part["call"], part["mode"], part["operations"]) for part in seen["parts"]]
        self.assertEqual(modes, [("allreduce", "direct", 3), ("allreduce", "async", 1)])
        self.assertGreater(tutti.stats()["age_ns"], seen["age_ns"])

    def test_allreduce_types(self) -> None:
        for dtype in TYPES:
            x = data(self.rank, dtype=dtype)
            kept = x.copy()
            self.equal(tutti.allreduce(x), sum(self.all(dtype=dtype)[1:], data(0, dtype=dtype)))
            self.equal(x, kept)
            for op, function in (("min", np.minimum), ("max", np.maximum), ("prod", np.multiply)):
                wanted = function.reduce(self.all(dtype=dtype)).astype(dtype)
                self.equal(tutti.allreduce(x, op), wanted)

    def test_allreduce_average(self) -> None:
        x = data(self.rank) * self.size
        wanted = sum(self.all())
        self.equal(tutti.allreduce(x, "avg"), wanted)
        self.equal(tutti.allreduce(x, tutti.Op.AVG), wanted)

    def test_allreduce_bits(self) -> None:
        for dtype in ("uint8", "int64"):
            x = data(self.rank, dtype=dtype)
            for op, function in (("band", np.bitwise_and), ("bor", np.bitwise_or),
                                 ("bxor", np.bitwise_xor)):
                self.equal(tutti.allreduce(x, op), function.reduce(self.all(dtype=dtype)))
            wanted = np.logical_and.reduce(self.all(dtype=dtype)).astype(dtype)
            if self.size > 1:  # a single operand stays as it is
                self.equal(tutti.allreduce(x, "land"), wanted)

    def test_allreduce_bool(self) -> None:
        x = np.arange(8) % (self.rank + 2) == 0
        every = [np.arange(8) % (rank + 2) == 0 for rank in range(self.size)]
        self.equal(tutti.allreduce(x), np.logical_or.reduce(every))
        self.equal(tutti.allreduce(x, "min"), np.logical_and.reduce(every))

    def test_allreduce_complex(self) -> None:
        for dtype in ("complex64", "complex128"):
            x = (data(self.rank) + 1j * self.rank).astype(dtype)
            self.equal(tutti.allreduce(x), sum(
                (data(rank) + 1j * rank).astype(dtype) for rank in range(self.size)))
            with self.assertRaisesRegex(TypeError, "complex"):
                tutti.allreduce(x, "prod")

    def test_allreduce_in_place(self) -> None:
        x = data(self.rank)
        address = x.ctypes.data
        self.assertIs(tutti.allreduce(x, out=x), x)
        self.assertEqual(x.ctypes.data, address)
        self.equal(x, sum(self.all()))
        out = np.zeros((4, 3))
        self.assertIs(tutti.allreduce(data(self.rank), out=out), out)
        self.equal(out, x)

    def test_allreduce_scaled(self) -> None:
        x = data(self.rank)
        self.equal(tutti.allreduce(x, prescale=2.0, postscale=0.5), sum(self.all()))
        self.equal(tutti.allreduce(x, prescale=3.0), 3 * sum(self.all()))

    def test_allreduce_other_inputs(self) -> None:
        self.equal(tutti.allreduce(1.5), np.float64(1.5 * self.size))
        self.equal(tutti.allreduce([1, 2]), np.array([1, 2]) * self.size)
        view = data(self.rank)[:, ::2]  # copied
        self.equal(tutti.allreduce(view), sum(part[:, ::2] for part in self.all()))
        self.equal(tutti.allreduce(data(self.rank).T), sum(self.all()).T)
        self.equal(tutti.allreduce(np.empty((0, 3))), np.empty((0, 3)))
        memory = bytearray([self.rank + 1] * 3)
        tutti.allreduce(memory, out=memory)
        self.assertEqual(memory[0], sum(range(1, self.size + 1)))

    def test_pairs(self) -> None:
        for value in ("float32", "float64", "int32", "int64"):
            x = np.zeros(3, tutti.pair_dtype(value))
            x["value"] = [self.rank, -self.rank, 7]
            x["index"] = self.rank
            least = tutti.allreduce(x, "minloc")
            self.assertEqual(least["value"].tolist(), [0, -(self.size - 1), 7])
            self.assertEqual(least["index"].tolist(), [0, self.size - 1, 0])
            self.assertEqual(tutti.allreduce(x, "maxloc")["index"].tolist(),
                             [self.size - 1, 0, 0])

    def test_user_operation(self) -> None:
        op = tutti.create_op(lambda left, right: left * 10 + right, commutative=False)
        wanted = 1
        for digit in range(2, self.size + 1):
            wanted = wanted * 10 + digit
        self.equal(tutti.allreduce(np.array([self.rank + 1]), op), np.array([wanted]))
        op.free()
        op.free()
        with self.assertRaisesRegex(ValueError, "freed"):
            tutti.allreduce(np.ones(1), op)

    def test_user_operation_raises(self) -> None:
        def broken(left, right):
            raise KeyError("by the operation")

        op = tutti.create_op(broken)
        try:
            tutti.allreduce(np.ones(4), op)
            seen = self.size == 1
        except KeyError:
            seen = True
        # Whether a rank runs the operation depends on the algorithm. At least one rank runs it.
        self.assertTrue(tutti.allreduce(np.array(seen), "max"))
        op.free()

    def test_reduce(self) -> None:
        for root in range(self.size):
            x = data(self.rank)
            seen = tutti.reduce(x, "max", root)
            if self.rank == root:
                self.equal(seen, np.maximum.reduce(self.all()))
            else:
                self.assertIsNone(seen)
            tutti.reduce(x, root=root, out=x if self.rank == root else None)
            self.equal(x, sum(self.all()) if self.rank == root else data(self.rank))

    def test_scans(self) -> None:
        x = data(self.rank)
        self.equal(tutti.scan(x), sum(self.all()[:self.rank + 1]))
        seen = tutti.exscan(x)
        if self.rank == 0:
            self.assertIsNone(seen)
            out = np.full((4, 3), 9.0)
            self.assertIs(tutti.exscan(x, out=out), out)
            self.equal(out, np.full((4, 3), 9.0))
        else:
            self.equal(seen, sum(self.all()[:self.rank]))
            tutti.exscan(x, out=np.empty((4, 3)))

    def test_reduce_scatter(self) -> None:
        shape = (2 * self.size, 3)
        x = data(self.rank, shape)
        mine = slice(2 * self.rank, 2 * self.rank + 2)
        wanted = sum(self.all(shape=shape))[mine]
        self.equal(tutti.reduce_scatter(x), wanted)
        tutti.reduce_scatter(x, out=x[mine])
        self.equal(x[mine], wanted)

    def test_reduce_scatterv(self) -> None:
        shape = (2 * self.size + 1, 2)
        parts = np.array_split(sum(self.all(shape=shape)), self.size)
        self.equal(tutti.reduce_scatterv(data(self.rank, shape)), parts[self.rank])
        counts = [0] * self.size
        counts[-1] = 2 * self.size + 1
        seen = tutti.reduce_scatterv(data(self.rank, shape), counts, "avg")
        self.assertEqual(seen.shape, (counts[self.rank], 2))

    def test_broadcast(self) -> None:
        for root in range(self.size):
            x = data(self.rank)
            self.assertIs(tutti.broadcast(x, root), x)
            self.equal(x, data(root))
        fixed = np.full(3, 7)
        fixed.flags.writeable = self.rank != 0
        self.equal(tutti.broadcast(fixed), np.full(3, 7))

    def test_any_type_moves(self) -> None:
        values = [np.array(["ab", "c"], "U3"), np.array([1, 2], ">f4"), np.array([1 + 2j]),
                  np.array([(1, 2.5)], [("a", "i1"), ("b", "f8")]),
                  np.array(["2020-01-02"], "datetime64[D]")]
        for value in values:
            x = value.copy() if self.rank == 0 else np.zeros_like(value)
            self.equal(tutti.broadcast(x), value)
            wanted = np.concatenate([value] * self.size).astype(value.dtype)
            self.equal(tutti.allgather(value), wanted)

    def test_bytes(self) -> None:
        """bytes are elements of uint8, as those of a bytearray, and not a string of numpy."""
        for data_ in (b"", b"a", b"ab\0"):
            x = data_ if self.rank == 0 else bytearray(len(data_))
            self.assertEqual(bytes(tutti.broadcast(x)), data_)
            self.equal(tutti.allgather(data_),
                       np.frombuffer(bytearray(data_ * self.size), np.uint8))
        self.assertEqual(bytes(tutti.allgatherv(b"x" * self.rank)),
                         b"x" * sum(range(self.size)))

    def test_allgather(self) -> None:
        x = data(self.rank)
        self.equal(tutti.allgather(x), np.concatenate(self.all()))
        out = np.zeros((self.size, 4, 3))
        out[self.rank] = x
        self.assertIs(tutti.allgather(out[self.rank], out=out), out)
        self.equal(out, np.stack(self.all()))
        self.equal(tutti.allgather(np.int32(self.rank)), np.arange(self.size, dtype="int32"))

    def test_allgatherv(self) -> None:
        parts = [data(rank, (rank, 2)) for rank in range(self.size)]
        wanted = np.concatenate(parts)
        self.equal(tutti.allgatherv(parts[self.rank]), wanted)
        counts = list(range(self.size))
        self.equal(tutti.allgatherv(parts[self.rank], counts), wanted)
        places = [2 * rank for rank in range(self.size)]
        seen = tutti.allgatherv(parts[self.rank], counts, places)
        for rank, part in enumerate(parts):
            self.equal(seen[2 * rank:2 * rank + rank], part)
        out = np.empty((wanted.shape[0] + 1, 2))
        tutti.allgatherv(parts[self.rank], counts, out=out)
        self.equal(out[:-1], wanted)

    def test_gather(self) -> None:
        for root in range(self.size):
            seen = tutti.gather(data(self.rank), root)
            if self.rank == root:
                self.equal(seen, np.concatenate(self.all()))
            else:
                self.assertIsNone(seen)

    def test_gatherv(self) -> None:
        parts = [data(rank, (rank + 1,), "int32") for rank in range(self.size)]
        root = self.size - 1
        counts = [rank + 1 for rank in range(self.size)] if self.rank == root else None
        seen = tutti.gatherv(parts[self.rank], counts, root=root)
        if self.rank == root:
            self.equal(seen, np.concatenate(parts))
        else:
            self.assertIsNone(seen)

    def test_scatter(self) -> None:
        whole = data(0, (2 * self.size, 3))
        for root in range(self.size):
            if self.rank == root:
                seen = tutti.scatter(whole, root)
            else:
                seen = tutti.scatter(root=root, out=np.empty((2, 3)))
            self.equal(seen, whole[2 * self.rank:2 * self.rank + 2])

    def test_scatterv(self) -> None:
        counts = [rank + 1 for rank in range(self.size)]
        whole = data(0, (sum(counts), 2))
        begin = sum(counts[:self.rank])
        out = np.empty((self.rank + 1, 2))
        if self.rank == 0:
            tutti.scatterv(whole, counts, out=out)
        else:
            tutti.scatterv(out=out)
        self.equal(out, whole[begin:begin + self.rank + 1])
        places = [0] * self.size
        if self.rank == 0:
            out = tutti.scatterv(whole, counts, places)
        else:
            tutti.scatterv(out=out)
        self.equal(out, whole[:self.rank + 1])

    def test_alltoall(self) -> None:
        x = np.array([[10 * self.rank + to] * 2 for to in range(self.size)])
        wanted = np.array([[10 * of + self.rank] * 2 for of in range(self.size)])
        self.equal(tutti.alltoall(x), wanted)
        self.assertIs(tutti.alltoall(x, out=x), x)
        self.equal(x, wanted)

    def test_alltoallv(self) -> None:
        # Rank r sends (r + to) % 3 rows to rank `to`.
        counts = [(self.rank + to) % 3 for to in range(self.size)]
        x = np.repeat([[10 * self.rank + to] for to in range(self.size)], counts, axis=0)
        wanted = np.repeat([[10 * of + self.rank] for of in range(self.size)],
                           [(of + self.rank) % 3 for of in range(self.size)], axis=0)
        self.equal(tutti.alltoallv(x, counts), wanted)
        self.equal(tutti.alltoallv(x, counts, counts), wanted)
        backwards = np.repeat([[10 * self.rank + to] for to in reversed(range(self.size))],
                              counts[::-1], axis=0)
        places = [sum(counts[to + 1:]) for to in range(self.size)]
        self.equal(tutti.alltoallv(backwards, counts, senddispls=places), wanted)

    def test_messages(self) -> None:
        if self.size == 1:
            return
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        out = np.empty((4, 3))
        self.assertIs(tutti.sendrecv(data(self.rank), after, out, before), out)
        self.equal(out, data(before))
        if self.rank == 0:
            tutti.send(data(5), 1)
        elif self.rank == 1:
            self.equal(tutti.recv(out, 0), data(5))
        tutti.barrier()

    def test_ml_dtypes(self) -> None:
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("no ml_dtypes")
        for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
            x = np.array([1, 2, self.rank], getattr(ml_dtypes, name))
            seen = tutti.allreduce(x)
            self.assertEqual(seen.dtype, x.dtype)
            self.assertEqual(seen.astype("f4").tolist(),
                             [self.size, 2 * self.size, sum(range(self.size))])

    def test_groups(self) -> None:
        half = self.world.split(self.rank % 2)
        members = [rank for rank in range(self.size) if rank % 2 == self.rank % 2]
        self.assertEqual((half.rank, half.size), (members.index(self.rank), len(members)))
        self.equal(tutti.allreduce(np.array(self.rank), comm=half), np.array(sum(members)))
        half.free()
        self.assertIsNone(self.world.split(None) if self.rank == 0 else None)
        if self.rank != 0:
            with self.world.split(0, key=-self.rank) as others:
                self.assertEqual(others.rank, self.size - 1 - self.rank)
        last = self.world.create([self.size - 1])
        self.assertEqual(last is None, self.rank != self.size - 1)
        if last is not None:
            self.equal(tutti.allgather(np.ones(2), comm=last), np.ones(2))
            self.assertIsNone(last.error)
            last.free()
            with self.assertRaisesRegex(tutti.InvalidArgumentError, "free"):
                tutti.barrier(last)

    def test_group_numbers(self) -> None:
        """Numbers that no C int can hold are refused, and not cut to 32 bits."""
        for number in (2**32, 2**32 - 1, 2**31, -2**31 - 1):
            with self.assertRaisesRegex(ValueError, "split: color"):
                self.world.split(number)
            with self.assertRaisesRegex(ValueError, "split: key"):
                self.world.split(0, key=number)
            with self.assertRaisesRegex(ValueError, "create: rank"):
                self.world.create([number])
        with self.assertRaises(TypeError):
            self.world.split(0.5)
        key = np.int64(-2**31 if self.rank == 1 else 2**31 - 1)
        with self.world.split(np.int64(2**31 - 1), key) as group:
            first = 1 if self.size > 1 else 0
            self.assertEqual(group.rank == 0, self.rank == first)

    def test_places(self) -> None:
        self.assertEqual(self.world.local_size, self.size)
        self.assertEqual(self.world.local_rank, self.rank)
        self.assertEqual((self.world.host_rank, self.world.host_count), (0, 1))
        self.assertIn("rank %d of %d" % (self.rank, self.size), repr(self.world))

    def test_memory(self) -> None:
        x = tutti.mem_alloc((4, 3), "float64")
        self.equal(x, np.zeros((4, 3)))
        x[...] = data(self.rank)
        tutti.allreduce(x, out=x)
        self.equal(x, sum(self.all()))
        tutti.barrier()
        with self.assertRaisesRegex(ValueError, "part"):
            tutti.mem_free(x[1:])
        tutti.mem_free(x)
        with self.assertRaisesRegex(ValueError, "freed before"):
            tutti.mem_free(np.zeros(4))
        self.assertEqual(tutti.mem_alloc(0).shape, (0,))
        for shape in (np.int64(5), [np.int32(5)], np.array([5])):
            self.equal(tutti.mem_alloc(shape), np.zeros(5, "f4"))

    def test_memory_of_one_rank(self) -> None:
        x = tutti.mem_alloc_local((4, 3), "float64") if self.rank % 2 == 0 else np.zeros((4, 3))
        x[...] = data(self.rank)
        tutti.allreduce(x, out=x)
        self.equal(x, sum(self.all()))
        self.assertEqual(tutti.mem_alloc_local(0).shape, (0,))
        with self.assertRaisesRegex(ValueError, "mem_alloc_local: shape"):
            tutti.mem_alloc_local((-1,))
        with self.world.split(0) as comm:
            y = tutti.mem_alloc_local(1 << 20, "uint8", comm)
            tutti.broadcast(y, comm=comm)
        y[...] = 3  # the communicator is gone
        part = y[1 << 19:]
        del y
        gc.collect()
        self.assertEqual(part.max(), 3)  # a view keeps the memory


if __name__ == "__main__":
    ranks.main((1, 2, 3, 4), before=tutti.init)
