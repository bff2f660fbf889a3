#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# One of two ranks is stopped while they train: the other rank warns after TUTTI_STALL_WARNING, and
# names the stopped rank. Training continues when the stopped rank continues.
set -u

. "${0%/*}/common.sh"
need_trainer
small "$work/data"
export TUTTI_SIZE=2 TUTTI_TIMEOUT=200 TUTTI_LOG=warn TUTTI_STALL_WARNING=1

start() {
    TUTTI_RANK=$1 "$trainer" --data "$work/data" --batch 1 --progress lines --epochs 100000 \
        >"$work/out.$1" 2>"$work/log.$1" &
}

# await WORDS FILE N: wait until FILE has WORDS on more than N lines
await() {
    tries=0
    # The file may not exist yet; then it has no such line.
    while [ "$(cat "$2" 2>/dev/null | grep -c "$1")" -le "$3" ] && [ "$tries" -lt 1000 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
    [ "$tries" -lt 1000 ] || wrong "no '$1' in ${2##*/}" "$work/log.0" "$work/log.1"
}

export TUTTI_BOOT="local:trainer-${work##*/}"
start 0
zero=$!
start 1
one=$!
await '^epoch' "$work/out.0" 0
for victim in 0 1; do
    pid=$one
    [ $victim -eq 1 ] || pid=$zero
    kill -STOP $pid
    await "rank $victim does not go on: its process $pid is stopped" "$work/log.$((1 - victim))" 0
    epochs=$(grep -c '^epoch' "$work/out.0")
    kill -CONT $pid
    await '^epoch' "$work/out.0" "$epochs"
done
kill $zero $one
wait

[ "$errors" -eq 0 ]
