#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# hello_allreduce says the same sum on all ranks, with a launcher and without; so does the tour, of
# all that it visits. The program that README.md shows is hello_allreduce.
set -u

. "${0%/*}/common.sh"
hello=${HELLO_ALLREDUCE:-./examples/hello_allreduce}
tour=${TOUR:-./examples/tour}

sed -n '/^#include/,/^}/p' "$srcdir/examples/hello_allreduce.c" >"$work/hello"
sed -n '/^    #include/,/^    }/{s/^    //;p;}' "$srcdir/README.md" >"$work/readme"
cmp "$work/hello" "$work/readme" || wrong 'README.md shows another hello_allreduce'

# tour_of RANKS: what it prints, in the order of ranks
tour_of() {
    case $1 in
    1) echo 'rank 0 of 1: weight 0, bias 0; a group of 1, sum 0; common divisor 12' ;;
    2)
        echo 'rank 0 of 2: weight 1, bias 10; a group of 1, sum 0; common divisor 6'
        echo 'rank 1 of 2: weight 1, bias 10; a group of 1, sum 1; common divisor 6'
        ;;
    3)
        echo 'rank 0 of 3: weight 3, bias 30; a group of 2, sum 2; common divisor 6'
        echo 'rank 1 of 3: weight 3, bias 30; a group of 1, sum 1; common divisor 6'
        echo 'rank 2 of 3: weight 3, bias 30; a group of 2, sum 2; common divisor 6'
        ;;
    esac
}

[ "$("$hello")" = 'rank 0 of 1: the sum is 1' ] || wrong 'without a launcher'
[ "$("$tour")" = "$(tour_of 1)" ] || wrong 'the tour without a launcher'

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
for ranks in 1 2 3; do
    $mpirun -np $ranks "$tour" >"$work/out" 2>"$work/log"
    status=$?
    sort "$work/out" >"$work/sorted"
    tour_of $ranks | cmp - "$work/sorted" && [ "$status" -eq 0 ] ||
        wrong "the tour of $ranks ended with $status" "$work/out" "$work/log"
done

[ "$errors" -eq 0 ]
