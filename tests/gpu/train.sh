#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The example trainer on a real device, both models in all precisions: after an epoch the accuracy
# must be near the processor's. The pretend device cannot compute, so with it the processor is
# compared with itself.
set -u
. "$srcdir/tests/gpu/common.sh"
need_device

trainer=${EXAMPLE_TRAIN:-./examples/example_train}
data=${TUTTI_TEST_DATA:-/usr/share/datasets/fashion-mnist}
if ! test -x "$trainer"; then
    echo "no $trainer: OpenBLAS or zlib is missing"
    exit 77
fi
if ! test -e "$data/train-images-idx3-ubyte.gz"; then
    echo "no data: Debian package dataset-fashion-mnist"
    exit 77
fi

# train N FLAG...: trains with N ranks; sets accuracy.
train()
{
    count=$1
    shift
    ranks "$count" one "$trainer" --data "$data" $length "$@" >"$work/out" 2>&1 ||
        wrong "$*: status $?"
    cat "$work/out"
    accuracy=$(sed -n 's/^test accuracy //p' "$work/out")
}

# near WHAT: accuracy differs by at most 0.02 from wanted. Epochs with different roundings differ by
# some 0.01, as with different seeds.
near()
{
    awk -v a="${accuracy:-0}" -v b="${wanted:-1}" \
        'BEGIN { d = a - b; exit !(d < 0.02 && d > -0.02) }' ||
        wrong "$1: accuracy $accuracy, the processor's is $wanted"
}

models="mlp cnn"
length="--epochs 1"
computes="--device cuda --precision"
precisions="fp32 bf16 fp16"
if [ "$device" = pretend ]; then
    length="--steps 5 --epochs 1"
    computes="--device"
    precisions=cpu
    models=mlp
fi
for model in $models; do
    train 1 --model $model --threads "$(nproc)"
    wanted=$accuracy
    for precision in $precisions; do
        train 1 --model $model $computes $precision
        near "$model, $precision, 1 rank"
        # Ranks that share a GPU wait for it in each step, so they run one precision only.
        [ "$full" -le "$gpus" ] || [ $precision = "${precisions%% *}" ] || continue
        train "$full" --model $model $computes $precision
        near "$model, $precision, $full ranks"
    done
done
finish
