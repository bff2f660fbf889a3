#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Groups under mpirun: on one host, and with MPI between hosts, where all groups share one MPI
# communicator. In further cases a rank ends a group, or a rank is killed in a group.
set -u
. "$(dirname "$0")/common.sh"

program=tests/hosts/hosts_check

counts="1 3 4"
victims="0 3"
is_long "1 and 4 ranks on one host, and one of two killed ranks" || { counts=3 victims=3; }
for ranks in $counts; do
    what="groups of $ranks ranks"
    launch -np $ranks $program groups 3
    passed $ranks "groups passed"
done
export TUTTI_TRANSPORT=mpi
what="groups of 2 + 2"
launch -np 2 env TUTTI_HOST_ID=a $program groups 5 : -np 2 env TUTTI_HOST_ID=b $program groups 5
passed 4 "on 2 hosts: groups passed"
what="groups of 1 + 2 + 2"
launch -np 1 env TUTTI_HOST_ID=a $program groups 3 : \
    -np 2 env TUTTI_HOST_ID=b $program groups 3 : -np 2 env TUTTI_HOST_ID=c $program groups 3
passed 5 "on 3 hosts: groups passed"
what="one aborted"
launch -np 2 env TUTTI_HOST_ID=a $program aborted : -np 2 env TUTTI_HOST_ID=b $program aborted
passed 4 "on 2 hosts: aborted passed"

[ "$mpi" = openmpi ] || exit $errors
for victim in $victims; do
    what="rank $victim of 2 + 2 killed"
    launch --enable-recovery -np 2 env TUTTI_HOST_ID=a $program groupkilled $victim : \
        -np 2 env TUTTI_HOST_ID=b $program groupkilled $victim
    lines=$(grep -c "groupkilled passed" "$log")
    if [ "$status" -eq 124 ] || [ "$lines" -ne 3 ]; then
        wrong "$what: status $status, $lines of 3 ranks passed"
    fi
done

test $errors -eq 0
