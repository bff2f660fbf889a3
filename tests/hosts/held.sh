#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# An MPI that has not yet sent messages that it has reported as complete: held_shim.c. Calls do not
# wait for ever, whether the library's thread may call MPI or only the main thread.
set -u
. "$(dirname "$0")/common.sh"

shim=tests/hosts/.libs/held_shim.so
test -e $shim || skip "no preloaded library for this MPI"
program=tests/hosts/hosts_check
export TUTTI_TRANSPORT=mpi
# The shim is loaded before the sanitizer's library.
export ASAN_OPTIONS="$ASAN_OPTIONS:verify_asan_link_order=0"

# over_it A CASE: runs the case with A ranks on host a, and one on host b
over_it()
{
    run="env LD_PRELOAD=$shim $program $2 12"
    launch -np "$1" env TUTTI_HOST_ID=a $run : -np 1 env TUTTI_HOST_ID=b $run
    passed $(($1 + 1)) "on 2 hosts: $2 passed"
    grep -q "^held [1-9]" "$log" || wrong "$what: no message was held"
}

what="named calls, and the library's thread calls MPI"
over_it 1 named
export TUTTI_TEST_FUNNELED=1
what="named calls, and only the main thread calls MPI"
over_it 1 named
what="direct calls, and only the main thread calls MPI"
over_it 2 passed

test $errors -eq 0
