# SPDX-License-Identifier: BSD-3-Clause
"""Scripts for TensorFlow and Keras as their users run them: unchanged ones, the example, and ranks
that fail while they train."""

import os
import re
import sys
import tempfile
import textwrap
import unittest

import horovod_jobs

DATA = os.environ.get("TUTTI_DATA", "/usr/share/datasets/fashion-mnist")
EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples",
                       "python", "horovod_keras.py")

# Horovod's own example for TensorFlow 2, in short.
SCRIPT = """
    import os
    import tensorflow as tf
    import horovod.tensorflow as hvd
    import horovod.keras, horovod.tensorflow.keras.callbacks
    from horovod.tensorflow.mpi_ops import allreduce
    from horovod.common.exceptions import HorovodInternalError

    hvd.init()
    assert hvd.__name__ == "tutti.horovod.tensorflow" and hvd.allreduce is allreduce
    assert hvd.HorovodInternalError is HorovodInternalError
    assert horovod.keras.DistributedOptimizer is horovod.tensorflow.keras.DistributedOptimizer
    assert horovod.keras.allgather_object is hvd.allgather_object
    tf.random.set_seed(hvd.rank())
    model = tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(2)])
    optimizer = tf.keras.optimizers.Adam(0.001 * hvd.size())
    loss = tf.losses.MeanSquaredError()

    @tf.function
    def step(x, y, first):
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        if first:
            hvd.broadcast_variables(model.variables, root_rank=0)
            hvd.broadcast_variables(optimizer.variables, root_rank=0)
        return value

    for batch in range(5):
        step(tf.random.normal((4, 3)), tf.random.normal((4, 2)), batch == 0)
    weights = hvd.allgather(tf.reshape(model.trainable_variables[0], (1, -1)))
    assert weights.shape[0] == hvd.size() and tf.reduce_all(weights == weights[:1]), weights
    os.write(1, b"rank %d of %d\\n" % (hvd.rank(), hvd.size()))
"""

# Rank 1 ends in its third batch.
FAILURE = """
    import sys, os
    import keras, numpy as np
    import horovod.keras as hvd

    hvd.init()

    class End(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if hvd.rank() == 1 and batch == 2:
                os._exit(5) if sys.argv[1] == "die" else sys.exit(5)

    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    try:
        model.fit(np.ones((64, 3)), np.ones((64, 2)), 8, callbacks=[End()], verbose=0)
    except Exception as error:
        print("the error:", type(error).__name__, error, flush=True)
        sys.exit(1)
"""


class Scripts(unittest.TestCase):
    """Each test starts its own jobs; there is one parent."""

    def run_module(self, *arguments: str) -> tuple:
        """python -m tutti.horovod ARGUMENTS"""
        return horovod_jobs.run([sys.executable, "-m", "tutti.horovod"] + list(arguments))

    def run_script(self, text: str, *arguments: str) -> tuple:
        """Two ranks of a script."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script.py")
            with open(path, "w") as script:
                script.write(textwrap.dedent(text))
            return self.run_module("-np", "2", path, *arguments)

    def test_unchanged(self) -> None:
        """A script that imports only "horovod"."""
        status, output = self.run_script(SCRIPT)
        self.assertEqual(status, 0, output)
        for rank in range(2):
            self.assertIn("rank %d of 2" % rank, output)

    def test_failures(self) -> None:
        """If a rank leaves or dies, fit() of the other rank ends with the library's text."""
        for how, words in (("leave", "rank 1 has called tutti_finalize"), ("die", "rank 1 .*lost")):
            status, output = self.run_script(FAILURE, how)
            self.assertIn(status, (1, 5), output)  # the status of the rank that ends first
            self.assertIn("the error: UnknownError", output)
            self.assertRegex(output, "HorovodInternalError: .*" + words)

    def learn(self, ranks: int) -> tuple:
        """Loss and accuracy of the example after an epoch."""
        status, output = self.run_module("-np", str(ranks), EXAMPLE, "--data", DATA, "--images",
                                         "20000")
        self.assertEqual(status, 0, output)
        found = re.findall(r"epoch 0: loss ([0-9.]+), accuracy ([0-9.]+)", output)
        self.assertEqual(len(found), 1, output)
        return float(found[0][0]), float(found[0][1])

    def test_example(self) -> None:
        """One and two ranks share the batch of 128."""
        if not os.path.exists(os.path.join(DATA, "train-images-idx3-ubyte.gz")):
            self.skipTest("no Fashion-MNIST in %s" % DATA)
        loss, accuracy = self.learn(1)
        self.assertGreater(accuracy, 0.78)
        other_loss, other_accuracy = self.learn(2)
        self.assertAlmostEqual(other_loss, loss, delta=0.002)
        self.assertAlmostEqual(other_accuracy, accuracy, delta=0.02)


if __name__ == "__main__":
    unittest.main()
