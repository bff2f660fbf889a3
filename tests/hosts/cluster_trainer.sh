#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The trainer on the hosts of a cluster: its gradients cross the links, and its checkpoint is equal,
# bit by bit, to that of the same number of ranks on pretended hosts.
set -u

. "${0%/*}/../trainer/common.sh"
need_trainer
need_mpirun
cluster=${0%/*}/cluster.sh
"$cluster" check || exit
varied "$work/data"
export TUTTI_TIMEOUT=30

# Of the gradients of 64 x 200 + 200 x 10 weights in float32, for 16 steps, at least half crosses
# each link.
arguments="--data $work/data --batch 5 --hidden 200 --epochs 4"
least=400000

# trained PLACES: trains on a cluster and on pretended hosts, and compares the checkpoints
trained()
{
    rm -f "$work/real" "$work/pretended"
    timeout --kill-after=5 100 "$cluster" run --pin --counters "$work/counters" --per-host "$1" \
        "$trainer" $arguments --checkpoint "$work/real" >"$work/out" 2>&1 ||
        wrong "hosts with $1: status $?" "$work/out"
    awk -v least=$least '$3 < least || $5 < least { short = 1 } END { exit short || NR == 0 }' \
        "$work/counters" || wrong "hosts with $1: few bytes crossed the links" "$work/counters"
    places=$1
    set --
    host=0
    for place in $(echo "$places" | tr , ' '); do
        host=$((host + 1))
        set -- "$@" -np "$place" env TUTTI_HOST_ID=$host "$trainer" $arguments \
            --checkpoint "$work/pretended" :
    done
    timeout --kill-after=5 100 $mpirun "$@" >"$work/out" 2>&1 ||
        wrong "pretended hosts with $places: status $?" "$work/out"
    cmp "$work/real" "$work/pretended" || wrong "hosts with $places are not like pretended ones"
}

TUTTI_TRANSPORT=mpi trained 2,2
if is_long "two of three placings, and UCX"; then
    trained 2,2
    trained 3,1
    trained 1,1,1
fi

[ "$errors" -eq 0 ]
