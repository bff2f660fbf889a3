#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Ranks that meet by env:// on pretended hosts, with UCX between the hosts: all collectives,
# mismatches, groups, killed ranks, the choice of the transport, and errors without one.
set -u

. "$srcdir/tests/long.sh"
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
export TUTTI_TIMEOUT=60 TUTTI_TRANSPORT=ucx

errors=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# on HOSTS PROGRAM...: starts the program with a rank for each letter of HOSTS, which names the
# rank's host; sets $ranks. Rank 0 takes a free port from the test's own range.
on()
{
    hosts=$1
    shift
    ranks=${#hosts}
    port=$((20000 + ($$ * 7 + errors) % 10000))
    pids=
    rank=0
    while [ $rank -lt "$ranks" ]; do
        host=$(printf %s "$hosts" | cut -c $((rank + 1)))
        RANK=$rank WORLD_SIZE=$ranks LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$ranks \
            MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TUTTI_HOST_ID=$host \
            timeout --kill-after=5 120 "$@" >"$work/$rank" 2>&1 &
        pids="$pids $!"
        rank=$((rank + 1))
    done
    for pid in $pids; do
        wait $pid
    done
    what="$* on $hosts"
}

# passed N PATTERN: N ranks must have printed a line that matches.
passed()
{
    lines=$(cat "$work"/[0-9]* | grep -c -e "$2")
    if [ "$lines" -ne "$1" ]; then
        echo "FAILED: $what: $lines of $1 ranks passed"
        tail -n 20 "$work"/[0-9]*
        errors=$((errors + 1))
    fi
    rm -f "$work"/[0-9]*
}

checks=tests/hosts
# Without the module, or with a setting that needs MPI, all ranks report what to do.
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
TUTTI_LOG=info on aab $checks/hosts_check data
passed 3 "messages between hosts: ucx"
on aabb $checks/hosts_check groups 3
passed 4 "groups passed"
for victim in 0 1 3; do
    TUTTI_LOG=none on aabb $checks/hosts_check killed $victim
    passed 3 "killed passed"
done
TUTTI_LOG=none on abc $checks/hosts_check exited 1
passed 2 "exited passed"
# The old name of the setting, with a warning by one rank.
TUTTI_TRANSPORT='' TUTTI_XPORT=ucx on ab $checks/hosts_check data
passed 1 "TUTTI_XPORT is the old name of TUTTI_TRANSPORT"

test $errors -eq 0
