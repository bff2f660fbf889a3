#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# In tutti_init under mpirun, a rank is killed before its k-th call that uses a socket. This is done
# for every existing k. The launcher ends the job, so no rank waits for the killed rank until its
# own deadline. For ranks without a launcher, see tests/fault/starting.
set -u
. "$(dirname "$0")/common.sh"

program=tests/hosts/starting_check

[ "$mpi" = openmpi ] || skip "only the messages of Open MPI's mpirun are known"
# This is far beyond the time limit of a job in this script.
export TUTTI_TIMEOUT=1000

stride=1
is_long "most places" || stride=16
for hosts in "a a a" "a a b" "a b c"; do
    set -- $hosts
    places=0
    for victim in 0 1 2; do
        place=1
        while :; do
            what="hosts $hosts, rank $victim killed at $place"
            # If a rank was killed, Open MPI's status is 137. If it is 124, `timeout` has ended the
            # job.
            timeout 60 $mpirun -np 1 env TUTTI_HOST_ID=$1 $program $victim $place : \
                -np 1 env TUTTI_HOST_ID=$2 $program $victim $place : \
                -np 1 env TUTTI_HOST_ID=$3 $program $victim $place >"$log" 2>&1
            status=$?
            case $status in
            0) break ;;
            137) ;;
            *)
                # Another status is right only if a survivor was faster than mpirun, and has
                # reported the victim.
                if ! grep -q "^rank [0-2]: .*rank $victim" "$log"; then
                    wrong "$what: status $status"
                    break
                fi
                ;;
            esac
            places=$((places + 1))
            place=$((place + stride))
        done
        [ "$status" -ne 0 ] || passed 3 "of 3: started"
    done
    echo "hosts $hosts: $places places"
    [ $places -ge 3 ] || wrong "hosts $hosts: only $places places"
done

# With --enable-recovery the launcher does not end the other ranks, and MPI does not report the
# death to them. Each survivor ends with an error that names the victim, in MPI's exchanges and in
# waits at a socket. Inside MPI_Init this is not possible: see docs/failures.md.
stride=1
is_long "most of these places" || stride=16
places=0
for victim in 0 1 2; do
    place=1
    while :; do
        what="--enable-recovery, rank $victim killed at $place after MPI_Init"
        timeout --kill-after=5 60 $mpirun --enable-recovery \
            -np 2 env TUTTI_HOST_ID=a $program $victim +$place : \
            -np 1 env TUTTI_HOST_ID=b $program $victim +$place >"$log" 2>&1
        status=$?
        grep -q "^rank [0-2] of 3: started" "$log" && break
        for rank in 0 1 2; do
            [ $rank -eq $victim ] ||
                grep -q "^rank $rank: .*ranks\{0,1\} .*$victim.* ended while ranks met" "$log" ||
                wrong "$what: status $status, rank $rank does not name rank $victim"
        done
        [ $errors -eq 0 ] || break
        places=$((places + 1))
        place=$((place + stride))
    done
done
echo "--enable-recovery: $places places"
[ $places -ge 3 ] || wrong "--enable-recovery: only $places places"

test $errors -eq 0
