# SPDX-License-Identifier: BSD-3-Clause
"""Shared by the examples: data, a model, and the loop of one epoch."""

import gzip
import os
import struct
import sys
from typing import Any, Iterator, Tuple

import torch
import torch.distributed as dist
from torch import nn

Batch = Tuple[torch.Tensor, torch.Tensor]


def _read(path: str) -> torch.Tensor:
    """A file of the IDX format of MNIST."""
    with gzip.open(path, "rb") as file:
        data = file.read()
    dimensions = data[3]
    shape = struct.unpack(">%dI" % dimensions, data[4:4 + 4 * dimensions])
    return torch.frombuffer(bytearray(data[4 + 4 * dimensions:]), dtype=torch.uint8).view(shape)


def load() -> Batch:
    """Fashion-MNIST from the folder in FASHION_MNIST (train-images-idx3-ubyte.gz and labels); or
    synthetic data of its shape: ten noisy patterns."""
    folder = os.environ.get("FASHION_MNIST", "")
    images = os.path.join(folder, "train-images-idx3-ubyte.gz")
    if folder and os.path.exists(images):
        labels = os.path.join(folder, "train-labels-idx1-ubyte.gz")
        return _read(images).float().view(-1, 784) / 255, _read(labels).long()
    if dist.get_rank() == 0:
        print("%s: the data are synthetic"
              % ("there is no " + images if folder else "FASHION_MNIST is not set"))
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 10, (6000,), generator=generator)
    patterns = torch.rand(10, 784, generator=generator)
    return patterns[labels] + 0.5 * torch.randn(6000, 784, generator=generator), labels


def batches(data: Batch, size: int, epoch: int, rank: int, ranks: int) -> Iterator[Batch]:
    """This rank's batches of an epoch."""
    order = torch.randperm(len(data[1]), generator=torch.Generator().manual_seed(epoch))
    mine = order[rank::ranks][:len(data[1]) // ranks]
    for part in mine.split(size):
        yield data[0][part], data[1][part]


def make_model() -> nn.Sequential:
    """A model with the same parameters on all ranks."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(),
                         nn.Linear(128, 10))


def train_epoch(net: Any, optimizer: Any, data: Batch, epoch: int, rank: int, ranks: int) -> None:
    """One epoch. Prints the mean loss of all ranks and the accuracy."""
    sums = torch.zeros(3)
    for images, labels in batches(data, 64, epoch, rank, ranks):
        optimizer.zero_grad()
        output = net(images)
        loss = nn.functional.cross_entropy(output, labels)
        loss.backward()
        optimizer.step()
        sums += torch.tensor([loss.item() * len(labels),
                              float((output.argmax(1) == labels).sum()), len(labels)])
    dist.all_reduce(sums)
    if dist.get_rank() == 0:
        print("epoch %d: loss %.4f, accuracy %.3f" % (epoch, sums[0] / sums[2],
                                                      sums[1] / sums[2]), flush=True)


def backend() -> str:
    """The name of the backend: the first argument, or tutti."""
    return sys.argv[1] if len(sys.argv) > 1 else "tutti"
