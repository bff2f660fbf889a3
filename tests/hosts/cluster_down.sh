#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# A host's link goes down in an allreduce between hosts: the ranks of all hosts report the lost
# host by name. Open MPI's mpirun may crash when it loses a host, so each rank writes a file.
set -u
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/cluster_common.sh"

folder=$(mktemp -d)

# down RANKS PLACES: all RANKS ranks, placed as PLACES, must pass
down()
{
    past_ucx "$log" run_ranks "$@"
    cat "$folder"/rank* 2>/dev/null
    [ "$(cat "$folder"/rank* 2>/dev/null | grep -c passed)" -eq "$1" ] || wrong "$2: not all passed"
}

# run_ranks RANKS PLACES: waits for the ranks' files
run_ranks()
{
    rm -f "$folder"/*
    "$cluster" run --per-host "$2" -- tests/hosts/down_check "$folder" >"$log" 2>&1 &
    tries=0
    until [ "$(cat "$folder"/rank* 2>/dev/null | wc -l)" -eq "$1" ] || [ $tries -eq 600 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    kill $! 2>/dev/null
    wait $! 2>/dev/null
}

over mpi down 3 1,1,1
! have_ucx || over ucx down 3 1,1,1
is_long "two ranks on a host" && over mpi down 3 2,1
rm -rf "$folder"

test $errors -eq 0
