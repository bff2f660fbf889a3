#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Direct messages between ranks on two or three pretended hosts with MPI between them: a mismatch is
# an error on both ranks, and the next call works; see hosts.sh. In other cases at most one piece is
# in flight, or one rank is in a collective call, which ends the communicator.
set -u
. "$(dirname "$0")/common.sh"

program=tests/hosts/messages_check

# on CASE A B [C]: runs A, B and C ranks on hosts a, b and c
on()
{
    what="$program $1 on hosts with $*"
    a="-np $2 env TUTTI_HOST_ID=a $program $1"
    b="-np $3 env TUTTI_HOST_ID=b $program $1"
    if [ $# -eq 4 ]; then
        launch $a : $b : -np "$4" env TUTTI_HOST_ID=c $program "$1"
        passed $(($2 + $3 + $4)) "on 3 hosts: .* passed"
    else
        launch $a : $b
        passed $(($2 + $3)) "on 2 hosts: .* passed"
    fi
}

# Each mismatch is an error on two ranks. These errors are not logged here.
export TUTTI_TRANSPORT=mpi TUTTI_LOG=none
on misfits 1 1
on misfits 2 1
on misfits 1 1 1
export TUTTI_CREDITS=1
on misfits 1 1
on misfits 1 1 1
unset TUTTI_CREDITS
# MPI is not finalized when a communicator has ended, so mpirun's status does not matter.
for n in 3 4; do
    [ "$mpi" = openmpi ] || continue
    what="$program collective $n"
    launch --enable-recovery -np 1 env TUTTI_HOST_ID=a $program collective $n : \
        -np 1 env TUTTI_HOST_ID=b $program collective $n
    [ "$status" -eq 124 ] || status=0
    passed 2 "messages_check passed"
done

test $errors -eq 0
