# SPDX-License-Identifier: BSD-3-Clause
"""Data parallel training with the optimizer's state divided among the ranks (ZeRO, stage 1).

    torchrun --nproc-per-node 2 zero.py [tutti|gloo]
"""

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import common

dist.init_process_group(common.backend())
data = common.load()
net = DistributedDataParallel(common.make_model())
optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.001)
for epoch in range(3):
    common.train_epoch(net, optimizer, data, epoch, dist.get_rank(), dist.get_world_size())
dist.destroy_process_group()
