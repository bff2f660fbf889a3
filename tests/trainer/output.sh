#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The trainer's output and files, on small data: plain lines into a file, a progress bar that fits
# the terminal, metrics and step logs, the accuracy as the last line. One rank, no launcher.
set -u

. "${0%/*}/common.sh"
need_trainer

out=$work/out
log=$work/log
small "$work/data"

# train ARGUMENT...: runs the trainer, which must succeed, and print the accuracy
train() {
    timeout --kill-after=5 60 "$trainer" --data "$work/data" --batch 20 "$@" >"$out" 2>"$log"
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
if grep -q "$escape" "$out" || [ "$(grep -c '^epoch [1-3]/3  loss ' "$out")" -ne 3 ] ||
    grep -q '^stopped' "$out"; then
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
grep -Fqx 'stopped after step 7 of 9 (--steps)' "$out" || wrong 'the end by --steps' "$out"
if [ "$(grep -c '^{"epoch": [123], "train_loss": [0-9.]*, .*}$' "$work/metrics")" -ne 3 ]; then
    wrong 'not one line of JSON per epoch' "$work/metrics"
fi
if [ "$(grep -c '^[1-7] [0-9]*\.[0-9]\{9\}$' "$work/steps")" -ne 7 ]; then
    wrong 'not one line per step' "$work/steps"
fi

# other models, schedules and forms of an option
train --hidden none --epochs=1 --schedule=constant
train --hidden 3,1,2 --momentum 0 --weight-decay 0 --warmup 0 --threads 2 --seed 9 --digest
if ! grep -q '^digest of rank 0: [0-9a-f]\{16\}$' "$out"; then
    wrong 'no digest' "$out"
fi

# gradients are exchanged once for all accumulated batches. Each step has 3 of the 20 images, or 3 *
# 3, and exchanges four tensors and a loss
train --hidden 4 --epochs 1 --batch 3 --metrics "$work/metrics"
grep -q '"reductions": 35}$' "$work/metrics" || wrong 'not 7 steps' "$work/metrics"
train --hidden 4 --epochs 1 --batch 3 --accumulate 3 --metrics "$work/metrics"
grep -q '"reductions": 15}$' "$work/metrics" || wrong 'not 3 steps' "$work/metrics"

# a resumed run appends to its files
train --epochs 4 --schedule constant --checkpoint "$work/saved" --metrics "$work/metrics" \
    --log-steps "$work/steps" --steps 2
train --epochs 4 --schedule constant --checkpoint "$work/saved" --metrics "$work/metrics" \
    --log-steps "$work/steps" --resume
if [ "$(grep -o '^{"epoch": [0-9]*' "$work/metrics" | tr -dc '0-9')" != 1234 ] ||
    [ "$(cut -d ' ' -f 1 "$work/steps" | tr -d '\n')" != 1234 ]; then
    wrong 'not all epochs and steps' "$work/metrics" "$work/steps"
fi

# the drawing has all epochs, also the epochs before --resume; the ending of its name (.svg or .png,
# in any case) chooses gnuplot's terminal
fake_gnuplot cat
path=$PATH
PATH=$work/bin:$PATH
for kind in svg png PNG; do
    train --epochs 4 --schedule constant --checkpoint "$work/saved" --resume --plot "$work/plot.$kind"
    if [ "$(grep -c '^[1-4] [0-9.]* [0-9.]* [0-9.]*$' "$work/plot.$kind")" -ne 4 ]; then
        wrong "gnuplot gets other numbers: $kind" "$work/plot.$kind"
    fi
done
grep -q '^set terminal svg ' "$work/plot.svg" || wrong 'not as SVG' "$work/plot.svg"
grep -q '^set terminal pngcairo ' "$work/plot.png" || wrong 'not as PNG' "$work/plot.png"
cmp "$work/plot.png" "$work/plot.PNG" || wrong 'PNG is not png'

# refused PATTERN PLOT: the trainer must refuse PLOT before training, and keep an older drawing
refused() {
    echo old >"$work/$2"
    if "$trainer" --data "$work/data" --batch 20 --plot "$work/$2" >"$out" 2>"$log" ||
        ! grep -q "^example_train: --plot $work/$2: $1\$" "$log" || [ -s "$out" ] ||
        [ "$(cat "$work/$2")" != old ]; then
        wrong "--plot $2 is not refused" "$out" "$log"
    fi
}

refused 'must end in .svg or .png' plot.pdf
refused 'must end in .svg or .png' plot
refused 'must end in .svg or .png' svg
fake_gnuplot 'echo half; exit 3'
refused 'gnuplot failed with status 3' old.svg

# gnuplot fails at the end
fake_gnuplot 'if grep -q plot; then echo half; exit 3; fi'
echo old >"$work/old.svg"
if "$trainer" --data "$work/data" --batch 20 --plot "$work/old.svg" >"$out" 2>"$log" ||
    ! grep -q '^example_train: --plot .*: gnuplot failed with status 3$' "$log"; then
    wrong 'gnuplot fails unnoticed' "$log"
fi
[ "$(cat "$work/old.svg")" = old ] || wrong 'a failed drawing replaces an older one'
PATH=$path

# without gnuplot: one line before training, no drawing, no failure
if ! PATH=$work/nowhere "$trainer" --data "$work/data" --batch 20 --plot "$work/none.svg" \
    >"$out" 2>&1 || [ "$(grep -c gnuplot "$out")" -ne 1 ] ||
    ! sed -n 1p "$out" | grep -q '^example_train: --plot .*none.svg: will not be drawn.*gnuplot-nox' ||
    ! sed -n 2p "$out" | grep -q '^ranks 1' || [ -e "$work/none.svg" ] ||
    ! tail -n 1 "$out" | grep -q '^test accuracy'; then
    wrong 'without gnuplot' "$out"
fi
if command -v gnuplot >/dev/null; then
    for epochs in 1 2 30; do
        train --epochs $epochs --plot "$work/plot.svg"
        if ! grep -q '^</svg>' "$work/plot.svg" ||
            ! grep -q 'mlp with sgd on 1 rank: test accuracy' "$work/plot.svg"; then
            wrong "no drawing of $epochs epochs"
        fi
        train --epochs $epochs --plot "$work/plot.png"
        [ "$(head -c 4 "$work/plot.png" | tail -c 3)" = PNG ] || wrong "no PNG of $epochs epochs"
    done
fi

# gzipped data give the same results
train --digest
cp "$out" "$work/mixed"
gunzip -q "$work"/data/*.gz
train --digest
grep digest "$work/mixed" >"$work/mixed.digest"
grep digest "$out" | cmp -s - "$work/mixed.digest" || wrong 'other digest without gzip' "$out"

if ! "$trainer" --help >"$out" 2>&1 || ! grep -q '^  --batch N .*\[128\]$' "$out"; then
    wrong 'no help' "$out"
fi

# a failed write is an error
if test -c /dev/full; then
    if "$trainer" --data "$work/data" --batch 20 --epochs 1 >/dev/full 2>"$log"; then
        wrong 'a full disk goes unnoticed' "$log"
    fi
    if ! grep -q '^example_train: stdout: No space left' "$log" || [ "$(wc -l <"$log")" -ne 1 ]; then
        wrong 'not said of stdout' "$log"
    fi
    for option in --metrics --log-steps; do
        if "$trainer" --data "$work/data" --batch 20 --epochs 1 $option /dev/full >"$out" 2>"$log"; then
            wrong "a full disk goes unnoticed: $option" "$log"
        fi
        if ! grep -q "^example_train: $option /dev/full: No space left" "$log" ||
            [ "$(wc -l <"$log")" -ne 1 ]; then
            wrong "not said of $option" "$log"
        fi
    done
fi

[ "$errors" -eq 0 ]
