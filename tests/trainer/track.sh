#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Ranks only share the work: the losses of 50 steps are those of one rank, up to rounding, also
# where parts are uneven or empty. All ranks end with the same parameters, and the same run gives
# the same ones, bit by bit.
set -u

. "${0%/*}/common.sh"
need_trainer
need_mpirun
need_fashion

steps=50

# train NAME RANKS ARGUMENT...: leaves $work/NAME.steps and .digests
train() {
    name=$1
    ranks=$2
    shift 2
    timeout --kill-after=5 100 $mpirun -np "$ranks" "$trainer" --steps $steps --digest \
        --log-steps "$work/$name.steps" "$@" >"$work/$name.out" 2>"$work/$name.err"
    status=$?
    if [ "$status" -ne 0 ] || [ "$(wc -l <"$work/$name.steps")" -ne $steps ]; then
        wrong "$name ended with $status" "$work/$name.out" "$work/$name.err"
    fi
    grep '^digest of rank' "$work/$name.out" >"$work/$name.digests"
    different=$(cut -d : -f 2 "$work/$name.digests" | sort -u | wc -l)
    if [ "$(wc -l <"$work/$name.digests")" -ne "$ranks" ] || [ "$different" -ne 1 ]; then
        wrong "$name: not one digest on $ranks ranks" "$work/$name.out"
    fi
}

# alike NAME NAME: losses within 1e-4
alike() {
    paste -d ' ' "$work/$1.steps" "$work/$2.steps" | awk -v a="$1" -v b="$2" '
        { apart = $2 > $4 ? $2 - $4 : $4 - $2 }
        apart > most { most = apart }
        $1 != $3 || !(apart <= 1e-4) { print "    step", $1, "losses", $2, $4; bad = 1 }
        END { print a, b, "differ by at most", most + 0; exit bad }' || wrong "$1 and $2 differ"
}

# same NAME NAME: losses and parameters bit by bit
same() {
    cmp "$work/$1.steps" "$work/$2.steps" && cmp "$work/$1.digests" "$work/$2.digests" ||
        wrong "$1 and $2 differ" "$work/$1.digests" "$work/$2.digests"
}

# 128 images are even for two ranks and uneven for three
train one 1
train two 2
train three 3
train two_again 2
train three_again 3
alike one two
alike one three
same two two_again
same three three_again

# one of three ranks has no images
train one_small 1 --batch 2
train three_empty 3 --batch 2
alike one_small three_empty

# each epoch's third step has 19980 images, not 20010
steps=6
train one_rest 1 --batch 20010 --reference-batch 20010 --lr 0.005 --epochs 4
train three_rest 3 --batch 20010 --reference-batch 20010 --lr 0.005 --epochs 4
alike one_rest three_rest

[ "$errors" -eq 0 ]
