# SPDX-License-Identifier: BSD-3-Clause
"""tutti.horovod.keras: DistributedOptimizer in model.fit(), callbacks, saved models."""

import os
import shutil
import tempfile
import unittest
from typing import Any, List

import horovod_jobs
import keras
import numpy as np
import tensorflow as tf

import tutti.horovod.keras as hvd
import tutti.horovod.tensorflow as tensorflow_hvd

tf.get_logger().setLevel("ERROR")  # tests make many functions

BATCH = 12  # of all ranks together
ROWS = 4 * BATCH


def data() -> Any:
    """Data that are the same on all ranks."""
    generator = np.random.default_rng(5)
    x = generator.normal(size=(ROWS, 4)).astype(np.float32)
    return x, x.sum(1, keepdims=True) + 0.25


def shares(x: Any) -> Any:
    """This rank's rows, so that the ranks' batches together are the batches of one process."""
    return x[hvd.rank()::hvd.size()]


def model_of(seed: int, optimizer: Any, **more: Any) -> Any:
    """A small model."""
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8, activation="tanh"),
                              keras.layers.Dense(1)])
    model.compile(optimizer=optimizer, loss="mse", **more)
    return model


def weights_of(model: Any) -> List[Any]:
    """The weights as arrays."""
    return [weight.numpy() for weight in model.weights]


class Fit(unittest.TestCase):
    """model.fit() with each rank's part of the data."""

    def fit(self, model: Any, epochs: int = 3, callbacks: Any = (), **more: Any) -> Any:
        """Train, and return the history."""
        x, y = data()
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)] + list(callbacks)
        return model.fit(shares(x), shares(y), batch_size=BATCH // hvd.size(), epochs=epochs,
                         shuffle=False, verbose=0, callbacks=callbacks, **more).history

    def equal_on_ranks(self, model: Any) -> None:
        """Weights and the optimizer's state have the same bits on all ranks."""
        mine = weights_of(model) + [v.numpy() for v in model.optimizer.variables]
        for theirs in hvd.allgather_object(mine):
            for a, b in zip(mine, theirs):
                np.testing.assert_array_equal(a, b)

    def test_like_one_process(self) -> None:
        """Models that start differently get rank 0's weights. Their training gives the same weights
        as one process that trains on all data."""
        for make in (lambda: keras.optimizers.SGD(0.05, momentum=0.9),
                     lambda: keras.optimizers.Adam(0.01, clipnorm=1.0)):
            model = model_of(1 + hvd.rank(), hvd.DistributedOptimizer(make()))
            history = self.fit(model, callbacks=[hvd.callbacks.MetricAverageCallback()])
            self.equal_on_ranks(model)
            alone = model_of(1, make())
            x, y = data()
            wanted = alone.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False, verbose=0).history
            for a, b in zip(weights_of(model), weights_of(alone)):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(history["loss"], wanted["loss"], rtol=1e-4)

    def test_options(self) -> None:
        """With compression, factors, eager steps, sparse gradients and scaled losses, the ranks
        stay equal and learn."""
        embedding = keras.Sequential([keras.layers.Embedding(10, 4), keras.layers.Flatten(),
                                      keras.layers.Dense(1)])
        for parameters in ({"compression": hvd.Compression.fp16}, {"op": hvd.Sum},
                           {"gradient_predivide_factor": 2.0}):
            model = model_of(hvd.rank(), hvd.DistributedOptimizer(keras.optimizers.SGD(0.02),
                                                                  **parameters))
            losses = self.fit(model)["loss"]
            self.equal_on_ranks(model)
            self.assertLess(losses[-1], losses[0])
        model = model_of(hvd.rank(), hvd.DistributedOptimizer(keras.optimizers.SGD(0.02)),
                         run_eagerly=True)
        self.fit(model, epochs=1)
        self.equal_on_ranks(model)
        # In horovod.tensorflow, DistributedOptimizer has its parameters in another order. This call
        # passes them by position, up to backward_passes_per_step.
        first = tensorflow_hvd.DistributedOptimizer(keras.optimizers.SGD(0.02), "first", True, "",
                                                    "", hvd.Compression.fp16, False, 2)
        model = model_of(hvd.rank(), first)
        self.fit(model, epochs=1)
        self.equal_on_ranks(model)
        self.assertEqual((first._tutti_passes, first._tutti_reduction.compression),
                         (2, hvd.Compression.fp16))
        scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.02))
        model = model_of(hvd.rank(), hvd.DistributedOptimizer(scaled))
        self.fit(model, epochs=1)
        self.equal_on_ranks(model)
        for dense in (False, True):
            optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), sparse_as_dense=dense)
            embedding.compile(optimizer=optimizer, loss="mse")
            rows = np.random.default_rng(hvd.rank()).integers(0, 10, (24, 2))
            embedding.fit(rows, rows.sum(1, keepdims=True) / 10.0, verbose=0, callbacks=[
                hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
            self.equal_on_ranks(embedding)

    def test_local_variables(self) -> None:
        """Variables that each rank keeps for itself are not copied."""
        rank = hvd.rank()
        model = model_of(1 + rank, keras.optimizers.SGD(0.05))
        first, *_, local, last = model.weights
        local.assign(local * 0 + rank)
        last.assign(last * 0 + rank)
        callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=last)
        callback.register_local_var(local)
        callback.set_model(model)
        callback.on_train_begin()
        self.assertTrue((local.numpy() == rank).all() and (last.numpy() == rank).all())
        for theirs in hvd.allgather_object(first.numpy()):
            np.testing.assert_array_equal(theirs, first.numpy())

    def test_passes(self) -> None:
        """Gradients of two batches make one step, as in one process with batches twice as large."""
        model = model_of(1, hvd.DistributedOptimizer(
            keras.optimizers.SGD(0.05), backward_passes_per_step=2,
            average_aggregated_gradients=True))
        self.fit(model, epochs=2)
        self.equal_on_ranks(model)
        # Passes without a step count as well, so a schedule counts batches.
        self.assertEqual(int(model.optimizer.iterations), 2 * ROWS // BATCH)
        alone = model_of(1, keras.optimizers.SGD(0.05))
        x, y = data()
        alone.fit(x, y, batch_size=2 * BATCH, epochs=2, shuffle=False, verbose=0)
        for a, b in zip(weights_of(model), weights_of(alone)):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)

    def test_callbacks(self) -> None:
        """Metrics are averages; the learning rate rises, then follows a schedule."""
        model = model_of(1, hvd.DistributedOptimizer(keras.optimizers.SGD(0.5)))
        rate, size = 0.03, hvd.size()
        history = self.fit(model, epochs=5, callbacks=[
            hvd.callbacks.MetricAverageCallback(),
            hvd.callbacks.LearningRateWarmupCallback(rate, warmup_epochs=2),
            hvd.callbacks.LearningRateScheduleCallback(rate, 0.1, start_epoch=3)])
        wanted = [(rate / size + rate) / 2, rate, rate, rate, rate * 0.1]
        np.testing.assert_allclose(history["lr"], wanted, rtol=1e-5)
        for other in hvd.allgather_object(history["loss"]):
            self.assertEqual(other, history["loss"])
        self.assertRaises(ValueError, hvd.callbacks.LearningRateScheduleCallback, None, 0.1)

    def test_random_states(self) -> None:
        """Each rank keeps its own random numbers: dropout differs."""
        keras.utils.set_random_seed(7 + hvd.rank())
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dropout(0.5),
                                  keras.layers.Dense(1)])
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
        self.fit(model, epochs=1)
        self.equal_on_ranks(model)
        seeds = hvd.allgather_object([v.numpy() for v in model.non_trainable_variables])
        self.assertEqual(len({str(seed) for seed in seeds}), hvd.size())

    def test_saved(self) -> None:
        """A saved model is a model of plain Keras. load_model() makes it distributed again."""
        model = model_of(1, hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)))
        self.fit(model, epochs=1)
        folder = tempfile.mkdtemp()
        try:
            path = os.path.join(folder, "model.keras")
            model.save(path)
            plain = keras.models.load_model(path)
            self.assertIs(type(plain.optimizer), keras.optimizers.Adam)
            again = hvd.load_model(path, legacy_opts=False)
        finally:
            shutil.rmtree(folder)
        self.assertRaisesRegex(ValueError, "already", hvd.DistributedOptimizer, again.optimizer)
        self.assertEqual(int(again.optimizer.iterations), int(model.optimizer.iterations))
        self.fit(model, epochs=1)
        self.fit(again, epochs=1)
        for a, b in zip(weights_of(model), weights_of(again)):
            np.testing.assert_array_equal(a, b)

    def test_parameters(self) -> None:
        """Arguments that are refused."""
        sgd = keras.optimizers.SGD(0.1)
        for error, given, more in (
                (ValueError, tf.compat.v1.train.GradientDescentOptimizer(0.1), {}),
                (ValueError, sgd, {"backward_passes_per_step": 0}),
                (ValueError, sgd, {"op": hvd.Sum, "gradient_predivide_factor": 2.0}),
                (NotImplementedError, sgd, {"op": hvd.Adasum})):
            self.assertRaises(error, hvd.DistributedOptimizer, given, **more)
        self.assertIs(type(sgd), keras.optimizers.SGD)

    def test_values(self) -> None:
        """Calls on values that are no tensors."""
        self.assertEqual(hvd.allreduce(float(hvd.rank() + 1), op=hvd.Max).numpy(), hvd.size())
        self.assertEqual(hvd.allgather([hvd.rank()]).numpy().tolist(), list(range(hvd.size())))
        self.assertEqual(hvd.broadcast(np.array([hvd.rank()]), 0).numpy().tolist(), [0])
        rows = [1.0] * hvd.size()
        self.assertEqual(hvd.reducescatter(rows, op=hvd.Sum).numpy().tolist(), [hvd.size()])


if __name__ == "__main__":
    horovod_jobs.main(env=(1, 3), mpi=(2,))
