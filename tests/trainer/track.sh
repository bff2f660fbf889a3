#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Ranks only share the work. The losses of 50 steps equal the losses of one rank, up to rounding.
# This must hold with even, uneven or empty parts, with both models, and if a step computes the same
# images in several parts. All ranks end with the same parameters, and a repeated run gives the same
# parameters, bit by bit.
set -u

. "${0%/*}/common.sh"
need_trainer
need_mpirun
need_fashion

steps=20
images=6000
long=no
! is_long "30 of 50 steps, nine of ten images, runs that are made again, clipping, cnn of two ranks, \
batches of 20010" || { long=yes steps=50 images=60000; }

# begin PREFIX COUNT: unpacks the first COUNT images and labels. If the ranks unpacked the files
# themselves, this would take a third of each rank's start-up time. So the files are unpacked here,
# once for all runs.
begin() {
    { images_head "$2" 28; gzip -dc "$fashion/$1-images-idx3-ubyte.gz" |
        tail -c +17 | head -c $(($2 * 784)); } >"$work/data/$1-images-idx3-ubyte"
    { labels_head "$2"; gzip -dc "$fashion/$1-labels-idx1-ubyte.gz" |
        tail -c +9 | head -c "$2"; } >"$work/data/$1-labels-idx1-ubyte"
}
mkdir "$work/data"
begin train $images
begin t10k $((images / 6))

# train NAME RANKS ARGUMENT...: leaves $work/NAME.steps and .digests
train() {
    name=$1
    ranks=$2
    shift 2
    by_mpirun "$work/$name.out" "$work/$name.err" timeout --kill-after=5 100 \
        $mpirun -np "$ranks" "$trainer" --steps $steps --digest \
        --data "$work/data" --log-steps "$work/$name.steps" "$@"
    if [ "$status" -ne 0 ] || [ "$(wc -l <"$work/$name.steps")" -ne $steps ]; then
        wrong "$name ended with $status" "$work/$name.out" "$work/$name.err"
    fi
    grep '^digest of rank' "$work/$name.out" >"$work/$name.digests"
    different=$(cut -d : -f 2 "$work/$name.digests" | sort -u | wc -l)
    if [ "$(wc -l <"$work/$name.digests")" -ne "$ranks" ] || [ "$different" -ne 1 ]; then
        wrong "$name: not one digest on $ranks ranks" "$work/$name.out"
    fi
}

# alike NAME NAME: losses may differ by at most 1e-4
alike() {
    paste -d ' ' "$work/$1.steps" "$work/$2.steps" | awk -v a="$1" -v b="$2" '
        { apart = $2 > $4 ? $2 - $4 : $4 - $2 }
        apart > most { most = apart }
        $1 != $3 || !(apart <= 1e-4) { print "    step", $1, "losses", $2, $4; bad = 1 }
        END { print a, b, "differ by at most", most + 0; exit bad }' || wrong "$1 and $2 differ"
}

# same NAME NAME: losses and parameters must be equal bit by bit
same() {
    cmp "$work/$1.steps" "$work/$2.steps" && cmp "$work/$1.digests" "$work/$2.digests" ||
        wrong "$1 and $2 differ" "$work/$1.digests" "$work/$2.digests"
}

# 128 images divide evenly between two ranks and unevenly between three
train one 1
train two 2
train three 3
train three_again 3
alike one two
alike one three
same three three_again

# the same images per step, in four parts
train three_parts 3 --batch 32 --accumulate 4
alike one three_parts

# clipping gives other results, which must be the same for all numbers of ranks
if [ $long = yes ]; then
    train two_again 2
    same two two_again
    train one_clipped 1 --clip 0.1
    train three_clipped 3 --clip 0.1
    alike one_clipped three_clipped
    if cmp -s "$work/one.steps" "$work/one_clipped.steps"; then
        wrong '--clip changes nothing'
    fi
fi

# convolutions, with an optimizer that uses whole tensors
steps=20
cnn="--model cnn --channels 8,8 --optimizer lamb --batch 64"
train one_cnn 1 $cnn
train three_cnn 3 $cnn --batch 16 --accumulate 4
alike one_cnn three_cnn
if [ $long = yes ]; then
    train two_cnn 2 $cnn
    train three_cnn_again 3 $cnn --batch 16 --accumulate 4
    alike one_cnn two_cnn
    same three_cnn three_cnn_again
fi

# one of three ranks has no images
[ $long = no ] || steps=50
train one_small 1 --batch 2
train three_empty 3 --batch 2
alike one_small three_empty

# each epoch's third step has 19980 images, not 20010
if [ $long = yes ]; then
    steps=6
    train one_rest 1 --batch 20010 --reference-batch 20010 --lr 0.005 --epochs 4
    train three_rest 3 --batch 20010 --reference-batch 20010 --lr 0.005 --epochs 4
    alike one_rest three_rest
fi

[ "$errors" -eq 0 ]
