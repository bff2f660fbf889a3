# SPDX-License-Identifier: BSD-3-Clause
"""Data parallel training: each rank has the whole model and a part of the data.

    torchrun --nproc-per-node 2 ddp.py [tutti|gloo]
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import common

dist.init_process_group(common.backend())
data = common.load()
net = DistributedDataParallel(common.make_model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):
    common.train_epoch(net, optimizer, data, epoch, dist.get_rank(), dist.get_world_size())
dist.destroy_process_group()
