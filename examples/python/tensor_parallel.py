# SPDX-License-Identifier: BSD-3-Clause
"""Tensor parallel training: the first layer is divided by columns, the second by rows. All ranks
use the same data.

    torchrun --nproc-per-node 2 tensor_parallel.py [tutti|gloo]
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)

import common

dist.init_process_group(common.backend())
data = common.load()
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
net = parallelize_module(common.make_model(), mesh,
                         {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
for epoch in range(3):
    common.train_epoch(net, optimizer, data, epoch, 0, 1)
dist.destroy_process_group()
