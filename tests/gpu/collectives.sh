#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# All calls on device memory through the library, on a real device: direct, asynchronous, and in
# streams; with one rank, with one rank per GPU (but at least two), and with hosts that share a GPU.
set -u
. "$srcdir/tests/gpu/common.sh"
need_device

# in_streams N HOSTS: runs tests/gpu/stream. If there is NCCL, no rank may report that it has no
# NCCL.
in_streams()
{
    expect ranks "$@" tests/gpu/stream
    [ "$nccl" = 0 ] || ! grep 'no NCCL' "$work"/rank.* || wrong "$* in streams, without NCCL"
}

expect tests/gpu/direct
expect tests/gpu/async
export TUTTI_DEVICE="$device"
in_streams 1 one
in_streams 2 apart
in_streams "$full" one
if [ "$nccl" = 1 ]; then
    spread=1
    export TUTTI_ALGORITHM=allreduce:nccl-flat
    in_streams "$full" apart
fi
finish
