# SPDX-License-Identifier: BSD-3-Clause
"""DeepSpeed's ZeRO on CPUs: the optimizer's state, and in stage 2 the gradients, are divided among
the ranks.

    DS_ACCELERATOR=cpu torchrun --nproc-per-node 2 zero_deepspeed.py [tutti|gloo]

DeepSpeed compiles a module when it is first used.
"""

import deepspeed
import torch.distributed as dist

import common

deepspeed.init_distributed(common.backend())
data = common.load()
engine, optimizer, _, _ = deepspeed.initialize(model=common.make_model(), config={
    "train_micro_batch_size_per_gpu": 64,
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "Adam",
                  "params": {"lr": 0.001, "weight_decay": 0.0, "torch_adam": True}}})
for epoch in range(3):
    common.train_epoch(engine, engine, data, epoch, dist.get_rank(), dist.get_world_size())
dist.destroy_process_group()
