#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Ctrl-C on a terminal, with a launcher and without, and SIGTERM to one or all of several ranks: one
# line reports the position of the run, the cursor is left at the beginning of an empty line, and
# the files are complete.
set -u

. "${0%/*}/common.sh"
need_trainer
terminal=${TERMINAL:-./tests/trainer/terminal}
varied "$work/data"
export TUTTI_TIMEOUT=60
endless="--data $work/data --batch 10 --hidden 6 --schedule constant --epochs 100000"

out=$work/out
go=$work/go
escape=$(printf '\033')

# wait_for PATTERN FILE: waits until a line of the file matches, for at most five minutes
wait_for() {
    tries=0
    until grep -qs "$1" "$2" || [ "$tries" -ge 3000 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
}

# screen: prints the final state of the terminal after the output $out
screen() {
    sed -e 's/\r$//' -e "s/.*\r$escape\[K//" "$out"
}

# judge NAME PATTERN: the screen must have one line "example_train: interrupted in epoch PATTERN",
# no other message of the trainer or Tutti, and no incomplete line at its end. NAME is for the error
# message
judge() {
    screen >"$work/screen"
    if ! grep -q "^\(\^C\)\{0,1\}example_train: interrupted in epoch $2\$" "$work/screen" ||
        [ "$(grep -c 'example_train\|tutti\[' "$work/screen")" -ne 1 ] ||
        [ "$(tail -c 1 "$out" | od -A n -t x1)" != ' 0a' ]; then
        tail -n 3 "$work/screen" >"$work/last"
        wrong "$1: not one line, '$2'" "$work/end" "$work/last"
    fi
}

# press PATTERN COMMAND...: runs COMMAND and presses Ctrl-C when the terminal shows PATTERN;
# $work/end then has how COMMAND ended, such as 'exit 130'
press() {
    pattern=$1
    shift
    rm -f "$out"
    "$terminal" "$out" "$go" "$@" >"$work/end" &
    pressing=$!
    wait_for "$pattern" "$out"
    : >"$go"
    wait $pressing || wrong 'no terminal' "$work/end"
    rm -f "$go"
}

# one rank: the checkpoint and the log of steps are complete, and a run resumes from them
press 'epoch 3/' "$trainer" $endless --checkpoint "$work/saved" --log-steps "$work/steps"
[ "$(cat "$work/end")" = 'exit 130' ] || wrong 'one rank: its status' "$work/end"
resumes='; --resume goes on from there'
judge 'one rank' \
    "[0-9]*/100000, after step [0-9]* of 500000; $work/saved has step [0-9]*[05]$resumes"
grep -q "^$(sed -n 's/.*after step \([0-9]*\) of.*/\1/p' "$work/screen") " "$work/steps" ||
    wrong 'the log of steps is not whole' "$work/screen"
saved=$(sed -n 's/.* has step \([0-9]*\);.*/\1/p' "$work/screen")
timeout 60 "$trainer" $endless --checkpoint "$work/saved" --resume --steps "$saved" >"$work/log" 2>&1 ||
    wrong 'not resumed' "$work/log"

press 'epoch 3/' "$trainer" $endless --progress lines
[ "$(cat "$work/end")" = 'exit 130' ] || wrong 'lines: its status' "$work/end"
judge lines '[0-9]*/100000, after step [0-9]* of 500000; nothing was saved'

# a second Ctrl-C ends the trainer at once, in any wait; here the trainer waits for a reader of its
# metrics
mkfifo "$work/fifo"
rm -f "$work/end"
"$terminal" "$out" "$go" "$trainer" $endless --metrics "$work/fifo" >"$work/end" &
pressing=$!
tries=0
while [ ! -s "$work/end" ] && [ "$tries" -lt 1200 ]; do
    tries=$((tries + 1))
    : >"$go"
    sleep 0.1
done
wait $pressing
rm -f "$go"
[ "$(cat "$work/end")" = 'signal 2' ] || wrong 'a second Ctrl-C' "$work/end" "$out"

# start NAME RANKS: starts RANKS ranks, without a launcher; a job in the background ignores SIGINT
start() {
    rm -f "$work"/out.* # otherwise wait_for could find the output of an earlier rank 0
    pids=
    rank=0
    while [ "$rank" -lt "$2" ]; do
        TUTTI_BOOT="local:interrupt-$1-${work##*/}" TUTTI_SIZE=$2 TUTTI_RANK=$rank \
            "$trainer" $endless >"$work/out.$rank" 2>"$work/log.$rank" &
        pids="$pids $!"
        rank=$((rank + 1))
    done
    wait_for '^epoch 3/' "$work/out.0"
}

# expect NAME STATUS...: the ranks of `start` must end with these statuses, and no rank may write to
# stderr
expect() {
    name=$1
    shift
    rank=0
    for pid in $pids; do
        wait $pid
        status=$?
        [ "$status" -eq "$1" ] || wrong "$name: rank $rank ended with $status" "$work/log.$rank"
        shift
        [ ! -s "$work/log.$rank" ] ||
            wrong "$name: rank $rank says something" "$work/log.$rank"
        rank=$((rank + 1))
    done
    cat "$work/out.0" "$work/out.1" "$work/out.2" >"$out"
    [ "$(grep -c '^example_train: interrupted in epoch .* nothing was saved$' "$out")" -eq 1 ] ||
        wrong "$name: not one line of rank 0"
}

start all 3
kill -TERM $pids
expect 'SIGTERM to all ranks' 143 143 143
for victim in 1 3; do
    start "$victim" 3
    set -- 1 1 1
    case $victim in
    1) set -- 143 1 1 ;;
    3) set -- 1 1 143 ;;
    esac
    kill -TERM $(echo $pids | cut -d ' ' -f $victim)
    expect "SIGTERM to the rank number $victim" "$@"
done

# here mpirun has the terminal. Open MPI sends SIGTERM after this many seconds, and SIGKILL after
# the same time again. During this time mpirun does not read the ranks' output, so in this test the
# ranks write little
need_mpirun
seconds=10
! is_long "20 more seconds for the checkpoint" || seconds=30
grace=
case $mpirun in
*--mca*) grace="--mca odls_base_sigkill_timeout" ;;
esac
varied "$work/data" 250
slow="--data $work/data --batch 1 --hidden 1024,1024 --schedule constant --epochs 100000"
press '^epoch 1/' $mpirun ${grace:+$grace $seconds} -np 2 "$trainer" $slow --progress lines \
    --checkpoint "$work/saved.2"
judge mpirun \
    "[0-9]*/100000, after step [0-9]* of 25000000; $work/saved.2 has step [0-9]*[05]0$resumes"
# a bar is too much output for a longer time
press '.epoch 1/' $mpirun ${grace:+$grace 10} -np 2 "$trainer" $slow
judge 'mpirun with a bar' '[0-9]*/100000, after step [0-9]* of 25000000; nothing was saved'

[ "$errors" -eq 0 ]
