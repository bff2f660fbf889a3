#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# One of three ranks is killed while they train. The others end soon, each with one line that
# reports the killed rank. The test has no launcher, because a launcher would itself kill the other
# ranks.
set -u

. "${0%/*}/common.sh"
need_trainer
small "$work/data"
export TUTTI_SIZE=3 TUTTI_TIMEOUT=60 TUTTI_LOG=none

# start RANK ARGUMENT...: starts a rank in the background, with output for each epoch of 20 steps
start() {
    rank=$1
    shift
    TUTTI_RANK=$rank "$trainer" --data "$work/data" --batch 1 --progress lines "$@" \
        >"$work/out.$rank" 2>"$work/log.$rank" &
}

# first a run in which no rank is lost; with sanitizers, this run of several ranks must not leak
# memory
export TUTTI_BOOT="local:trainer-${work##*/}"
start 0 --epochs 3
zero=$!
start 1 --epochs 3
one=$!
start 2 --epochs 3
two=$!
for pid in $zero $one $two; do
    wait $pid || wrong "a rank ended with $?" "$work/log.0" "$work/log.1" "$work/log.2"
done

for victim in 0 1 2; do
    export TUTTI_BOOT="local:trainer-${work##*/}-$victim"
    rm -f "$work"/out.* # otherwise the output of an earlier rank 0 could be found below
    start 0 --epochs 100000
    zero=$!
    start 1 --epochs 100000
    one=$!
    start 2 --epochs 100000
    two=$!
    tries=0
    while ! grep -qs '^epoch 3/' "$work/out.0" && [ "$tries" -lt 1200 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
    [ "$tries" -lt 1200 ] || wrong "no third epoch" "$work/log.0"
    case $victim in
    0) kill -9 $zero ;;
    1) kill -9 $one ;;
    2) kill -9 $two ;;
    esac

    rank=0
    for pid in $zero $one $two; do
        wait $pid
        status=$?
        log=$work/log.$rank
        if [ "$rank" -ne "$victim" ] && {
            [ "$status" -ne 1 ] || [ "$(wc -l <"$log")" -ne 1 ] ||
                ! grep -q "^example_train: rank $rank: .*rank $victim was lost" "$log"
        }; then
            wrong "rank $victim was killed, rank $rank ended with $status" "$log"
        fi
        rank=$((rank + 1))
    done
done

[ "$errors" -eq 0 ]
