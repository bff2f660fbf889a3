#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The output of the examples, with a launcher and without, on one, two and three ranks. README.md
# must show the present hello_allreduce.
set -u

. "${0%/*}/common.sh"
hello=${HELLO_ALLREDUCE:-./examples/hello_allreduce}
tour=${TOUR:-./examples/tour}
persistent=${PERSISTENT:-./examples/persistent}
unique_id=${UNIQUE_ID:-./examples/unique_id}
vector=${VECTOR:-./examples/vector}

sed -n '/^#include/,/^}/p' "$srcdir/examples/hello_allreduce.c" >"$work/hello"
sed -n '/^    #include/,/^    }/{s/^    //;p;}' "$srcdir/README.md" >"$work/readme"
cmp "$work/hello" "$work/readme" || wrong 'README.md shows another hello_allreduce'

# tour_of RANKS: the output that the tour must have, in the order of ranks
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

# persistent_of RANKS: the output that persistent must have; weights are step * (rank + i), for i
# from 0 to 3
persistent_of() {
    awk -v n="$1" 'BEGIN {
        for (rank = 0; rank < n; rank++)
            for (step = 1; step <= 3; step++)
                printf "rank %d of %d: step %d, weight %d %d, bias %d\n", rank, n, step,
                    step * n * (n - 1) / 2, step * (n * (n - 1) / 2 + 3 * n), step * n
    }'
}

vector_of() {
    case $1 in
    1) echo 'rank 0 of 1: 1 numbers, the last is 0; received 0, their sum is 0; kept 1, the last is 0' ;;
    2)
        echo 'rank 0 of 2: 3 numbers, the last is 101; received 1, their sum is 1; kept 1, the last is 0'
        echo 'rank 1 of 2: 3 numbers, the last is 101; received 3, their sum is 2; kept 2, the last is 4'
        ;;
    3)
        echo 'rank 0 of 3: 6 numbers, the last is 202; received 3, their sum is 5; kept 1, the last is 0'
        echo 'rank 1 of 3: 6 numbers, the last is 202; received 3, their sum is 2; kept 2, the last is 6'
        echo 'rank 2 of 3: 6 numbers, the last is 202; received 3, their sum is 2; kept 3, the last is 15'
        ;;
    esac
}

# unique_id_of RANKS: the output that unique_id must have
unique_id_of() {
    for rank in 0 1 2; do
        [ "$rank" -ge "$1" ] || echo "rank $rank of $1: the sum is $(($1 * ($1 + 1) / 2))"
    done
}

# the head comments: how to build each example, and what the tour prints
for name in hello_allreduce tour persistent vector unique_id; do
    grep -Fqx " *     cc $name.c \$(pkg-config --cflags --libs tutti) -o $name" \
        "$srcdir/examples/$name.c" || wrong "$name.c does not say how to build it"
done
promised=$(sed -n 's/^ \*     \(rank [0-9] of 3: \)/\1/p' "$srcdir/examples/tour.c")
[ "$promised" = "$(tour_of 3)" ] || wrong 'tour.c promises another output'

[ "$("$hello")" = 'rank 0 of 1: the sum is 1' ] || wrong 'without a launcher'
[ "$("$tour")" = "$(tour_of 1)" ] || wrong 'the tour without a launcher'
[ "$("$persistent")" = "$(persistent_of 1)" ] || wrong 'persistent without a launcher'
[ "$("$vector")" = "$(vector_of 1)" ] || wrong 'vector without a launcher'

# this script is the launcher
for ranks in 1 2 3; do
    timeout --kill-after=5 60 "$unique_id" $ranks >"$work/out" 2>"$work/log"
    status=$?
    sort "$work/out" >"$work/sorted"
    unique_id_of $ranks | cmp - "$work/sorted" && [ "$status" -eq 0 ] ||
        wrong "unique_id of $ranks ended with $status" "$work/out" "$work/log"
done
"$unique_id" 0 >"$work/out" 2>"$work/log"
[ $? -eq 2 ] && grep -q '^usage: ' "$work/log" || wrong 'unique_id 0' "$work/out" "$work/log"

need_mpirun
for ranks in 2 3 4; do
    by_mpirun "$work/out" "$work/log" $mpirun -np $ranks "$hello"
    sum=$((ranks * (ranks + 1) / 2))
    lines=$(grep -c "^rank [0-3] of $ranks: the sum is $sum\$" "$work/out")
    if [ "$status" -ne 0 ] || [ "$lines" -ne $ranks ]; then
        wrong "$ranks ranks ended with $status" "$work/out" "$work/log"
    fi
done
for ranks in 1 2 3; do
    for name in tour persistent vector; do
        eval "program=\$$name"
        by_mpirun "$work/out" "$work/log" timeout --kill-after=5 60 $mpirun -np $ranks "$program"
        sort "$work/out" >"$work/sorted"
        ${name}_of $ranks | cmp - "$work/sorted" && [ "$status" -eq 0 ] ||
            wrong "$name of $ranks ended with $status" "$work/out" "$work/log"
    done
done

[ "$errors" -eq 0 ]
