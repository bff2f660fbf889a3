#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Every direct collective between ranks on several pretended hosts, with MPI between them;
# see hosts.sh.
set -u
. "$(dirname "$0")/common.sh"

program=tests/hosts/collectives_check

# on A B: runs A ranks on host a and B ranks on host b
on()
{
    what="collectives on hosts with $1 + $2, chunks of ${TUTTI_CHUNK_BYTES:-64K}"
    launch -np "$1" env TUTTI_HOST_ID=a $program : -np "$2" env TUTTI_HOST_ID=b $program
    passed $(($1 + $2)) "on 2 hosts: collectives passed"
}

export TUTTI_TRANSPORT=mpi
on 1 1
on 2 2
on 3 2
export TUTTI_CHUNK_BYTES=4K TUTTI_CREDITS=1
on 2 1

test $errors -eq 0
