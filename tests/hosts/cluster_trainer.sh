#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The trainer on the hosts of a cluster, over each transport: its gradients cross the links, and its
# checkpoint is equal, bit by bit, to that of the same number of ranks on pretended hosts.
set -u

. "${0%/*}/../trainer/common.sh"
need_trainer
need_mpirun
cluster=${0%/*}/cluster.sh
"$cluster" check || exit
varied "$work/data"
export TUTTI_TIMEOUT=60 TUTTI_LOG=info

# Of the gradients of 64 x 200 + 200 x 10 weights in float32, for 16 steps, at least half crosses
# each link.
arguments="--data $work/data --batch 5 --hidden 200 --epochs 4 --overwrite"
least=400000

# used TRANSPORT RANKS: so many ranks, and no others, must have reported this transport between hosts
used()
{
    sed -n 's/.*messages between hosts: //p' "$work/out" >"$work/used"
    [ "$(grep -c "^$1\$" "$work/used")" -eq "$2" ] && [ "$(wc -l <"$work/used")" -eq "$2" ] ||
        wrong "hosts with $places: not $2 ranks with $1" "$work/used" "$work/out"
}

# trained TRANSPORT PLACES: trains on a cluster and on pretended hosts, and compares the checkpoints.
# TRANSPORT: a value of TUTTI_TRANSPORT. With auto, the ranks may use UCX or MPI.
trained()
{
    export TUTTI_TRANSPORT=$1
    places=$2
    rm -f "$work/real" "$work/pretended"
    by_mpirun "$work/out" "$work/out" timeout --kill-after=5 100 "$cluster" run --pin \
        --counters "$work/counters" --per-host "$places" "$trainer" $arguments \
        --checkpoint "$work/real"
    [ $status -eq 0 ] || wrong "hosts with $places: status $status" "$work/out"
    awk -v least=$least '$3 < least || $5 < least { short = 1 } END { exit short || NR == 0 }' \
        "$work/counters" || wrong "hosts with $places: few bytes crossed the links" "$work/counters"
    chosen=$TUTTI_TRANSPORT
    [ $chosen != auto ] || chosen=$(sed -n 's/.*transport auto: \([a-z]*\).*/\1/p' "$work/out")
    used "$chosen" $(($(echo "$places" | tr , +)))
    set --
    host=0
    for place in $(echo "$places" | tr , ' '); do
        host=$((host + 1))
        set -- "$@" -np "$place" env TUTTI_HOST_ID=$host "$trainer" $arguments \
            --checkpoint "$work/pretended" :
    done
    by_mpirun "$work/out" "$work/out" timeout --kill-after=5 100 $mpirun "$@"
    [ $status -eq 0 ] || wrong "pretended hosts with $places: status $status" "$work/out"
    cmp "$work/real" "$work/pretended" || wrong "hosts with $places are not like pretended ones"
}

trained mpi 2,2
if is_long "two of three placings, UCX and auto"; then
    trained mpi 3,1
    trained mpi 1,1,1
    transports=auto
    ! test -e "$TUTTI_MODULE_DIR/ucx.so" || transports="ucx auto"
    for transport in $transports; do
        trained $transport 2,2
        trained $transport 3,1
        trained $transport 1,1,1
    done
fi

[ "$errors" -eq 0 ]
