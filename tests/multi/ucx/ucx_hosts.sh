#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Ranks that meet by env:// on pretended hosts, with UCX between the hosts: all collectives,
# mismatches, groups, killed ranks, the choice of the transport, and errors if there is no
# transport.
set -u

. "$srcdir/tests/multi/ucx/ucx_common.sh"

checks=tests/hosts
# Without the module, or with a setting that needs MPI, the errors of all ranks name the remedy.
TUTTI_MODULE_DIR=$work/none on ab $checks/hosts_check data
passed 2 "several hosts, and were started without MPI: install libtutti0-ucx on each host (that is \
tutti/ucx.so, with libucx0), or start the ranks with mpirun. ucx.so: .*cannot open"
TUTTI_TRANSPORT=mpi on ab $checks/hosts_check data
passed 2 "rank 1 is on another host, TUTTI_TRANSPORT is mpi, and the ranks were started without MPI: \
start them with mpirun; or unset TUTTI_TRANSPORT, and install libtutti0-ucx"

if ! test -e "$TUTTI_MODULE_DIR/ucx.so"; then
    echo "no module for UCX"
    test $errors -eq 0 || exit 1
    exit 77
fi
for hosts in ab aabb abab abc; do
    on $hosts $checks/collectives_check
    passed ${#hosts} "collectives passed"
    TUTTI_LOG=none on $hosts $checks/messages_check misfits
    passed ${#hosts} "messages_check passed"
done
TUTTI_LOG=none on aabb $checks/direct_check
passed 4 "direct_check passed"
UCX_TLS=tcp TUTTI_LOG=info on aab $checks/hosts_check data
passed 3 "messages between hosts: ucx"
# The first connection of each rank.
passed 3 "ucx: messages to rank [0-2] use tcp/[^ ]*$"
on aabb $checks/hosts_check groups 3
passed 4 "groups passed"
for victim in 0 1 3; do
    TUTTI_LOG=none on aabb $checks/hosts_check killed $victim
    passed 3 "killed passed"
done
TUTTI_LOG=none on abc $checks/hosts_check exited 1
passed 2 "exited passed"
# The ranks refuse different segments.
on ab sh -c '[ "$RANK" = 0 ] || export UCX_TCP_RX_SEG_SIZE=64k; exec "$0" data' $checks/hosts_check
passed 2 "UCX_TCP_RX_SEG_SIZE of rank 1 is not that of rank 0: set it on all ranks"
# The old name of the setting still works; one rank prints a warning.
TUTTI_TRANSPORT='' TUTTI_XPORT=ucx on ab $checks/hosts_check data
passed 1 "TUTTI_XPORT is the old name of TUTTI_TRANSPORT"

test $errors -eq 0
