#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Ranks under mpirun on the hosts of a cluster, which share only links. Checks the results, and that
# the data crossed the links. The library finds the hosts itself. If no transport is given, it also
# selects the transport.
set -u
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/cluster_common.sh"

program=tests/hosts/hosts_check

# data PLACES [OPTION...]: runs all collectives. The results alone are 2 MB for each of 12 large
# calls, and at least half of these bytes come from another host
data()
{
    on "$@" $program data
    passed $ranks "of $ranks on $hosts hosts: data passed"
    crossed 10000000
}

# survived VICTIM: of 2 + 2 ranks, one is killed, and the others must report it.
survived()
{
    past_ucx "$log" run_killed $1
    [ $tries -lt 600 ] || wrong "rank $1 of 2,2 was killed"
}

# run_killed VICTIM: sets $tries, to 600 if the others did not report the killed rank. With
# --enable-recovery, Open MPI's mpirun lets the others run, but on several hosts mpirun does not end
# afterwards, with any program.
run_killed()
{
    : >"$log" # remove the output of the previous job
    "$cluster" run --pin --per-host 2,2 --mpirun --enable-recovery $program killed $1 \
        >"$log" 2>&1 &
    tries=0
    until [ "$(grep -c "killed passed" "$log")" -eq 3 ] || [ $tries -eq 600 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    kill $!
    wait $!
}

over mpi data 2,2
data 3,1
over mpi data 1,1,1
# By these figures the link carries many pieces during a round trip.
export TUTTI_LOG=info TUTTI_LINK_NS=1000000 TUTTI_CHUNK_BYTES=32K
data 2,2
grep -q 'allreduce of .*: hierarchical/.*, 3 streams, ' "$log" || wrong "no streams"
data 1,1,1
grep -q 'allreduce of .*, 3 streams, ' "$log" || wrong "no streams of three hosts"
unset TUTTI_LOG TUTTI_LINK_NS TUTTI_CHUNK_BYTES
if is_long "links with a rate and a delay, groups, killed ranks"; then
    data 2,2
    over mpi data 1,3
    data 2,1,2
    over mpi data 2,2 --rate 1gbit
    data 2,2 --rate 1gbit
    data 1,1,1 --rate 1gbit --delay 1ms
    export TUTTI_LOG=info TUTTI_LINK_MBPS=10000
    data 1,1 --delay 1ms
    grep -qE 'round trip between hosts [0-9]{4,} us \(measured\): pieces of 1048576 bytes' "$log" ||
        wrong "no measured round trip"
    unset TUTTI_LOG TUTTI_LINK_MBPS
    TUTTI_CHUNK_BYTES=32K TUTTI_CREDITS=1 data 2,1
    for places in 2,2 3,1 1,1,1; do
        over mpi on $places $program groups 5
        passed $ranks "on $hosts hosts: groups passed"
        on $places $program groups 5
        passed $ranks "on $hosts hosts: groups passed"
        crossed 40000000
    done
    for victim in 0 1 3; do
        over mpi survived $victim
        survived $victim
    done
fi

test $errors -eq 0
