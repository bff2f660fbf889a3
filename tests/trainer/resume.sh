#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# A run that is stopped and resumed ends with the same checkpoint, bit by bit, as an uninterrupted
# one: with one, two and three ranks, each model and each optimizer. The same is true after kill -9.
# The data are small, and there is no launcher.
set -u

. "${0%/*}/common.sh"
need_trainer
varied "$work/data"
export TUTTI_TIMEOUT=60
fake_gnuplot cat
PATH=$work/bin:$PATH

# train NAME RANKS ARGUMENT...: leaves rank 0's $work/NAME.out and .log; succeeds if all ranks exit
# with 0
train() {
    name=$1
    ranks=$2
    shift 2
    pids=
    rank=$ranks
    while [ "$rank" -gt 0 ]; do
        rank=$((rank - 1))
        TUTTI_BOOT="local:resume-${work##*/}" TUTTI_SIZE=$ranks TUTTI_RANK=$rank \
            timeout --kill-after=5 100 "$trainer" --data "$work/data" "$@" \
            >"$work/$name.out.$rank" 2>>"$work/$name.log" &
        pids="$pids $!"
    done
    result=0
    for pid in $pids; do
        wait "$pid" || result=1
    done
    mv "$work/$name.out.0" "$work/$name.out"
    return $result
}

# compare NAME STEP PLACE RANKS ARGUMENT...: compares an uninterrupted run of 4 epochs of 3 steps
# with a run that is stopped after STEP. The resumed run must report this step as PLACE
compare() {
    name=$1
    step=$2
    place=$3
    shift 3
    rm -f "$work/whole" "$work/parts"
    train "$name" "$@" --epochs 4 --checkpoint "$work/whole" &&
        train "$name" "$@" --epochs 4 --checkpoint "$work/parts" --steps $step ||
        wrong "$name" "$work/$name.log"
    if cmp -s "$work/whole" "$work/parts"; then
        wrong "$name: $step steps make the same as 12"
    fi
    train "$name" "$@" --epochs 4 --checkpoint "$work/parts" --resume --plot "$work/plot.svg" \
        --metrics "$work/metrics" || wrong "$name, resumed" "$work/$name.log"
    cmp "$work/whole" "$work/parts" || wrong "$name: resumed is not uninterrupted"
    if ! head -n 1 "$work/$name.out" | grep -q "after $place\$" ||
        [ "$(grep -c '^epoch [34]/4' "$work/$name.out")" -ne 2 ] ||
        grep -q '^epoch [12]/4' "$work/$name.out"; then
        wrong "$name: resumed is not epochs 3 and 4" "$work/$name.out"
    fi
}

# the three steps of an epoch have 20, 20 and 5 of the 45 images; the last step has a single batch
small="--batch 10 --accumulate 2 --hidden 6 --lr 0.1 --clip 2"
for ranks in 1 2 3; do
    for model in mlp 'cnn --channels 2,3'; do
        for optimizer in sgd adamw lars lamb; do
            compare "${model%% *}.$optimizer.$ranks" 7 'step 7' $ranks --model $model \
                --optimizer $optimizer $small
        done
    done
done
compare last 8 'step 8' 2 $small
compare between 6 'epoch 2' 2 $small

# a run that is stopped three times, within an epoch and at its end, and once before any step
rm "$work/parts"
train often 2 $small --epochs 4 --checkpoint "$work/parts" --steps 1 --log-steps "$work/steps"
for steps in 2 2 6 0; do
    train often 2 $small --epochs 4 --checkpoint "$work/parts" --steps $steps --resume \
        --log-steps "$work/steps" || wrong "often, $steps" "$work/often.log"
done
cmp "$work/whole" "$work/parts" || wrong 'stopped often is not uninterrupted'
[ "$(cut -d ' ' -f 1 "$work/steps" | tr '\n' ' ')" = '1 2 3 4 5 6 7 8 9 10 11 12 ' ] ||
    wrong 'not each step once' "$work/steps"

# trained longer than planned, with schedules that do not depend on the number of epochs
for schedule in constant 'step --decay-every 1'; do
    rm "$work/whole" "$work/parts"
    train longer 2 $small --schedule $schedule --epochs 4 --checkpoint "$work/whole" &&
        train longer 2 $small --schedule $schedule --epochs 2 --checkpoint "$work/parts" &&
        train longer 2 $small --schedule $schedule --epochs 4 --checkpoint "$work/parts" --resume ||
        wrong "longer, $schedule" "$work/longer.log"
    cmp "$work/whole" "$work/parts" || wrong "longer, $schedule: not uninterrupted"
done

# with --overwrite the file is replaced; an empty file, as mktemp makes it, is also replaced without
# --overwrite
cp "$work/parts" "$work/over"
train over 2 $small --epochs 1 --checkpoint "$work/over" --overwrite &&
    [ "$(epochs_of "$work/over")" -eq 1 ] || wrong 'not replaced' "$work/over.log"
: >"$work/empty"
train empty 2 $small --epochs 1 --checkpoint "$work/empty" || wrong 'empty' "$work/empty.log"
cmp "$work/over" "$work/empty" || wrong 'replaced is not written anew'

# a run resumed at its end makes no step, and prints the accuracy
cp "$work/parts" "$work/before"
train again 2 $small --schedule $schedule --epochs 4 --checkpoint "$work/parts" --resume ||
    wrong 'resumed at the end' "$work/again.log"
cmp "$work/before" "$work/parts" || wrong 'resumed at the end: changed'
tail -n 1 "$work/again.out" | grep -q '^test accuracy' || wrong 'no accuracy' "$work/again.out"
grep -Fqx "nothing to train: $work/parts is at step 12 already, the last of 4 epochs" \
    "$work/again.out" || wrong 'resumed at the end: not said' "$work/again.out"

# the same is true for a run that is already beyond its --steps
train beyond 2 $small --schedule $schedule --epochs 4 --checkpoint "$work/parts" --resume \
    --steps 2 || wrong 'resumed beyond --steps' "$work/beyond.log"
cmp "$work/before" "$work/parts" || wrong 'resumed beyond --steps: changed'
grep -Fqx "nothing to train: $work/parts is at step 12 already, --steps asks for 2" \
    "$work/beyond.out" || wrong 'resumed beyond --steps: not said' "$work/beyond.out"
! grep -q '^nothing to train' "$work/longer.out" || wrong 'steps left' "$work/longer.out"

# until_epoch N FILE: waits until a checkpoint has N epochs
until_epoch() {
    tries=0
    while [ "$(epochs_of "$2")" -lt "$1" ] && [ "$tries" -lt 1200 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
}

# killed while it trains and saves: the last saved checkpoint is complete
long="--model cnn --channels 2,3 --schedule constant $small"
"$trainer" --data "$work/data" $long --epochs 100000 --checkpoint "$work/killed" \
    >/dev/null 2>&1 &
victim=$!
until_epoch 20 "$work/killed"
kill -9 $victim
wait $victim 2>/dev/null
epochs=$(($(epochs_of "$work/killed") + 3))
train killed 1 $long --epochs $epochs --checkpoint "$work/killed" --resume ||
    wrong 'resumed after kill -9' "$work/killed.log"
train never 1 $long --epochs $epochs --checkpoint "$work/never" || wrong 'never' "$work/never.log"
cmp "$work/never" "$work/killed" || wrong 'resumed after kill -9 is not uninterrupted'

# if the disk disappears, all ranks end, with one line
mkdir "$work/disk"
train disk 2 $long --epochs 100000 --checkpoint "$work/disk/file" &
job=$!
until_epoch 3 "$work/disk/file"
mv "$work/disk" "$work/gone"
if wait $job; then
    wrong 'a checkpoint that cannot be written goes unnoticed'
fi
if [ "$(wc -l <"$work/disk.log")" -ne 1 ] ||
    ! grep -q "^example_train: rank 0: --checkpoint $work/disk/file.*: No such" "$work/disk.log"; then
    wrong 'a checkpoint that cannot be written is not said in one line' "$work/disk.log"
fi

[ "$errors" -eq 0 ]
