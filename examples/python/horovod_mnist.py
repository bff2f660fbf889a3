# SPDX-License-Identifier: BSD-3-Clause
"""An unchanged Horovod script that learns Fashion-MNIST.

    mpirun -np 2 python -m tutti.horovod examples/python/horovod_mnist.py
    python -m tutti.horovod -np 2 examples/python/horovod_mnist.py
    horovodrun -np 2 python examples/python/horovod_mnist.py             the same over Horovod

After one epoch over 40000 images the model recognizes 81 % of the test images. The ranks share each
batch of 128, so losses and accuracy are those of one process, up to rounding.
"""

import argparse
import gzip
import os

import horovod.torch as hvd
import numpy as np
import torch
from torch import nn

SHARED_BATCH = 128


def load(folder, name, header):
    """One file of the data set, as numbers."""
    with gzip.open(os.path.join(folder, name)) as data:
        return np.frombuffer(data.read(), dtype=np.uint8, offset=header)


def images(folder, part, count):
    """The first `count` images and labels of a part, as tensors."""
    pixels = load(folder, part + "-images-idx3-ubyte.gz", 16).reshape(-1, 28 * 28)[:count]
    labels = load(folder, part + "-labels-idx1-ubyte.gz", 8)[:count]
    return (torch.from_numpy(pixels.astype(np.float32) / 255 - 0.5),
            torch.from_numpy(labels.astype(np.int64)))


def train(model, optimizer, x, y, epoch):
    """One epoch. Returns the mean loss over all ranks."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))
    losses = []
    for first in range(0, len(x) - SHARED_BATCH + 1, SHARED_BATCH):
        mine = order[first:first + SHARED_BATCH][hvd.rank()::hvd.size()]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[mine]), y[mine])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return hvd.allreduce(torch.stack(losses).mean(), name="loss").item()


def accuracy(model, x, y):
    """The share of images that are recognized; each rank tests a part."""
    with torch.no_grad():
        right = (model(x[hvd.rank()::hvd.size()]).argmax(1) == y[hvd.rank()::hvd.size()]).sum()
    return hvd.allreduce(right, op=hvd.Sum, name="right").item() / len(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--images", type=int, default=40000)
    options = parser.parse_args()

    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(1 + hvd.rank())
    x, y = images(options.data, "train", options.images)
    x_test, y_test = images(options.data, "t10k", 10000)
    model = nn.Sequential(nn.Linear(28 * 28, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for epoch in range(options.epochs):
        loss = train(model, optimizer, x, y, epoch)
        share = accuracy(model, x_test, y_test)
        if hvd.rank() == 0:
            print("epoch %d: loss %.5f, accuracy %.4f" % (epoch, loss, share), flush=True)


if __name__ == "__main__":
    main()
