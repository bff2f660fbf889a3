#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The trainer without MPI: ranks that meet by the variables of env:// set in the shell, by Slurm's
# variables, and under torchrun if it is installed. The results of all ways must be the same.
set -u

. "${0%/*}/common.sh"
need_trainer
varied "$work/data"
export TUTTI_TIMEOUT=60 TUTTI_MODULE_DIR=/nonexistent
# As with torchrun's agent, rank 0 uses a free port above this port. So other tests on this machine
# do not disturb this test.
port=$((20000 + $$ % 12000))

# train NAME RANK: runs one of three ranks; the environment has the other settings
train() {
    "$trainer" --data "$work/data" --batch 9 --epochs 2 --progress lines --checkpoint "$work/$1.ckpt" \
        --overwrite >"$work/$1.out.$2" 2>"$work/$1.log.$2"
}

# ended NAME: waits for the ranks $pids
ended() {
    for pid in $pids; do
        wait "$pid" || wrong "$1: a rank failed" "$work/$1".*.?
    done
    test -s "$work/$1.ckpt" || wrong "$1: no checkpoint" "$work/$1".*.?
}

pids=
for rank in 2 1 0; do
    (
        export RANK=$rank WORLD_SIZE=3 LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
        export TORCHELASTIC_USE_AGENT_STORE=True
        train env "$rank"
    ) &
    pids="$pids $!"
done
ended env

pids=
for rank in 0 1 2; do
    (
        export SLURM_JOB_ID=$$ SLURM_STEP_ID=0 SLURM_PROCID=$rank SLURM_STEP_NUM_TASKS=3
        export SLURM_LOCALID=$rank SLURM_STEP_TASKS_PER_NODE=3 SLURM_STEP_NODELIST='node[1]'
        train slurm "$rank"
    ) &
    pids="$pids $!"
done
ended slurm
cmp "$work/env.ckpt" "$work/slurm.ckpt" || wrong "the results differ"

if command -v torchrun >/dev/null 2>&1 && python3 -c 'import torch' 2>/dev/null; then
    torchrun --standalone --nproc-per-node 3 --no-python "$trainer" --data "$work/data" --batch 9 \
        --epochs 2 --progress lines --checkpoint "$work/torch.ckpt" --overwrite \
        >"$work/torch.out.0" 2>&1 || wrong "torchrun failed" "$work/torch.out.0"
    cmp "$work/env.ckpt" "$work/torch.ckpt" || wrong "torchrun's result differs"
else
    echo "no torchrun: left out"
fi
exit $((errors != 0))
