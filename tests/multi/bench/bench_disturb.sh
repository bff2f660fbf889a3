#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Disturbances made by bench programs: --buffers, --skew, --load.
set -u
. "$srcdir/tests/multi/bench/bench_common.sh"

# A late rank is really late: 50 iterations take a second longer. The table does not count this
# second.
begin=$(date +%s%N)
ran bench/tutti_barrier --skew 20000 -i 50 -x 0 --csv -
took_ms=$((($(date +%s%N) - begin) / 1000000))
median=$(awk -F, '/^tutti_barrier/ { print int($8) }' "$log")
[ "$status" -eq 0 ] && [ $took_ms -ge 1000 ] && [ "${median:-20000}" -lt 20000 ] ||
    wrong "--skew: status $status, $took_ms ms, median ${median:-none} us"

# While the program runs, the load's threads exist. The program ends although they are busy.
bench/tutti_allreduce --load 6 -m 4M:4M -i 200 -c --stats >"$log" 2>&1 &
pid=$!
most=0
while kill -0 $pid 2>/dev/null; do
    threads=$(sed -n 's/^Threads:[^0-9]*//p' "/proc/$pid/status" 2>/dev/null)
    [ "${threads:-0}" -le $most ] || most=$threads
    sleep 0.02
done
wait $pid
status=$?
rows 1 "^4194304 .* Pass" "--load"
[ $most -ge 7 ] || wrong "--load 6: no more than $most threads"
grep -q 'load 6;' "$log" || wrong "--load is not printed"

ran bench/tutti_allreduce --buffers rotate -M 8M -m 64:1K -i 300 -c --stats
rows 5 "^[0-9]+ .* Pass" "rotate"
grep -q '^# Buffers private and rotating, out of place;' "$log" || wrong "rotate is not printed"

[ -n "$mpirun" ] || finish
programs="allgather allreduce alltoall broadcast reduce reduce_scatter"
is_long "all but allreduce" || programs=allreduce
for program in $programs; do
    for flags in "--buffers rotate -M 1M" "--buffers shared" "--buffers shared,rotate -M 1M" \
        "--skew 50 --load 1"; do
        ran $mpirun -np 3 bench/tutti_$program -c -m 16:4K -i 10 -x 1 --rounds 2 --stats $flags
        rows 9 "^[0-9]+ .* Pass" "$program $flags"
    done
done
finish
