#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# A rank under mpirun is killed with kill -9, or calls exit(0). With --enable-recovery the launcher
# does not end the other ranks, and they must end by themselves: on one host, and with MPI between
# hosts.
set -u
. "$(dirname "$0")/common.sh"

program=tests/hosts/hosts_check

[ "$mpi" = openmpi ] || skip "only Open MPI's mpirun lets ranks live on"

# survived N [CASE]: N ranks, all except one, must have passed, and mpirun must have ended by
# itself. Its status does not matter
survived()
{
    lines=$(grep -c "${2:-killed} passed" "$log")
    if [ "$status" -eq 124 ] || [ "$status" -eq 137 ] || [ "$lines" -ne "$1" ]; then
        wrong "$what: status $status, $lines of $1 ranks passed"
    fi
}

on_one="0 1 2"
on_two="0 1 3"
exits="0 1 2 0 1 2"
is_long "some victims of kill -9, and second runs of exit" ||
    { on_one="0 2" on_two="0 3" exits="0 1 2"; }
for victim in $on_one; do
    what="rank $victim of 3 on one host"
    launch --enable-recovery -np 3 $program killed $victim
    survived 2
done
export TUTTI_TRANSPORT=mpi
for victim in $on_two; do
    what="rank $victim of 2 + 2"
    launch --enable-recovery -np 2 env TUTTI_HOST_ID=a $program killed $victim : \
        -np 2 env TUTTI_HOST_ID=b $program killed $victim
    survived 3
done
for victim in $exits; do
    what="rank $victim of 1 + 1 + 1 calls exit"
    export TUTTI_FUSION_BYTES=0
    launch --enable-recovery -np 1 env TUTTI_HOST_ID=a $program exited $victim : \
        -np 1 env TUTTI_HOST_ID=b $program exited $victim : \
        -np 1 env TUTTI_HOST_ID=c $program exited $victim
    survived 2 exited
done

test $errors -eq 0
