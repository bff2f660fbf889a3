#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Each program of bench/ on 1, 2 and 3 ranks: OSU's table, correct results from all contestants, in
# place and out of place, on buffers with other alignments; and -c detects one damaged element.
set -u
. "$srcdir/tests/multi/bench/bench_common.sh"

# measure PROGRAM FLAG...: the table must have 12 sizes, all correct.
measure()
{
    measured=$1
    shift
    ran $launch "bench/tutti_$measured" -c -m 4:8K -i 4 -x 1 --rounds 2 "$@"
    rows 12 "^[0-9]+ $number +Pass( $number){5} $number $number +(Yes|-)( $number)*\$" \
        "$ranks ranks: $measured $*"
}

launch=
light= # a launcher without MPI
light_peers=
peers="--peer async"
counts="1 2 3"
if [ -n "$mpirun" ] && ! is_long "1 and 2 ranks, and MPI in place for all calls but allreduce"; then
    counts=3
    by_hand
    light="$by_hand 3"
    light_peers="--peer async"
fi
for ranks in $counts; do
    if [ -n "$mpirun" ]; then
        launch="$mpirun -np $ranks"
        peers="--peer async,mpi,naive"
    elif [ $ranks -gt 1 ]; then
        break
    fi
    for program in allgather allreduce alltoall broadcast reduce reduce_scatter; do
        measure $program $peers
        case $program in
        broadcast) ;;
        allreduce) measure $program $peers -l ;;
        *) launch=${light:-$launch} measure $program ${light_peers:-$peers} -l ;;
        esac
        refuses 'DATA VALIDATION ERROR on message size 64' \
            ${light:-$launch} bench/tutti_$program -c --spoil -m 64:128 -i 1
        grep -q '^64 .* Fail$' "$log" || wrong "$program: no row that says Fail"
    done
    measure allreduce $peers --align 4096,4096+16,64+1
    launch=${light:-$launch} measure allgather -l --stats --align 64+4
    measure allreduce_async $(echo "$peers" | sed 's/async/direct/')
    ran ${light:-$launch} bench/tutti_barrier -f -i 20 -x 1
    rows 1 "^ $number $number $number +20\$" "barrier, $ranks ranks"
    ran $launch bench/tutti_barrier -i 20 -x 1 $peers
    rows 1 "^ ( *[0-9.-]+)+\$" "barrier with peers, $ranks ranks"
done
misuse '-l: Broadcast' bench/tutti_broadcast -l
for flag in '-m 4:16' -c -l '-T int32' '-M 1M' '--buffers shared' '--align 64'; do
    misuse "^[^ ]*tutti_barrier: ${flag%% *}: Barrier has no data" bench/tutti_barrier $flag
done
ran bench/tutti_barrier --help
[ $status -eq 0 ] && grep -q -e '--iterations' "$log" && ! grep -q -e '--message-size' "$log" ||
    wrong "barrier --help"
misuse '--align 3: want' bench/tutti_allreduce --align 3
misuse '--align 4096: rotating' bench/tutti_allreduce --align 4096 --buffers rotate
misuse '--align 64,128: want N' bench/tutti_gradients --align 64,128
misuse '--peer async: not known' bench/tutti_allreduce_async --peer async
finish
