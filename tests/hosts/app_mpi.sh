#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Tutti in an application that uses MPI itself: at the lowest and the highest thread level, on one
# host and with MPI between hosts.
set -u
. "$(dirname "$0")/common.sh"

program=tests/hosts/app_mpi

test -x $program || skip "no MPI to compile with"
for level in single multiple; do
    what="$level"
    launch -np 3 $program $level
    passed 3 "app_mpi passed"
    what="$level, two hosts"
    launch -np 2 env TUTTI_HOST_ID=a TUTTI_TRANSPORT=mpi $program $level : \
        -np 1 env TUTTI_HOST_ID=b TUTTI_TRANSPORT=mpi $program $level
    passed 3 "app_mpi passed"
done

test $errors -eq 0
