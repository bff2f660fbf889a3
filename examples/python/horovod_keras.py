# SPDX-License-Identifier: BSD-3-Clause
"""An unchanged Horovod script for Keras that learns Fashion-MNIST.

    mpirun -np 2 python -m tutti.horovod examples/python/horovod_keras.py
    python -m tutti.horovod -np 2 examples/python/horovod_keras.py

After one epoch over 40000 images the model recognizes 81 % of the test images. The ranks share each
batch of 128, so losses and accuracy are those of one process, up to rounding.
"""

import argparse
import gzip
import os

import horovod.tensorflow.keras as hvd
import keras
import numpy as np
import tensorflow as tf

SHARED_BATCH = 128


def load(folder, name, header):
    """One file of the data set, as numbers."""
    with gzip.open(os.path.join(folder, name)) as data:
        return np.frombuffer(data.read(), dtype=np.uint8, offset=header)


def images(folder, part, count):
    """This rank's share of the first `count` images and labels of a part."""
    pixels = load(folder, part + "-images-idx3-ubyte.gz", 16).reshape(-1, 28 * 28)[:count]
    labels = load(folder, part + "-labels-idx1-ubyte.gz", 8)[:count]
    mine = slice(hvd.rank(), None, hvd.size())
    return pixels[mine].astype(np.float32) / 255 - 0.5, labels[mine].astype(np.int64)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--images", type=int, default=40000)
    options = parser.parse_args()

    hvd.init()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    keras.utils.set_random_seed(1 + hvd.rank())
    count = options.images // SHARED_BATCH * SHARED_BATCH
    x, y = images(options.data, "train", count)
    model = keras.Sequential([keras.layers.Input((28 * 28,)),
                              keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.03, momentum=0.9))
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  metrics=["accuracy"])
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                 hvd.callbacks.MetricAverageCallback()]
    history = model.fit(x, y, batch_size=SHARED_BATCH // hvd.size(), epochs=options.epochs,
                        shuffle=False, callbacks=callbacks, verbose=0,
                        validation_data=images(options.data, "t10k", 10000)).history
    for epoch, (loss, share) in enumerate(zip(history["loss"], history["val_accuracy"])):
        if hvd.rank() == 0:
            print("epoch %d: loss %.5f, accuracy %.4f" % (epoch, loss, share), flush=True)


if __name__ == "__main__":
    main()
