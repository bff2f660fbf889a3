#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Gradient lists and packing on device memory; see bench_device.sh.
set -u
. "$srcdir/tests/multi/bench/bench_on_device.sh"

models=all
nmodels=3
long=yes
start="$mpirun -np"
if ! is_long "bert-large, gpt2, most of bfloat16 and float64, and mpirun"; then
    long=no models=resnet50 nmodels=1
    [ $device != pretend ] || by_hand
    start=${by_hand:-$start}
fi

# lists FLAG...: the results for the gradients of all models must be correct.
lists()
{
    job $launch bench/tutti_gradients -d $device --scale 1000 -c -x 0 --rounds 2 --orders 2 \
        --model $models "$@"
    [ $status -eq 0 ] || wrong "gradients $*: status $status"
    for contestant in tutti nccl-per-tensor nccl-fused; do
        right=$(grep -cE "^(resnet50|bert-large|gpt2) .* $contestant .* Pass +(Yes|No)$" "$log")
        [ "$right" -eq $nmodels ] || wrong "gradients $*: $contestant"
    done
    ! grep -q ' mpi-' "$log" || wrong "gradients $*: MPI has no device memory"
}

launch=
[ -z "$mpirun" ] || [ $devices -lt 2 ] || launch="$start 2"
lists
[ $long = no ] || lists -T bfloat16 --fusion 4K
lists --peer all --random
[ "$(grep -cE '^[a-z0-9-]+ .* tutti-start .* Pass +Yes$' "$log")" -eq $nmodels ] ||
    wrong "gradients --peer all: tutti-start"
spoiled '^DATA VALIDATION ERROR in resnet50' \
    $launch bench/tutti_gradients -d $device --scale 1000 -c --spoil -x 0 --rounds 2

# pack FLAG...: the table must have four rows for each model, all correct.
pack()
{
    ran bench/tutti_pack -d $device --scale 1000 --rounds 3 -i 2 -c "$@"
    [ $status -eq 0 ] || wrong "pack $*: status $status"
    for what in copy-in pack copy-out unpack; do
        [ "$(grep -cE "^[a-z0-9-]+ .* $what( +$number){5}$" "$log")" -eq 3 ] || wrong "pack: $what"
    done
}

pack
[ $long = no ] || pack --fusion 1001 -T float64
pack -T bfloat16 --fusion 16K
ran bench/tutti_pack -d $device --scale 1000 --rounds 3 --model bert-large --csv
[ $status -eq 0 ] && [ "$(grep -cE '^bert-large,391,1340252,(un)?pack,' "$log")" -eq 2 ] ||
    wrong "pack --csv"
refuses '1 elements are wrong when packed, 0 when unpacked' \
    bench/tutti_pack -d $device --scale 1000 --rounds 1 -c --spoil --model gpt2
misuse 'vgg makes no sense' bench/tutti_pack --model vgg
refuses '^[^ ]*tutti_pack: -d nowhere: ' bench/tutti_pack -d nowhere
# If there is no GPU or no module, the error message has each name only once.
ran bench/tutti_pack --scale 1000 --rounds 1 -i 1
[ $status -eq 0 ] || { grep -q '^[^ ]*tutti_pack: -d cuda: ' "$log" &&
    ! grep -qE '(cuda: cuda|libcuda.so.1: libcuda.so.1): ' "$log"; } || wrong "without a GPU"
misuse '--fusion below one element' bench/tutti_pack --fusion 2
misuse '--spoil without -c' bench/tutti_pack --spoil
finish
