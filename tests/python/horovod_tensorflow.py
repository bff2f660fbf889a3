# SPDX-License-Identifier: BSD-3-Clause
"""The calls of tutti.horovod.tensorflow, eagerly and in a tf.function; gradients and errors."""

import unittest
from typing import Any, Callable, List

import horovod_jobs
import numpy as np
import tensorflow as tf

import tutti.horovod.tensorflow as hvd

tf.get_logger().setLevel("ERROR")  # tests make many functions

FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
INTEGERS = (tf.uint8, tf.int8, tf.int32, tf.int64)


def full(value: float, *shape: int, dtype: Any = tf.float32) -> tf.Tensor:
    """A tensor of one value."""
    return tf.cast(tf.fill(shape or (3,), float(value)), dtype)


def both(function: Callable[[], Any]) -> List[Any]:
    """The results of a function that returns one tensor: eagerly, and in a tf.function."""
    return [function().numpy(), tf.function(function)().numpy()]


class Calls(unittest.TestCase):
    """The calls, with exact results."""

    def setUp(self) -> None:
        self.rank, self.size = hvd.rank(), hvd.size()
        self.ranks = range(self.size)

    def check(self, function: Callable[[], Any], wanted: Any) -> None:
        """Check that both forms of a call have this result."""
        for result in both(function):
            np.testing.assert_array_equal(result, np.asarray(wanted, result.dtype))

    def test_allreduce(self) -> None:
        """Types, operations, shapes, names."""
        total = sum(r + 1 for r in self.ranks)
        for dtype in FLOATS + INTEGERS:
            x = full(self.rank + 1, 2, 3, dtype=dtype)
            self.check(lambda: hvd.allreduce(x, op=hvd.Sum), np.full((2, 3), total))
            self.assertEqual(hvd.allreduce(x).dtype, dtype)
            self.assertEqual(hvd.allreduce(x).shape, x.shape)
        x = full(self.rank + 1)
        self.check(lambda: hvd.allreduce(x), np.full(3, total / self.size))
        for op, value in ((hvd.Min, 1), (hvd.Max, self.size),
                          (hvd.Product, np.prod([r + 1 for r in self.ranks]))):
            self.check(lambda: hvd.allreduce(x, op=op, name="named"), np.full(3, value))
        self.check(lambda: hvd.allreduce(tf.constant(2), op=hvd.Sum), 2 * self.size)
        variable = tf.Variable(x)
        self.check(lambda: hvd.allreduce(variable, op=hvd.Sum), np.full(3, total))
        self.check(lambda: hvd.allreduce(tf.zeros((0, 2))), np.zeros((0, 2)))
        with self.assertWarns(DeprecationWarning):
            self.assertEqual(hvd.allreduce(x, average=False)[0].numpy(), total)

    def test_factors(self) -> None:
        """Factors of floating point numbers, of integers, and 0."""
        x, total = full(self.rank + 1), sum(r + 1 for r in self.ranks)
        self.check(lambda: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0),
                   np.full(3, 2 * total))
        self.check(lambda: hvd.allreduce(x, op=hvd.Sum, postscale_factor=0.0), np.zeros(3))
        whole = full(3, dtype=tf.int32)
        self.check(lambda: hvd.allreduce(whole, op=hvd.Sum, prescale_factor=0.5,
                                         postscale_factor=2.0), np.full(3, 2 * self.size))
        self.check(lambda: hvd.allreduce(whole, postscale_factor=0.5), np.full(3, 1))

    def test_compression(self) -> None:
        """Floating point tensors are sent in 16 bits. The type of the result is that of the
        input."""
        for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
            for dtype in (tf.float32, tf.float64, tf.int32):
                x = full(self.rank, dtype=dtype)
                result = hvd.allreduce(x, op=hvd.Sum, compression=compression)
                self.assertEqual(result.dtype, dtype)
                self.assertEqual(result[0].numpy(), sum(self.ranks))
        third = hvd.allreduce(full(1 / 3), compression=hvd.Compression.fp16)
        self.assertEqual(third[0].numpy(), np.float32(np.float16(1 / 3)))

    def test_groups(self) -> None:
        """Several tensors of different types in one submission."""
        def group() -> Any:
            given = [full(self.rank), full(1, 2, 2, dtype=tf.int32), full(2, dtype=tf.float64)]
            a, b, c = hvd.grouped_allreduce(given, op=hvd.Sum)
            return tf.concat([tf.cast(tf.reshape(t, [-1]), tf.float64) for t in (a, b, c)], 0)

        self.check(group, [sum(self.ranks)] * 3 + [self.size] * 4 + [2 * self.size] * 3)
        self.assertEqual(hvd.grouped_allreduce([]), [])
        rows = [full(self.rank, self.rank + 1), full(self.rank, 2, 2)]
        gathered = hvd.grouped_allgather(rows)
        self.assertEqual(gathered[0].numpy().tolist(),
                         [r for r in self.ranks for _ in range(r + 1)])
        self.assertEqual(gathered[1].shape, (2 * self.size, 2))
        parts = hvd.grouped_reducescatter([full(1, self.size), full(2, self.size)], op=hvd.Sum)
        self.assertEqual([p.numpy().tolist() for p in parts], [[self.size], [2 * self.size]])

    def test_allgather(self) -> None:
        """The first dimensions differ between ranks, and may be 0."""
        self.check(lambda: hvd.allgather(full(self.rank, self.rank, 2)),
                   [[r] * 2 for r in self.ranks for _ in range(r)] or np.zeros((0, 2)))
        self.check(lambda: hvd.allgather(tf.constant([True, self.rank == 0])),
                   [value for r in self.ranks for value in (True, r == 0)])
        self.assertRaisesRegex(ValueError, "1 to 10 dimensions", hvd.allgather, tf.constant(1))

    def test_broadcast(self) -> None:
        """New tensors, and variables in place."""
        root = self.size - 1
        self.check(lambda: hvd.broadcast(full(self.rank, 2, 2), root), np.full((2, 2), root))
        self.check(lambda: hvd.broadcast(tf.constant(self.rank), root, name="b"), root)
        self.assertRaises(ValueError, hvd.broadcast, full(1), self.size)
        for wrap in (lambda function: function, tf.function):
            variables = [tf.Variable(full(self.rank)), tf.Variable(self.rank), tf.Variable(True)]
            wrap(lambda: hvd.broadcast_variables(variables, root_rank=root))()
            self.assertEqual([v.numpy().tolist() for v in variables], [[root] * 3, root, True])

    def test_alltoall(self) -> None:
        """Equal parts, and splits."""
        self.check(lambda: hvd.alltoall(full(self.rank, self.size)), list(self.ranks))
        splits = [r + 1 for r in self.ranks]
        x = full(self.rank, sum(splits))
        result, received = hvd.alltoall(x, splits)
        self.assertEqual(received.numpy().tolist(), [self.rank + 1] * self.size)
        self.check(lambda: hvd.alltoall(x, splits)[0],
                   [r for r in self.ranks for _ in range(self.rank + 1)])
        self.assertRaises(ValueError, hvd.alltoall, x, splits + [1])

    def test_reducescatter(self) -> None:
        """Parts of the first dimension; the first ranks get one row more."""
        x = tf.reshape(tf.range(2.0 * (self.size + 1)), (self.size + 1, 2))
        rows = x.numpy().tolist()
        mine = rows[:2] if self.rank == 0 else rows[self.rank + 1:self.rank + 2]
        self.check(lambda: hvd.reducescatter(x), mine)
        self.check(lambda: hvd.reducescatter(x, op=hvd.Sum), self.size * np.asarray(mine))
        self.assertRaises(NotImplementedError, hvd.reducescatter, x, op=hvd.Max)

    def test_reducescatter_order(self) -> None:
        """The parameters have Horovod's order, with ignore_name_scope."""
        x, more = full(1, self.size), ("", hvd.Compression.none, hvd.Sum)
        self.check(lambda: hvd.reducescatter(x, *more, "scope", hvd.global_process_set, False,
                                             2.0, 3.0), [6 * self.size])
        self.check(lambda: hvd.reducescatter(x, ignore_name_scope=True), [1])
        parts = hvd.grouped_reducescatter([x], *more, hvd.global_process_set, 2.0, 3.0)
        self.assertEqual(parts[0].numpy().tolist(), [6 * self.size])

    def test_objects(self) -> None:
        """Python objects."""
        self.assertEqual(hvd.broadcast_object({"rank": self.rank}, self.size - 1),
                         {"rank": self.size - 1})
        self.assertEqual(hvd.broadcast_object_fn(0)([self.rank]), [0])
        self.assertEqual(hvd.allgather_object("x" * self.rank), ["x" * r for r in self.ranks])

    def test_order(self) -> None:
        """Calls without a name of one tf.function run in the program's order, even if the graph
        allows other orders."""
        @tf.function
        def function() -> Any:
            return [hvd.allreduce(full(i), op=hvd.Max) for i in range(8)]

        for _ in range(3):
            self.assertEqual([t[0].numpy() for t in function()], list(range(8)))

    def test_process_set(self) -> None:
        """A set of the even ranks."""
        if self.size < 2:
            return
        even = hvd.add_process_set(range(0, self.size, 2))
        if even.included():
            result = hvd.allreduce(full(self.rank), op=hvd.Sum, process_set=even)
            self.assertEqual(result[0].numpy(), sum(even.ranks))
            self.assertEqual(hvd.broadcast(full(self.rank), even.ranks[-1],
                                           process_set=even)[0].numpy(), even.ranks[-1])
        else:
            self.assertRaisesRegex(ValueError, "not part of", hvd.allreduce, full(1),
                                   process_set=even)
        with hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum, process_set=even) as tape:
            x = tf.Variable(1.0)
            tape.watch(x)
            y = x * float(self.rank + 1)
        wanted = sum(r + 1 for r in even.ranks) if even.included() else self.rank + 1
        self.assertEqual(tape.gradient(y, x).numpy(), wanted)
        self.assertTrue(hvd.remove_process_set(even))

    def test_join(self) -> None:
        """A rank that has no more data adds zeros."""
        if self.rank > 0:
            self.assertEqual(hvd.allreduce(full(1), op=hvd.Sum, name="late")[0].numpy(),
                             self.size - 1)
        self.assertIn(hvd.join(), self.ranks)
        hvd.barrier()


class Gradients(unittest.TestCase):
    """Gradients of the calls, and gradients reduced over the ranks."""

    def setUp(self) -> None:
        self.rank, self.size = hvd.rank(), hvd.size()

    def gradient(self, function: Callable[[Any], Any], x: Any) -> Any:
        """Returns d function / d x of this rank, which must be the same eagerly and in a
        tf.function."""
        def compute() -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
            return tape.gradient(y, x)

        eagerly, in_graph = both(compute)
        np.testing.assert_array_equal(eagerly, in_graph)
        return eagerly

    def test_calls(self) -> None:
        """Gradients as Horovod defines them."""
        n, x, weight = self.size, full(1, self.size, 2), float(self.rank + 1)
        mean = sum(r + 1 for r in range(n)) / n
        ones = np.ones((n, 2), np.float32)
        for function, wanted in (
                (lambda t: hvd.allreduce(t) * weight, mean),
                (lambda t: hvd.allreduce(t, op=hvd.Sum) * weight, mean * n),
                (lambda t: hvd.grouped_allreduce([t, t])[1] * weight, mean),
                (lambda t: hvd.allgather(t) * weight, mean),
                (lambda t: hvd.broadcast(t, 0) * weight, mean if self.rank == 0 else 0)):
            np.testing.assert_allclose(self.gradient(function, x), wanted * ones, rtol=1e-6)
        ranks = [[r + 1.0] * 2 for r in range(n)]
        np.testing.assert_array_equal(self.gradient(lambda t: hvd.alltoall(t) * weight, x), ranks)
        np.testing.assert_array_equal(self.gradient(
            lambda t: hvd.reducescatter(t, op=hvd.Sum) * weight, x), n * np.array(ranks))

    def loss(self, weights: Any, data: Any) -> Any:
        """The loss of a small model."""
        hidden = tf.tanh(data[:, :4] @ weights[0] + weights[1])
        return tf.reduce_mean((hidden @ weights[2] - data[:, 4:]) ** 2)

    def test_tape(self) -> None:
        """The average over the ranks is the gradient of the whole batch, in every form."""
        generator = np.random.default_rng(3)
        weights = [tf.Variable(generator.normal(size=shape)) for shape in ((4, 8), (8,), (8, 1))]
        data = tf.constant(generator.normal(size=(8 * self.size, 5)))
        with tf.GradientTape() as tape:
            loss = self.loss(weights, data)
        wanted = tape.gradient(loss, weights)
        mine = data[self.rank::self.size]

        def reduced(**parameters: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = self.loss(weights, mine)
            tape = hvd.DistributedGradientTape(tape, **parameters)
            self.assertIsInstance(tape, tf.GradientTape)
            return tape.gradient(loss, weights)

        for parameters, tolerance in (({}, 1e-12), ({"gradient_predivide_factor": 2.0}, 1e-12),
                                      ({"compression": hvd.Compression.fp16}, 5e-3)):
            def call() -> Any:
                return reduced(**parameters)
            for function in (call, tf.function(call)):
                for result, gradient in zip(function(), wanted):
                    np.testing.assert_allclose(result, gradient, rtol=tolerance, atol=tolerance)

    def test_structures(self) -> None:
        """The sources are in a dictionary, and one of them has no gradient. Sums of rank numbers
        are exact."""
        sources = {"used": tf.Variable([1.0, 2.0]), "not": tf.Variable(3.0)}
        with hvd.DistributedGradientTape(tf.GradientTape(persistent=True), op=hvd.Sum) as tape:
            y = sources["used"] * float(self.rank)
        gradients = tape.gradient(y, sources)
        self.assertIsNone(gradients["not"])
        self.assertEqual(gradients["used"].numpy().tolist(), [sum(range(self.size))] * 2)
        self.assertEqual(tape.gradient(y, sources["used"]).numpy().tolist(),
                         [sum(range(self.size))] * 2)
        self.assertRaisesRegex(ValueError, "already", hvd.DistributedGradientTape, tape)

    def test_sparse(self) -> None:
        """IndexedSlices beside a dense gradient are gathered, or are reduced as dense gradients."""
        table, dense = tf.Variable(tf.zeros((4, 2))), tf.Variable(1.0)
        mine = tf.constant([0, 1 + self.rank % 3])

        def gradients(**parameters: Any) -> Any:
            with hvd.DistributedGradientTape(tf.GradientTape(), **parameters) as tape:
                y = tf.reduce_sum(tf.gather(table, mine)) * float(self.rank + 1) + dense
            return tape.gradient(y, [table, dense])

        wanted = np.zeros((4, 2), np.float32)
        for r in range(self.size):
            wanted[[0, 1 + r % 3]] += r + 1
        for call in (gradients, tf.function(gradients)):
            sparse, one = call(op=hvd.Sum)
            self.assertIsInstance(sparse, tf.IndexedSlices)
            np.testing.assert_array_equal(tf.convert_to_tensor(sparse), wanted)
            self.assertEqual(one.numpy(), self.size)
            plain, _ = call(op=hvd.Sum, sparse_as_dense=True)
            if self.size > 1:
                self.assertIsInstance(plain, tf.Tensor)
            np.testing.assert_array_equal(tf.convert_to_tensor(plain), wanted)
            mean, _ = call()
            np.testing.assert_allclose(tf.convert_to_tensor(mean), wanted / self.size, rtol=1e-6)
        slices = tf.IndexedSlices(full(1, 1, 2), tf.constant([self.rank]),
                                  tf.constant([self.size, 2]))
        self.assertEqual(hvd.allreduce(slices, op=hvd.Sum).indices.numpy().tolist(),
                         list(range(self.size)))

        def grouped() -> Any:
            return hvd.grouped_allreduce([slices, full(1), slices], op=hvd.Sum)

        for first, one, last in (grouped(), tf.function(grouped)()):
            for result in (first, last):
                self.assertIsInstance(result, tf.IndexedSlices)
                self.assertEqual(result.indices.numpy().tolist(), list(range(self.size)))
            self.assertEqual(one.numpy().tolist(), [self.size] * 3)
        mean = hvd.grouped_allreduce([slices])[0]
        np.testing.assert_allclose(mean.values, np.full((self.size, 2), 1 / self.size), rtol=1e-6)
        for factor in ("prescale_factor", "postscale_factor"):
            self.assertRaises(NotImplementedError, hvd.allreduce, slices, **{factor: 0.5})
        if self.size > 1:
            self.assertRaises(ValueError, gradients, op=hvd.Max)

    def test_parameters(self) -> None:
        """Options and operations that are not supported."""
        tape = tf.GradientTape()
        self.assertRaises(NotImplementedError, hvd.DistributedGradientTape, tape, op=hvd.Adasum)
        x = tf.Variable(3.0)
        with hvd.DistributedGradientTape(tf.GradientTape(persistent=True)) as distributed:
            y = x * x
        for gradient in (distributed.gradient(y, x, use_generic_names=True),
                         distributed.gradient(y, x, None, True)):
            self.assertEqual(gradient.numpy(), 6.0)
        self.assertRaises(NotImplementedError, hvd.allreduce, full(1), op=hvd.Adasum)
        self.assertRaises(ValueError, hvd.allreduce, full(1), op=17)
        self.assertRaises(ValueError, hvd.allreduce, full(1), average=True, op=hvd.Sum)
        self.assertRaises(ValueError, hvd.DistributedGradientTape, tape, op=hvd.Sum,
                          gradient_predivide_factor=2.0)


class Errors(unittest.TestCase):
    """Calls that do not match end on all ranks with the library's text, and the next call works."""

    def check(self, function: Callable[[], Any], words: str) -> None:
        """Eagerly a HorovodInternalError; in a tf.function an error of TensorFlow."""
        if hvd.size() == 1:
            return
        self.assertRaisesRegex(hvd.HorovodInternalError, words, function)
        self.assertRaisesRegex(tf.errors.UnknownError, words, tf.function(function))
        self.assertEqual(hvd.allreduce(full(1), op=hvd.Sum)[0].numpy(), hvd.size())

    def test_mismatch(self) -> None:
        """Different numbers of elements, types, and shapes of an allgather."""
        rank = hvd.rank()
        self.check(lambda: hvd.allreduce(full(1, 2 + rank), name="length"),
                   "tensor 'allreduce.length': rank [012] has an allreduce of")
        self.check(lambda: hvd.allreduce(full(1, dtype=tf.int32 if rank else tf.float32),
                                         name="type"), "int32")
        self.check(lambda: hvd.allgather(full(1, 2, 2 + rank), name="rows"),
                   r"rank 0 has shape \[2, 2\] of float32, rank 1 has shape \[2, 3\]")

    def test_again(self) -> None:
        """shutdown and init again."""
        hvd.barrier()
        hvd.shutdown()
        self.assertRaisesRegex(ValueError, "hvd.init", hvd.allreduce, full(1))
        self.assertRaisesRegex(ValueError, "hvd.init", hvd.rank)
        hvd.init()
        self.assertEqual(hvd.allreduce(full(1), op=hvd.Sum)[0].numpy(), hvd.size())


if __name__ == "__main__":
    horovod_jobs.main(env=(1, 3), mpi=(2,))
