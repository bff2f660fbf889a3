# SPDX-License-Identifier: BSD-3-Clause
"""Pipeline parallel training: each of two ranks has one half of the model. A batch passes through
both halves as four micro-batches.

    torchrun --nproc-per-node 2 pipeline.py [tutti|gloo]
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

import common

dist.init_process_group(common.backend())
data = common.load()
rank = dist.get_rank()
layers = list(common.make_model())
half = nn.Sequential(*(layers[:2] if rank == 0 else layers[2:]))
stage = PipelineStage(half, rank, 2, torch.device("cpu"))
schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=nn.functional.cross_entropy)
optimizer = torch.optim.SGD(half.parameters(), lr=0.1)
for epoch in range(3):
    total, right, count = 0.0, 0.0, 0
    for images, labels in common.batches(data, 64, epoch, 0, 1):
        if len(labels) < 64:
            continue  # all micro-batches must have the same size
        optimizer.zero_grad()
        losses: list = []
        if rank == 0:
            schedule.step(images)
        else:
            output = schedule.step(target=labels, losses=losses)
            total += sum(loss.item() for loss in losses) / len(losses)
            right += float((output.argmax(1) == labels).float().mean())
            count += 1
        optimizer.step()
    if rank == 1:
        print("epoch %d: loss %.4f, accuracy %.3f" % (epoch, total / count, right / count),
              flush=True)
dist.destroy_process_group()
