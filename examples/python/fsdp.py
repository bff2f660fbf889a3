# SPDX-License-Identifier: BSD-3-Clause
"""Fully sharded training: each rank keeps a part of every parameter, and gathers a layer when it
needs it.

    torchrun --nproc-per-node 2 fsdp.py [tutti|gloo]
"""

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

import common

dist.init_process_group(common.backend())
data = common.load()
net = FullyShardedDataParallel(common.make_model(), device_id=torch.device("cpu"),
                               auto_wrap_policy=ModuleWrapPolicy({torch.nn.Linear}))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):
    common.train_epoch(net, optimizer, data, epoch, dist.get_rank(), dist.get_world_size())
dist.destroy_process_group()
