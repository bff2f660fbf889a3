#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# What the trainer prints and writes, on small data: plain lines into a file, a bar that fits the
# terminal, metrics and step logs, the accuracy as the last line. One rank, no launcher.
set -u

. "${0%/*}/common.sh"
need_trainer

out=$work/out
log=$work/log
small "$work/data"

# train ARGUMENT...: must end well, and with the accuracy
train() {
    timeout --kill-after=5 60 "$trainer" --data "$work/data" "$@" >"$out" 2>"$log"
    status=$?
    if [ "$status" -ne 0 ] || [ -s "$log" ]; then
        wrong "$* ended with $status" "$out" "$log"
    fi
    if ! tail -n 1 "$out" | grep -q 'test accuracy [01]\.[0-9][0-9][0-9][0-9]$'; then
        wrong "$*: the last line is not the accuracy" "$out"
    fi
}

escape=$(printf '\033')

train --epochs 3
if grep -q "$escape" "$out" || [ "$(grep -c '^epoch [1-3]/3  loss ' "$out")" -ne 3 ]; then
    wrong 'not one plain line per epoch' "$out"
fi

train --epochs 2 --batch 1 --progress bar
if ! grep -q "$escape" "$out"; then
    wrong 'no bar' "$out"
fi
if tr '\r' '\n' <"$out" | sed "s/$escape\[K//" | grep '[%]  loss' | grep -q '.\{80\}'; then
    wrong 'the bar is wider than a terminal' "$out"
fi

train --epochs 3 --batch 7 --steps 7 --metrics "$work/metrics" --log-steps "$work/steps"
if [ "$(grep -c '^{"epoch": [123], "train_loss": [0-9.]*, .*}$' "$work/metrics")" -ne 3 ]; then
    wrong 'not one line of JSON per epoch' "$work/metrics"
fi
if [ "$(grep -c '^[1-7] [0-9]*\.[0-9]\{9\}$' "$work/steps")" -ne 7 ]; then
    wrong 'not one line per step' "$work/steps"
fi

# other models, schedules and ways to write an option
train --hidden none --epochs=1 --schedule=constant
train --hidden 3,1,2 --momentum 0 --weight-decay 0 --warmup 0 --threads 2 --seed 9 --digest
if ! grep -q '^digest of rank 0: [0-9a-f]\{16\}$' "$out"; then
    wrong 'no digest' "$out"
fi

# gzipped or not is the same
train --digest
cp "$out" "$work/mixed"
gunzip -q "$work"/data/*.gz
train --digest
grep digest "$work/mixed" >"$work/mixed.digest"
grep digest "$out" | cmp -s - "$work/mixed.digest" || wrong 'other digest without gzip' "$out"

if ! "$trainer" --help >"$out" 2>&1 || ! grep -q '^  --batch N .*\[128\]$' "$out"; then
    wrong 'no help' "$out"
fi

# what cannot be written is an error
if test -c /dev/full; then
    if "$trainer" --data "$work/data" --epochs 1 >/dev/full 2>"$log"; then
        wrong 'a full disk goes unnoticed' "$log"
    fi
    if ! grep -q '^example_train: stdout: No space left' "$log" || [ "$(wc -l <"$log")" -ne 1 ]; then
        wrong 'not said of stdout' "$log"
    fi
    for option in --metrics --log-steps; do
        if "$trainer" --data "$work/data" --epochs 1 $option /dev/full >"$out" 2>"$log"; then
            wrong "a full disk goes unnoticed: $option" "$log"
        fi
        if ! grep -q "^example_train: $option /dev/full: No space left" "$log" ||
            [ "$(wc -l <"$log")" -ne 1 ]; then
            wrong "not said of $option" "$log"
        fi
    done
fi

[ "$errors" -eq 0 ]
