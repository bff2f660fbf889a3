#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# If a rank fails, the other ranks report the right error in time. `faults.sh all` runs all 180
# combinations of the following. The long form runs every third one:
#
#     fault  the rank is killed (kill), is stopped (stop), exits without tutti_finalize (exit), or
#            calls tutti_abort (abort)
#     phase  the others wait for a tensor that the rank has not submitted (agreeing); a learned plan
#            runs (planned); large tensors are in flight (flight); no call is pending (idle); the
#            others finalize (finalizing)
#     ranks  2, 4 and 8
#     place  one host (one), two pretended hosts (pretended), two hosts of a cluster (cluster.sh)
set -u
. "$(dirname "$0")/../long.sh"
. "$(dirname "$0")/../repeat.sh"

cluster=$(dirname "$0")/cluster.sh
"$cluster" check --launcher env || exit
# A job ends by TUTTI_TIMEOUT only if its fault is `stop`: no peer can detect a stopped rank.
export TUTTI_LOG=error
errors=0
cases=0
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

# start RANKS HOSTS FAULT PHASE VICTIM RANKS-PER-HOST ID TIMEOUT: one job
start()
{
    rm -f "$folder"/*
    timeout --kill-after=5 300 "$cluster" run --launcher env -np "$1" --hosts "$2" \
        --per-host $(($1 / $2)) -- sh -c "TUTTI_HOST_ID=$7 TUTTI_TIMEOUT=$8 \
        exec tests/hosts/faults_check $folder $3 $4 $5 $6" \
        >"$folder/log" 2>&1
}

# run PLACE RANKS FAULT PHASE VICTIM: runs one combination
run()
{
    per_host=$2
    hosts=1
    id='""'
    timeout=200
    [ "$1" = one ] || per_host=$(($2 / 2))
    [ "$1" != pretended ] || id='$((RANK * 2 / WORLD_SIZE))'
    [ "$1" != cluster ] || hosts=2
    [ "$3" != stop ] || timeout=$stop
    past_ucx "$folder/log" start "$2" $hosts $3 $4 $5 $per_host "$id" $timeout
    cases=$((cases + 1))
    lines=$(cat "$folder"/rank* 2>/dev/null | wc -l)
    if [ "$lines" -ne $(($2 - 1)) ]; then
        echo "FAILED: $1, $2 ranks, rank $5: $3, $4: $lines of $(($2 - 1)) ranks passed"
        cat "$folder"/*
        errors=$((errors + 1))
    fi
    cat "$folder"/rank* 2>/dev/null | sort -rn | head -n 1 | sed "s/^/$3 $1 $4 /" >>"$folder.times"
}

n=0
step=3
# The deadline of `stop` applies to tutti_init and to the steps before the fault as well.
stop=20
is_long "nine of ten of its cases" || { step=29 && stop=8; }
[ "${1:-}" != all ] || step=1
: >"$folder.times"
for place in one pretended cluster; do
    for ranks in 2 4 8; do
        for phase in agreeing planned flight idle finalizing; do
            for fault in kill stop exit abort; do
                n=$((n + 1))
                [ $((n % step)) -ne 0 ] || run $place $ranks $fault $phase $((n % ranks))
            done
        done
    done
done
echo "$cases cases; the slowest rank of each fault:"
for fault in kill stop exit abort; do
    grep "^$fault " "$folder.times" | sort -rnk 4 | head -n 1
done
rm -f "$folder.times"
test $errors -eq 0
