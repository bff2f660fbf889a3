#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The trainer with --device cuda, on a device on the host (host_device.c): losses equal those of the
# processor, ranks end with the same parameters, and a resumed run ends with the parameters of an
# uninterrupted one. The same is tested on the pretend device, with Tutti's calls in its stream, and
# with the real trainer over pretended libraries of CUDA (tests/cuda_libs/), if these and the CUDA
# module were built. Without a GPU the real trainer names the missing part, or uses the processor.
set -u

. "${0%/*}/common.sh"
. "${0%/*}/../cuda_libs/names.sh"
need_trainer
need_mpirun

pretend=./tests/trainer/train_pretend
data=$work/data
varied "$data"
common="--data $data --batch 10 --epochs 3 --seed 3 --digest"

# train NAME ARGUMENT...: trains two ranks with a device; leaves $work/NAME.out, .steps and .digests
train() {
    name=$1
    shift
    timeout --kill-after=5 100 $mpirun -np 2 "$pretend" $common --log-steps "$work/$name.steps" \
        "$@" >"$work/$name.out" 2>"$work/$name.err"
    status=$?
    [ "$status" -eq 0 ] || wrong "$name ended with $status" "$work/$name.out" "$work/$name.err"
    sed -n 's/^digest of rank .: //p' "$work/$name.out" >"$work/$name.digests"
    [ "$(wc -l <"$work/$name.digests")" -eq 2 ] &&
        [ "$(sort -u "$work/$name.digests" | wc -l)" -eq 1 ] ||
        wrong "$name: not one digest" "$work/$name.out"
}

# alike NAME NAME MOST: losses may differ by at most MOST
alike() {
    paste -d ' ' "$work/$1.steps" "$work/$2.steps" | awk -v limit="$3" '
        { apart = $2 > $4 ? $2 - $4 : $4 - $2 }
        apart > most { most = apart }
        $1 != $3 || !(apart <= limit) { print "    step", $1, "losses", $2, $4; bad = 1 }
        END { print "losses differ by at most", most + 0; exit bad || NR != 15 }' ||
        wrong "$1 and $2 differ"
}

# same NAME NAME: compares digests
same() {
    cmp -s "$work/$1.digests" "$work/$2.digests" || wrong "$1 and $2 have other digests"
}

for model in "mlp --hidden 20" "cnn --channels 3,4 --hidden 8"; do
    train cpu --model $model
    train fp32 --model $model --device cuda
    alike cpu fp32 1e-4
    grep -q 'device cuda:0 (the host)$' "$work/fp32.out" || wrong "no device" "$work/fp32.out"
    for precision in bf16 fp16; do
        train $precision --model $model --device auto --precision $precision
        alike cpu $precision 0.05
    done
done

# accumulated, clipped, and resumed
options="--model cnn --channels 3 --hidden 8 --optimizer lamb --clip 0.5 --accumulate 2"
options="$options --batch 5 --device cuda --precision fp16"
train whole $options
train cut $options --checkpoint "$work/checkpoint" --steps 7
train rest $options --checkpoint "$work/checkpoint" --resume
same whole rest
timeout 60 $mpirun -np 2 "$pretend" $common $options --device cpu --precision fp32 \
    --checkpoint "$work/checkpoint" --resume >"$work/out" 2>&1 &&
    wrong "the processor resumed a GPU's run" "$work/out"

# The first two steps overflow. The first overflow keeps the scale. A resumed run restores this
# state, so the second overflow halves the scale (in the checkpoint, train_run.h: four floats before
# the checksum).
options="--model mlp --hidden 8 --batch 1 --epochs 1 --lr 0.5 --device cuda --precision fp16"
rm "$work/checkpoint"
train whole $options --checkpoint "$work/whole.checkpoint"
train cut $options --checkpoint "$work/checkpoint" --steps 1
train rest $options --checkpoint "$work/checkpoint" --resume
cmp "$work/whole.checkpoint" "$work/checkpoint" || wrong "an overflow was forgotten"
[ "$(tail -c 20 "$work/checkpoint" | od -A n -t f4 -N 4 | tr -d ' ')" = 32768 ] ||
    wrong "not two overflows"

# With fp16 the test may overflow although the parameters are finite. JSON has no nan.
options="--model mlp --hidden 16,16,16,16,16,16 --steps 1 --warmup 0 --reference-batch 10 --lr 1000"
options="$options --device cuda --precision fp16"
train huge $options --metrics "$work/metrics"
grep -q '"test_loss": null, ' "$work/metrics" || wrong "an overflow in --metrics" "$work/metrics"

# in a stream
pretend=./tests/trainer/train_stream
export TUTTI_DEVICE=pretend TUTTI_TEST_PRETEND="$work/nccl"
for model in "mlp --hidden 20" "cnn --channels 3,4 --hidden 8"; do
    for device in cpu cuda; do
        rm -f "$TUTTI_TEST_PRETEND"
        train $device --model $model --device $device
    done
    alike cpu cuda 1e-4
    grep -q 'device cuda:0 (pretended)$' "$work/cuda.out" || wrong "no device" "$work/cuda.out"
    [ "$(grep -c '^NCCL calls: [1-9]' "$work/cuda.err")" -eq 2 ] || wrong "no NCCL" "$work/cuda.err"
done
unset TUTTI_DEVICE TUTTI_TEST_PRETEND

# over pretended libraries, with one rank less than devices, and with one rank more
libraries() {
    pretend=$trainer
    use_cuda_libs "$work"
    export TUTTI_TEST_PRETEND="$work/nccl"
    for model in "mlp --hidden 20" "cnn --channels 3,4 --hidden 8"; do
        train cpu --model $model
        for precision in fp32 bf16 fp16; do
            rm -f "$TUTTI_TEST_PRETEND"
            train cuda --model $model --device cuda --precision $precision
            limit=0.05
            [ $precision != fp32 ] || limit=1e-4
            alike cpu cuda $limit
            grep -q '  device cuda:0 (pretended)$' "$work/cuda.out" ||
                wrong "no device" "$work/cuda.out"
        done
    done
}
if has_cuda_libs && grep -q cublasGemmEx "$cuda_libs"; then
    (libraries && [ "$errors" -eq 0 ]) || wrong "over pretended libraries"
else
    echo "the real trainer over pretended libraries: not built"
fi

# the real trainer on this machine. CUDA's driver maps memory in AddressSanitizer's gap.
export ASAN_OPTIONS="$ASAN_OPTIONS:protect_shadow_gap=0"
"$trainer" --data "$data" --batch 10 --epochs 1 --device auto >"$work/out" 2>&1 ||
    wrong "auto" "$work/out"
grep -Eq '  device (cuda:|cpu, no GPU: )' "$work/out" || wrong "auto does not say" "$work/out"
if grep -q '  device cpu' "$work/out"; then
    why=$(sed -n 's/.*  device cpu, no GPU: //p' "$work/out")
    "$trainer" --data "$data" --batch 10 --device cuda >"$work/out" 2>&1 &&
        wrong "there is no GPU" "$work/out"
    # If there is a driver but no GPU, the library reports it first.
    grep -qxF "example_train: --device cuda: $why" "$work/out" ||
        grep -q '^example_train: starting Tutti: cuda' "$work/out" || wrong "not why" "$work/out"
    "$trainer" --data "$data" --batch 10 --device auto --precision bf16 >"$work/out" 2>&1 &&
        wrong "bf16 without a GPU" "$work/out"
    grep -q "example_train: --precision needs a GPU: " "$work/out" || wrong "not why" "$work/out"
fi

[ "$errors" -eq 0 ]
