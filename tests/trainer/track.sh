#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Ranks only share the work: the losses of 50 steps are those of one rank, up to rounding, also
# where parts are uneven or empty. All ranks end with the same parameters, and the same run gives
# the same ones, bit by bit.
set -u

. "${0%/*}/common.sh"
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

# compare NAME NAME: losses within 1e-4
compare() {
    paste -d ' ' "$work/$1.steps" "$work/$2.steps" | awk -v a="$1" -v b="$2" '
        { apart = $2 > $4 ? $2 - $4 : $4 - $2 }
        apart > most { most = apart }
        $1 != $3 || !(apart <= 1e-4) { print "    step", $1, "losses", $2, $4; bad = 1 }
        END { print a, b, "differ by at most", most; exit bad }' || wrong "$1 and $2 differ"
}

# batch: 128 is even for 2 ranks and not for 3; 2 leaves one of 3 ranks empty; 20011 has an uneven
# rest at the end of each epoch
for batch in 128 2 20011; do
    set -- --batch $batch --reference-batch $batch --epochs 17
    train "one_$batch" 1 "$@"
    train "two_$batch" 2 "$@"
    train "three_$batch" 3 "$@"
    compare "one_$batch" "two_$batch"
    compare "one_$batch" "three_$batch"
done

for ranks in two three; do
    train "again" $((${#ranks} == 3 ? 2 : 3)) --batch 128 --reference-batch 128 --epochs 17
    if ! cmp -s "$work/${ranks}_128.digests" "$work/again.digests" ||
        ! cmp -s "$work/${ranks}_128.steps" "$work/again.steps"; then
        wrong "$ranks ranks: two equal runs differ" "$work/${ranks}_128.digests" \
            "$work/again.digests"
    fi
done

[ "$errors" -eq 0 ]
