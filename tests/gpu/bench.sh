#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The bench programs on a real device must report right results of Tutti and NCCL. Runs
# multi/bench/bench_device.sh and bench_device_lists.sh, and then cases without a launcher.
set -u
. "$srcdir/tests/gpu/common.sh"
need_device

# For the pretend device these two scripts are tests of their own.
if [ "$device" != pretend ] && [ "$nccl" = 1 ]; then
    expect sh "$srcdir/tests/multi/bench/bench_device.sh"
    expect sh "$srcdir/tests/multi/bench/bench_device_lists.sh"
fi

# right N HOSTS COMMAND...: runs the command (see ranks); all rows must report right results.
right()
{
    ranks "$@" >"$work/out" 2>&1
    status=$?
    if [ $status -ne 0 ] || ! grep -qE ' Pass( |$)' "$work/out" || grep -q ' Fail' "$work/out"; then
        cat "$work/out"
        wrong "$*: status $status"
    fi
}

flags="-d $device -c -m 8:64K -i 4 -x 1 --rounds 2"
peers=
[ "$nccl" = 0 ] || peers="--peer nccl"
right 1 one bench/tutti_allreduce $flags $peers
right 2 apart bench/tutti_allreduce $flags --peer async
right 4 apart bench/tutti_allgather $flags
lists="-d $device -c -x 0 --rounds 2 --scale 1000"
right 2 apart bench/tutti_gradients $lists --alone
right "$full" one bench/tutti_allreduce $flags $peers
[ "$nccl" = 0 ] || right "$full" one bench/tutti_gradients $lists
expect bench/tutti_pack -d "$device" -c --rounds 3 -i 2 --scale 100
finish
