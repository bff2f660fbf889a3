#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Ranks without MPI on the hosts of a cluster: they meet by env://, UCX carries the data, and the
# data cross the links. The trainer's checkpoint is equal, bit by bit, to that on pretended hosts.
set -u
. "${0%/*}/../trainer/common.sh"
cluster=${0%/*}/cluster.sh
"$cluster" check || exit
if ! test -e "$TUTTI_MODULE_DIR/ucx.so"; then
    echo "no module for UCX"
    exit 77
fi
export TUTTI_TIMEOUT=60
counters=$work/counters

# on PLACES BYTES COMMAND...: runs the command on a cluster; at least BYTES must cross each link
on()
{
    places=$1
    least=$2
    shift 2
    rm -f "$counters"
    timeout --kill-after=5 100 "$cluster" run --pin --counters "$counters" --launcher env \
        --per-host "$places" "$@" >"$work/out" 2>&1 || wrong "$* on $places: status $?" "$work/out"
    awk -v least="$least" '$3 < least || $5 < least { short = 1 } END { exit short || NR == 0 }' \
        "$counters" || wrong "$* on $places: few bytes crossed the links" "$counters"
}

check()
{
    on "$@"
    ranks=$(($(echo "$1" | tr , +)))
    [ "$(grep -c passed "$work/out")" -eq $ranks ] || wrong "$*" "$work/out"
}

# said N WORDS: exactly N lines of the output must have these words
said()
{
    [ "$(grep -c -e "$2" "$work/out")" -eq "$1" ] || wrong "not $1 lines with '$2'" "$work/out"
}

# trained PLACES HOSTS: trains on a cluster and on pretended hosts, and compares the checkpoints.
# HOSTS has a letter for each rank: its pretended host
trained()
{
    rm -f "$work/real" "$work/pretended"
    arguments="--data $work/data --batch 5 --hidden 200 --epochs 2"
    export TUTTI_LOG=info
    on "$1" 200000 "$trainer" $arguments --checkpoint "$work/real"
    unset TUTTI_LOG
    said ${#2} "messages between hosts: ucx\$"
    # A rank that has no part of the data sends nothing, and so has no connection.
    lines=$(grep -c "ucx: messages to rank [0-9] use tcp/[^ ]*\$" "$work/out")
    [ "$lines" -ge 2 ] && [ "$lines" -eq "$(grep -c "ucx: messages to rank" "$work/out")" ] ||
        wrong "$lines connections over tcp" "$work/out"
    rank=0
    pids=
    while [ $rank -lt ${#2} ]; do
        RANK=$rank WORLD_SIZE=${#2} LOCAL_RANK=$rank LOCAL_WORLD_SIZE=${#2} MASTER_ADDR=127.0.0.1 \
            MASTER_PORT=$((21000 + $$ % 10000)) \
            TUTTI_HOST_ID=$(printf %s "$2" | cut -c $((rank + 1))) TUTTI_TRANSPORT=ucx \
            timeout 100 "$trainer" $arguments --checkpoint "$work/pretended" \
            >"$work/out$rank" 2>&1 &
        pids="$pids $!"
        rank=$((rank + 1))
    done
    for pid in $pids; do
        wait $pid || wrong "pretended hosts $2" "$work/out0"
    done
    cmp "$work/real" "$work/pretended" || wrong "hosts with $1 are not like pretended ones"
}

# Rank 0 listens at an address that other hosts reach. It warns once if the job has no secret.
check 2,2 4000000 tests/hosts/collectives_check
said 1 "the job has no secret: any process that reaches port 29500 of this host can join it"
export TUTTI_JOB_SECRET=of-this-cluster
check 1,1,1 10000000 tests/hosts/hosts_check data
said 0 "has no secret"
unset TUTTI_JOB_SECRET
long=no
! is_long "three of five programs and placings, the trainer on three of four" || long=yes
if [ $long = yes ]; then
    check 3,1 4000000 tests/hosts/collectives_check
    check 1,1,1 700000 tests/hosts/messages_check
    check 2,2 40000000 tests/hosts/hosts_check groups 5
fi
if [ -n "${trainer:-}" ] && [ -x "$trainer" ]; then
    varied "$work/data"
    trained 2,1 aab
    if [ $long = yes ]; then
        trained 1,1,1 abc
        trained 2,2 aabb
        trained 3,1 aaab
    fi
fi

[ "$errors" -eq 0 ]
