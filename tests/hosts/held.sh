#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# An MPI that has not yet sent messages that it has reported as complete: held_shim.c. Named calls do
# not wait for ever, whether the library's thread may call MPI or only the main thread.
set -u
. "$(dirname "$0")/common.sh"

shim=tests/hosts/.libs/held_shim.so
test -e $shim || skip "no preloaded library for this MPI"
program=tests/hosts/hosts_check
export TUTTI_TRANSPORT=mpi

# by_name: named calls over this MPI
by_name()
{
    launch -np 1 env TUTTI_HOST_ID=a LD_PRELOAD=$shim $program named 12 : \
        -np 1 env TUTTI_HOST_ID=b LD_PRELOAD=$shim $program named 12
    passed 2 "on 2 hosts: named passed"
    [ "$(grep -c "^held [1-9]" "$log")" -eq 2 ] || wrong "$what: no message was held"
}

what="the library's thread calls MPI"
by_name
what="only the main thread calls MPI"
export TUTTI_TEST_FUNNELED=1
by_name

test $errors -eq 0
