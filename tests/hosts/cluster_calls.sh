#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Tests all collectives, mismatches of calls, and mismatches of messages between the hosts of a
# cluster. See cluster_data.sh.
set -u
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/cluster_common.sh"

# check PLACES BYTES PROGRAM...: BYTES must cross each link
check()
{
    least=$2
    places=$1
    shift 2
    on "$places" "tests/hosts/$@"
    passed $ranks "on $hosts hosts: .* passed"
    crossed "$least"
}

# Each mismatch is an error on several ranks. These errors are not logged here.
export TUTTI_LOG=none
over mpi check 2,2 4000000 collectives_check
check 3,1 100000 direct_check 13
over mpi check 1,1,1 700000 messages_check misfits
if is_long "two of three placings for each program, 12 of 13 mismatches of calls"; then
    limit=600
    for places in 3,1 1,1,1; do
        over mpi check $places 4000000 collectives_check
        check $places 4000000 collectives_check
    done
    for places in 2,2 3,1 1,1,1; do
        over mpi check $places 600000 direct_check
    done
    for places in 2,2 3,1; do
        over mpi check $places 700000 messages_check misfits
        check $places 700000 messages_check misfits
    done
fi

test $errors -eq 0
