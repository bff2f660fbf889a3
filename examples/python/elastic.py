# SPDX-License-Identifier: BSD-3-Clause
"""Elastic training: a rank dies, torchrun starts all ranks again, and they continue from the
checkpoint.

    torchrun --nproc-per-node 2 --max-restarts 1 elastic.py [tutti|gloo]

Rank 1 of the first start kills itself in the second epoch, as a failing machine would. CHECKPOINT
names the file (default: elastic.pt in this folder); the program removes it at the end.
"""

import os
import signal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import common

dist.init_process_group(common.backend())
rank, restarts = dist.get_rank(), int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
path = os.environ.get("CHECKPOINT", "elastic.pt")
data = common.load()
net = DistributedDataParallel(common.make_model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
first = 0
if restarts > 0 and os.path.exists(path):
    saved = torch.load(path)
    net.load_state_dict(saved["model"])
    first = saved["epoch"] + 1
    print("rank %d goes on with epoch %d" % (rank, first), flush=True)
for epoch in range(first, 3):
    if epoch == 1 and rank == 1 and restarts == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    common.train_epoch(net, optimizer, data, epoch, rank, dist.get_world_size())
    if rank == 0:
        torch.save({"model": net.state_dict(), "epoch": epoch}, path + ".part")
        os.replace(path + ".part", path)
    dist.barrier()
if rank == 0:
    os.unlink(path)
dist.destroy_process_group()
