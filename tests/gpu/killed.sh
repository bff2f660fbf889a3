#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Two hosts train on the device, and one rank is killed: the other rank ends, and names it. In the
# first job the data pass through host memory. In the second job they pass through one NCCL
# communicator of both hosts, whose kernels wait for the dead rank. If there is only one GPU, both
# hosts share it.
set -u
. "$srcdir/tests/gpu/common.sh"
need_device

trainer=${EXAMPLE_TRAIN:-./examples/example_train}
data=${TUTTI_TEST_DATA:-/usr/share/datasets/fashion-mnist}
if ! test -x "$trainer" || ! ls "$data"/train-images-idx3-ubyte* >/dev/null 2>&1; then
    echo "no trainer, or no data"
    exit 77
fi
computes=cuda
[ "$device" != pretend ] || computes=cpu

# begin RANK [COMMAND...]: starts a rank of the job, through COMMAND if it is given; sets pid.
begin()
{
    rank=$1
    shift
    (
        [ "$gpus" -ge 2 ] || share
        export TUTTI_HOST_ID="host$rank" TUTTI_DEVICE_ID="$((rank % gpus))"
        export TUTTI_BOOT="local:killed-${work##*/}-$jobs" TUTTI_RANK="$rank" TUTTI_SIZE=2
        exec "$@" "$trainer" --data "$data" --device $computes --model mlp --epochs 100000
    ) >"$work/rank.$rank" 2>&1 &
    pid=$!
}

# killed WHAT: rank 1 is killed after the first epoch.
killed()
{
    jobs=$((${jobs:-0} + 1))
    fresh
    # Until a rank has started, its file would still have the output of the previous job.
    rm -f "$work/rank.0" "$work/rank.1"
    begin 0 timeout --kill-after=5 200
    survivor=$pid
    begin 1
    while ! grep -qs '^epoch 1/' "$work/rank.0" && kill -0 $survivor 2>/dev/null; do
        sleep 0.1
    done
    kill -9 $pid
    wait $survivor
    status=$?
    grep -q '^epoch 1/' "$work/rank.0" && [ $status -eq 1 ] &&
        grep -q 'rank 1 was lost' "$work/rank.0" && return
    tail -n 40 "$work/rank.0" "$work/rank.1"
    wrong "$1: status $status"
}

killed "through the host"
if [ "$nccl" = 1 ]; then
    export TUTTI_ALGORITHM=allreduce:nccl-flat
    killed nccl-flat
fi
finish
