# SPDX-License-Identifier: BSD-3-Clause
"""examples/python/horovod_mnist.py reaches its accuracy, and has the same loss for all numbers of
ranks."""

import os
import re
import sys
import unittest

import horovod_jobs

DATA = os.environ.get("TUTTI_DATA", "/usr/share/datasets/fashion-mnist")
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples",
                      "python", "horovod_mnist.py")


class Example(unittest.TestCase):
    """The example, as its users start it."""

    def learn(self, ranks: int) -> tuple:
        """Loss and accuracy after an epoch."""
        command = [sys.executable, "-m", "tutti.horovod", "-np", str(ranks), SCRIPT,
                   "--data", DATA]
        status, output = horovod_jobs.run(command)
        self.assertEqual(status, 0, output)
        found = re.findall(r"epoch 0: loss ([0-9.]+), accuracy ([0-9.]+)", output)
        self.assertEqual(len(found), 1, output)
        return float(found[0][0]), float(found[0][1])

    def test_ranks(self) -> None:
        """One, two and four ranks share the batch of 128."""
        loss, accuracy = self.learn(1)
        self.assertGreater(accuracy, 0.81)
        for ranks in (2, 4):
            other_loss, other_accuracy = self.learn(ranks)
            self.assertAlmostEqual(other_loss, loss, delta=0.002)
            self.assertAlmostEqual(other_accuracy, accuracy, delta=0.02)


if __name__ == "__main__":
    if not os.path.exists(os.path.join(DATA, "train-images-idx3-ubyte.gz")):
        print("skipped: no Fashion-MNIST in %s" % DATA)
        sys.exit(77)
    unittest.main()
