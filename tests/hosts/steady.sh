#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# How much do the medians of an allreduce between two hosts differ from run to run? This is a
# measurement, not a test, and needs a machine on which nothing else runs. Start it in the build
# folder.
#
# usage: steady.sh [RUNS [FLAG...]]      5 runs by default; FLAGs are passed to
#                                        bench/tutti_allreduce
#
# The hosts are those of cluster.sh, with one, two and four ranks each; each host has half of the
# processors. For each size it prints the largest median of the runs divided by the smallest.
# TUTTI_TRANSPORT chooses the transport. The exit status is 1 if a size's quotient is above 1.5, or
# above 2.5 with four ranks.
set -u

here=$(cd "$(dirname "$0")" && pwd)
program=bench/tutti_allreduce
runs=${1:-5}
[ $# -eq 0 ] || shift
[ -x $program ] || {
    echo "steady.sh: there is no $program here" >&2
    exit 2
}
"$here/cluster.sh" check || exit
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

failed=0
for places in 1,1/1.5 2,2/1.5 4,4/2.5; do
    limit=${places#*/}
    places=${places%/*}
    rm -f "$work"/*.csv
    for run in $(seq "$runs"); do
        "$here/cluster.sh" run --pin --per-host "$places" $program -m 8:16M -i 20 -x 3 "$@" \
            --csv "$work/$run.csv" >"$work/log" 2>&1 || {
            cat "$work/log"
            exit 1
        }
    done
    echo "# Hosts with $places, ${TUTTI_TRANSPORT:-auto}: $runs runs"
    awk -F, -v limit="$limit" '
        /^program,/ { for (i = 1; i <= NF; i++) column[$i] = i; next }
        /^#/ { next }
        {
            bytes = $column["bytes"]
            us = $column["median_us"]
            if (!(bytes in most))
                size[++sizes] = bytes
            if (!(bytes in most) || us > most[bytes])
                most[bytes] = us
            if (!(bytes in least) || us < least[bytes])
                least[bytes] = us
        }
        END {
            printf "%-10s %12s %12s %10s\n", "# Size", "Least us", "Most us", "Most/Least"
            for (s = 1; s <= sizes; s++) {
                quotient = most[size[s]] / least[size[s]]
                printf "%-10s %12.2f %12.2f %10.2f%s\n", size[s], least[size[s]], most[size[s]],
                    quotient, (quotient > limit ? "  above " limit : "")
                above += quotient > limit
            }
            exit above > 0 || sizes == 0
        }' "$work"/*.csv || failed=1
done
exit $failed
