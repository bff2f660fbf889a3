#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The trainer reports which share of its communication was hidden behind the backward pass: per
# epoch, at the end and in --metrics. Without communication, or without measured times, it reports
# no share.
set -u

. "${0%/*}/common.sh"
need_trainer

out=$work/out
metrics=$work/metrics
varied "$work/data"

# train COMMAND...: trains two epochs of 5 steps; COMMAND starts the trainer
train() {
    by_mpirun "$out" "$out" timeout --kill-after=5 100 "$@" "$trainer" --data "$work/data" \
        --batch 9 --hidden 20 --epochs 2 --metrics "$metrics"
    [ $status -eq 0 ] || wrong "$*: status $status" "$out"
}

# no_share WHAT: the trainer must not have reported a share
no_share() {
    if grep -q hidden "$out" || [ "$(grep -c '"hidden_share": null, ' "$metrics")" -ne 2 ]; then
        wrong "$1: there is a share" "$out" "$metrics"
    fi
}

# shares PATTERN NUMBERS MOST FILE: the file must have NUMBERS numbers behind the pattern, each from
# 0 to MOST
shares() {
    sed -n "s/.*$1\([0-9]*\.[0-9]*\).*/\1/p" "$4" >"$work/numbers"
    awk -v numbers="$2" -v most="$3" '{ wrong += $1 < 0 || $1 > most }
        END { exit NR != numbers || wrong > 0 }' "$work/numbers" || wrong "not $2 shares: $1" "$4"
}

train env
no_share 'one rank'

need_mpirun
train $mpirun -np 2
shares 'epoch .* waiting [0-9.]*%  hidden ' 2 100 "$out"
shares 'communication hidden behind the backward pass: ' 1 100 "$out"
shares '"hidden_share": ' 2 1 "$metrics"
tail -n 1 "$out" | grep -q '^test accuracy' || wrong 'the last line is not the accuracy' "$out"

# if the user turns off statistics, the library measures no times
train $mpirun -np 2 env TUTTI_STATS=0
no_share 'TUTTI_STATS=0'

[ "$errors" -eq 0 ]
