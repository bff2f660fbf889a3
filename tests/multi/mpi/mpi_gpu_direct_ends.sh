#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Messages between pretended hosts from and to device memory, over a real MPI. With
# TUTTI_GPU_DIRECT=0, with a rank whose MPI refuses device memory, and with an MPI that reports no
# support, the data pass through host memory. Also an MPI that waits for the device, and a rank that
# dies.
set -u
. "$srcdir/tests/multi/mpi/mpi_gpu_direct_common.sh"

waits="aabb aaabb aaabbb"
few=
if ! is_long "two of three placings with an MPI that waits, and most calls through host memory"; then
    waits=aaabbb
    few=0
fi

TUTTI_GPU_DIRECT=0 works aabb "$shim" staged "through host memory: TUTTI_GPU_DIRECT is 0" $few
TUTTI_TEST_REFUSES=2 works aabb "$shim" staged "through host memory: rank 2 has no transport" $few
works aabb '' staged "through host memory: mpi: this MPI does not report that it accepts pretend memory" $few

# An MPI that waits for the device whenever it gets device memory. At that moment NCCL's work is on
# the device, and waits for other ranks. The test must reach this state. It must still end well,
# because all ranks of the host have already made each launch that the device waits for. Suppose
# NCCL were called before all ranks of the host have reached the call. Then two hosts of three ranks
# would hang: a rank waits in MPI, in a lane's message, for another lane's launch. A neighbour must
# make that launch, but this neighbour waits for a message of a rank that waits in MPI in the same
# way.
export TUTTI_TEST_WAITS=1
for hosts in $waits; do
    TUTTI_ALGORITHM=allreduce:hierarchical/recursive_doubling TUTTI_FUSION_BYTES=1K \
        works $hosts "$shim" direct direct 60
    grep -q '^rank .* [1-9][0-9]* waits' "$log" || wrong "hosts $hosts: MPI met no work of NCCL"
done
unset TUTTI_TEST_WAITS

# Rank 1 is killed. A message may arrive for an abandoned receive.
recovers=--enable-recovery
export TUTTI_COMPARE=0 # otherwise the comparison reports the death first
job abc "$shim" dies
[ "$(grep -c '^rank [02]: [0-9]* late' "$log")" -eq 2 ] || wrong "dies: status $status"
export TUTTI_TEST_NO_CANCEL=1
for case in dies left; do
    job abc "$shim" $case
    [ "$(grep -c '^rank [02]: [1-9][0-9]* late' "$log")" -eq 2 ] || wrong "$case: status $status"
done

finish
