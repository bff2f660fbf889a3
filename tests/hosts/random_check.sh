#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Random direct calls between ranks on pretended hosts, half of them with ranks that make another
# call; see hosts.sh. The long form makes 110,000 calls.
set -u
. "$(dirname "$0")/common.sh"

# on CALLS TRANSPORT A B [C]: makes CALLS calls with A, B and C ranks on hosts a, b and c
on()
{
    calls=$1
    export TUTTI_TRANSPORT=$2
    shift 2
    program="tests/hosts/random_check $calls"
    what="$program over $TUTTI_TRANSPORT on hosts with $*"
    on_hosts "$@"
    passed $(($1 + $2 + ${3:-0})) "random calls passed"
}

# Mismatches are not logged here.
export TUTTI_LOG=none
on 500 mpi 1 1
on 300 mpi 2 1
on 200 mpi 1 1 1
if is_long "110,000 calls; other hosts; over UCX"; then
    limit=900
    on 40000 mpi 1 1
    on 20000 mpi 2 2
    on 10000 mpi 1 2 2
    on 20000 mpi 1 1 1
    test -e "$TUTTI_MODULE_DIR/ucx.so" && on 20000 ucx 2 1
fi

test $errors -eq 0
