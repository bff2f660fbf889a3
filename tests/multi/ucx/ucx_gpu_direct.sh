#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Messages between pretended hosts from and to device memory, over UCX, with ranks that meet by
# env://: each algorithm between hosts, hosts with equal and unequal numbers of ranks. If UCX does
# not accept device memory, the data pass through host memory, and the log has the reason. Also a
# rank that dies.
set -u
. "$srcdir/tests/multi/ucx/ucx_common.sh"

unset TUTTI_DEVICE_ID TUTTI_GPU_DIRECT TUTTI_ALGORITHM
program=tests/multi/device/gpu_direct
shim=$PWD/tests/multi/ucx/.libs/ucx_gpu_direct_shim.so
if ! test -e "$TUTTI_MODULE_DIR/ucx.so" || ! test -e "$shim"; then
    echo "no module for UCX, or no shim: $shim"
    exit 77
fi
# The shim is loaded first, before the sanitizer's library.
ASAN_OPTIONS="$ASAN_OPTIONS:verify_asan_link_order=0"
export TUTTI_TEST_PRETEND="$work/nccl"
export TUTTI_DEVICE=pretend TUTTI_LOG=info
export TUTTI_STAGE_BYTES=64K TUTTI_DEVICE_CHUNK_BYTES=8K TUTTI_FUSION_BYTES=64K

# job HOSTS ARGUMENT...: runs gpu_direct with the shim.
job()
{
    places=$1
    shift
    on "$places" env LD_PRELOAD="$shim" $program "$@"
}

# works HOSTS direct|staged WORDS [N]: the results must be correct, the data must go this way, and a
# line of the log must have WORDS.
works()
{
    job "$1" works "$2" ${4:-}
    passed ${#1} "^rank .* messages"
    passed 1 "device memory to other hosts: $3"
}

# Also a machine with an RDMA device that UCX cannot use.
LD_PRELOAD="$shim" tests/multi/ucx/ucx_module lent full || errors=$((errors + 1))

placings="aabb abc aaabb"
subs="recursive_doubling halving_doubling ring"
few=
if ! is_long "most placings of each algorithm, and most calls through host memory"; then
    placings=aaabb
    subs="recursive_doubling ring"
    few=0
fi
for sub in $subs; do
    for hosts in $placings; do
        TUTTI_ALGORITHM=allreduce:hierarchical/$sub works $hosts direct direct
    done
done
# The algorithm alternates between calls, so that GPU-direct channel ends get other slots.
TUTTI_ALGORITHM=allreduce:0-4k:hierarchical/ring,allreduce:4k-100M:hierarchical/halving_doubling \
    works aabbcd direct direct
[ -n "$few" ] || works abcd direct direct

TUTTI_GPU_DIRECT=0 works aabb staged "through host memory: TUTTI_GPU_DIRECT is 0" $few
TUTTI_TEST_REFUSES=2 works aabb staged "through host memory: rank 2 has no transport" $few
TUTTI_TEST_REFUSES=0 works aabb staged \
    "through host memory: ucx: this UCX does not support pretend memory: its module" $few
TUTTI_TEST_NO_RDMA=1 works aabb staged "through host memory: ucx: without an RDMA device" $few

# Rank 1 is killed. A message may arrive for a receive that could not be cancelled.
export TUTTI_COMPARE=0 # otherwise the comparison reports the death first
job abc dies
passed 2 "^rank [02]: [0-9]* late"
TUTTI_TEST_NO_CANCEL=1 job abc dies
passed 2 "^rank [02]: [1-9][0-9]* late"

test $errors -eq 0
