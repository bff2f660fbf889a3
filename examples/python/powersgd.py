# SPDX-License-Identifier: BSD-3-Clause
"""Data parallel training with compressed gradients: PowerSGD of rank 2, after ten plain steps.

    torchrun --nproc-per-node 2 powersgd.py [tutti|gloo]
"""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import common

dist.init_process_group(common.backend())
data = common.load()
net = DistributedDataParallel(common.make_model())
state = powerSGD_hook.PowerSGDState(dist.group.WORLD, matrix_approximation_rank=2,
                                    start_powerSGD_iter=10)
net.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):
    common.train_epoch(net, optimizer, data, epoch, dist.get_rank(), dist.get_world_size())
dist.destroy_process_group()
