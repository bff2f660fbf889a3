#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# hello_allreduce says the same sum on all ranks, with a launcher and without.
set -u

. "${0%/*}/common.sh"
hello=${HELLO_ALLREDUCE:-./examples/hello_allreduce}

[ "$("$hello")" = 'rank 0 of 1: the sum is 1' ] || wrong 'without a launcher'

need_mpirun
for ranks in 2 3 4; do
    $mpirun -np $ranks "$hello" >"$work/out" 2>"$work/log"
    status=$?
    sum=$((ranks * (ranks + 1) / 2))
    lines=$(grep -c "^rank [0-3] of $ranks: the sum is $sum\$" "$work/out")
    if [ "$status" -ne 0 ] || [ "$lines" -ne $ranks ]; then
        wrong "$ranks ranks ended with $status" "$work/out" "$work/log"
    fi
done

[ "$errors" -eq 0 ]
