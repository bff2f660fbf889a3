#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# bench/tutti_allreduce: OSU's table, correct results from all contestants, clear refusals.
set -u
. "$srcdir/tests/multi/bench/bench_common.sh"

bench=bench/tutti_allreduce

ran $bench -m 64
rows 5 "^[0-9]+ $number\$" "alone, OSU's two columns"
grep -q '^# Size         *Avg Latency(us)$' "$log" || wrong "OSU's head"
grep -q '^# Ranks: 1 on 1 host(s)$' "$log" || wrong "the number of ranks"
ran $bench -v
grep -q '^# Tutti Allreduce Latency Test v' "$log" || wrong version
ran $bench -h
grep -q 'message-size' "$log" || wrong help
misuse '-m 8:4: MIN is larger than MAX' $bench -m 8:4
misuse '-m: no size from 4 to 2 bytes' $bench -m 2:2
misuse '-m 4:1Q: unknown unit' $bench -m 4:1Q
misuse '-i 0' $bench -i 0
misuse '-T char' $bench -T char
misuse "-d /cuda: want a module's name" $bench -d /cuda
misuse '--peer gloo' $bench --peer gloo
misuse '--peer mp:' $bench --peer mp
misuse '-q: unknown option' $bench -q
misuse '--quick: unknown option' $bench --quick
misuse '--rounds: wants a value' $bench --rounds
misuse '--full=1: takes no value' $bench --full=1
misuse '-z0:' $bench -z0
misuse 'more: unexpected argument' $bench more
misuse '--buffers big' $bench --buffers big
misuse '--fail-above: only with' $bench --fail-above 5%
misuse '--spoil: only with' $bench --spoil
misuse '--skew: not with' $bench --skew 5 --back-to-back
refuses '^DATA VALIDATION ERROR' $bench -c --spoil -m 8

[ -n "$mpirun" ] || finish
misuse 'MPI has no such type' $bench --peer mpi -T bfloat16

ran $mpirun -np 2 $bench -c -f -m 4:65536 -i 20
rows 15 "^[0-9]+ $number $number $number +20 +Pass\$" "-c -f"
grep -q '^# Ranks: 2 on 1 host(s)$' "$log" || wrong "the number of ranks"
ran $mpirun -np 2 $bench -c -f -z50,99 -m 4:1K -i 20
rows 9 "^[0-9]+ $number $number $number +20 +Pass $number $number\$" "-c -f -z"
grep -q 'Validation    P50 Tail Lat(us)    P99 Tail Lat(us)$' "$log" || wrong "OSU's head of -z"
# The columns: Validation, 7 figures, Same Bits; for async 4 figures and Extra(us); for each further
# peer 4 figures.
ran $mpirun -np 3 $bench -c -m 1K:64K -i 20 --peer mpi --async --seed 7
rows 7 "^[0-9]+ $number +Pass( $number){7} +Yes( $number){9}\$" "--peer mpi --async"
grep -q 'seed 7$' "$log" || wrong "the seed is not printed"
for flags in "-T int64 -l" "-T bfloat16" "-T uint8 --buffers shared" "-T mpi_char" \
    "--back-to-back --stats"; do
    ran $mpirun -np 3 $bench -c -m 8:32K -i 10 $flags
    rows 13 "^[0-9]+ .* Pass" "$flags"
done
finish
