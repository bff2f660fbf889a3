# SPDX-License-Identifier: BSD-3-Clause
"""torch_examples.py runs this script by torchrun: one rank fails before it has made its group,
while the other rank makes it. After torchrun's restart the ranks must meet, also if rank 0 comes
while the other rank tries to connect to the earlier rank 0.

usage: restart_script.py RANK"""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == sys.argv[1]:
    time.sleep(2)  # the other rank makes its group meanwhile
    sys.exit(3)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "1" and os.environ["RANK"] == "0":
    time.sleep(0.5)
dist.init_process_group("tutti", timeout=timedelta(seconds=60))
t = torch.ones(1)
dist.all_reduce(t)
assert t.item() == 2
dist.destroy_process_group()
