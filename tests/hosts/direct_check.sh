#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Direct calls that mismatch, between ranks on two or three pretended hosts with MPI between them,
# are detected before any data moves; see hosts.sh.
set -u
. "$(dirname "$0")/common.sh"

# on A B [C]: runs A, B and C ranks of $program on hosts a, b and c
on()
{
    what="$program on hosts with $*"
    on_hosts "$@"
    passed $(($1 + $2 + ${3:-0})) "on $# hosts: .* passed"
}

# Each mismatch is an error on every rank. These errors are not logged here.
export TUTTI_TRANSPORT=mpi TUTTI_LOG=none
program=tests/hosts/direct_check
on 1 1
on 2 1
on 2 2
on 3 2
on 1 1 1
on 1 2 2

test $errors -eq 0
