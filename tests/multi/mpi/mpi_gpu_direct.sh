#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Messages between pretended hosts from and to device memory, over a real MPI: each algorithm
# between hosts, hosts with equal and unequal numbers of ranks. mpi_gpu_direct_ends.sh tests
# refusals, waits and deaths.
set -u
. "$srcdir/tests/multi/mpi/mpi_gpu_direct_common.sh"

places="aabb abc aaabb aabcc"
pairs="abc aabbcd"
is_long "three of four placings, one of two with an alternating algorithm" ||
    { places=aaabb pairs=aabbcd; }
for sub in recursive_doubling halving_doubling ring; do
    TUTTI_ALGORITHM=allreduce:hierarchical/$sub
    export TUTTI_ALGORITHM
    for hosts in $places; do
        works $hosts "$shim" direct direct
    done
done
# The algorithm alternates between calls, so that GPU-direct channel ends get other slots.
TUTTI_ALGORITHM=allreduce:0-4k:hierarchical/ring,allreduce:4k-100M:hierarchical/halving_doubling
for hosts in $pairs; do
    works $hosts "$shim" direct direct
done
unset TUTTI_ALGORITHM
works abcd "$shim" direct direct

finish
