# SPDX-License-Identifier: BSD-3-Clause
"""ElasticSampler: the samples of an epoch that no rank has processed yet, shared by the ranks."""

import random
from typing import Any, Dict, Iterator, List

import torch.utils.data

from ..mpi_ops import rank, size


class ElasticSampler(torch.utils.data.Sampler):
    """As DistributedSampler. In a TorchState, a restored epoch continues after the samples that
    were recorded before the last commit.

    dataset  of constant length
    shuffle  a different order in each epoch
    seed     of the order; equal on all ranks

    Call record_batch() after each batch, and set_epoch() at the end of each epoch.
    """

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = 0
        self.processed_num = 0  # of this epoch, on all ranks
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin another epoch with all samples. Call this at the end of an epoch. A call at the
        beginning would discard the record of the samples that a restored epoch has processed."""
        self.epoch, self.processed_num = epoch, 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Record that every rank has processed a batch of this size."""
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> Dict[str, int]:
        """Epoch and progress."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: Dict[str, int]) -> None:
        """Continue from a state_dict()."""
        self.epoch, self.processed_num = state_dict["epoch"], state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Share the remaining samples among the ranks that there are now."""
        self.rank, self.num_replicas = rank(), size()
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        self.remaining_indices: List[int] = order[self.processed_num:]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        own = self.remaining_indices
        if own:  # some samples twice, so that all ranks have equally many
            own = (own * -(-self.total_size // len(own)))[:self.total_size]
        return iter(own[self.rank:self.total_size:self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples
