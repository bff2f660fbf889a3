#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Ranks under mpirun on one host, as users start them. Checks results, the example's output, an
# acceptable speed with more ranks than processors, and that no rank makes a world of one rank if
# there are several ranks.
set -u
. "$(dirname "$0")/common.sh"

program=tests/hosts/hosts_check

counts="1 2 3 5 8"
many="2 8"
is_long "2, 3 and 5 ranks in some jobs" || { counts="1 8" many=8; }
for ranks in $counts; do
    what="$ranks ranks"
    launch -np $ranks $program data
    passed $ranks "of $ranks on 1 hosts: data passed"
done
what="twice"
launch -np 3 $program twice
passed 3 "twice passed"

# A call takes some 20 us here. If waiting ranks did not give their processors to other ranks, a
# call would take a time slice, and this test would take minutes.
for ranks in $many; do
    what="many with $ranks ranks"
    launch -np $ranks $program many 1000
    passed $ranks "many passed"
    ms=$(sed -n 's/^many: \([0-9]*\) ms/\1/p' "$log")
    echo "1000 allreduces with $ranks ranks: ${ms:-?} ms"
    [ "${ms:-99999}" -lt 30000 ] || wrong "$what: ${ms:-?} ms"
done

# The manual shows the example's output.
what="hello_allreduce"
launch -np 4 examples/hello_allreduce
passed 4 "^rank [0-3] of 4: the sum is 10$"
[ "$(sort -u "$log" | grep -c '^rank')" -eq 4 ] || wrong "a rank speaks twice"

# On one host mpirun's ranks meet without a module for its MPI.
what="no module"
launch -np 3 env TUTTI_MODULE_DIR=/nonexistent TUTTI_LOG=info $program many 1000
passed 3 "many passed"
grep -q "3 ranks meet on this host, by mpirun's variables" "$log" || wrong "$what: the way is not named"

# No rank may continue alone.
for setting in "-u PMIX_RANK TUTTI_MODULE_DIR=/nonexistent OMPI_COMM_WORLD_LOCAL_SIZE=1" TUTTI_TRANSPORT=pigeon TUTTI_BOOT=pigeon \
    TUTTI_ALGORITHM=allreduce:pigeon; do
    what=$setting
    launch -np 2 env $setting $program refused
    passed 2 "^refused: "
done
grep -q pigeon "$log" || wrong "the algorithm is not named"
what="one of two"
launch -np 1 env TUTTI_ALGORITHM=allreduce:pigeon $program refused : -np 1 $program refused
passed 2 "^refused: "

test $errors -eq 0
