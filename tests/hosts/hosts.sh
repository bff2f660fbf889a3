#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Ranks under mpirun on several pretended hosts: TUTTI_HOST_ID distinguishes them, and MPI connects
# them. With TUTTI_TRANSPORT=mpi tutti_init refuses any other transport.
set -u
. "$(dirname "$0")/common.sh"

program=tests/hosts/hosts_check

# on A B [C]: runs A, B and C ranks on hosts a, b and c. All ranks get the environment variables
# that are exported at this time.
on()
{
    a="-np $1 env TUTTI_HOST_ID=a $program"
    b="-np $2 env TUTTI_HOST_ID=b $program"
    what="hosts with $*: ${TUTTI_ALGORITHM:-default} $TUTTI_TRANSPORT"
    if [ $# -eq 3 ]; then
        launch $a data : $b data : -np "$3" env TUTTI_HOST_ID=c $program data
        passed $(($1 + $2 + $3)) "on 3 hosts: data passed"
    else
        launch $a data : $b data
        passed $(($1 + $2)) "on 2 hosts: data passed"
    fi
}

long=no
! is_long "three of four placings on two hosts" || long=yes
export TUTTI_TRANSPORT=mpi
for TUTTI_ALGORITHM in "" allreduce:ring allreduce:recursive_doubling; do
    export TUTTI_ALGORITHM
    on 3 2
    [ $long = yes ] || continue
    on 1 1
    on 2 2
    on 4 1
done
export TUTTI_ALGORITHM=
on 1 2 2
TUTTI_ALGORITHM=broadcast:binomial,allgather:ring,barrier:dissemination
on 2 1
TUTTI_ALGORITHM=
TUTTI_TRANSPORT=shm
on 2 2

# A schedule from a file: rank 0's first SEND is complete only when rank 2 calls MPI, and rank 2
# first waits in shared memory for rank 3, which waits for rank 0.
mine=$(mktemp) || exit 1
trap 'rm -f "$log" "$mine"' EXIT
cat >"$mine" <<'END'
mine: rank 0 of 4, blocks 1, scratch 0, blocks per message 1
LOOP
    SEND IN[0] to rank 2
    RECV_REDUCE from rank 1: IN[0] -> OUT[0]
    SEND OUT[0] to rank 3
    RECV from rank 2: OUT[0]
END_LOOP
mine: rank 1 of 4, blocks 1, scratch 0, blocks per message 1
LOOP
    SEND IN[0] to rank 0
    RECV from rank 2: OUT[0]
END_LOOP
mine: rank 2 of 4, blocks 1, scratch 1, blocks per message 1
LOOP
    RECV_REDUCE from rank 3: IN[0] -> OUT[0], finish
    RECV from rank 0: SCRATCH[0]
    SEND OUT[0] to rank 0
    SEND OUT[0] to rank 1
    SEND OUT[0] to rank 3
END_LOOP
mine: rank 3 of 4, blocks 1, scratch 0, blocks per message 1
LOOP
    RECV_REDUCE from rank 0: IN[0] -> OUT[0]
    SEND OUT[0] to rank 2
    RECV from rank 2: OUT[0]
END_LOOP
END
TUTTI_TRANSPORT=mpi
TUTTI_ALGORITHM=allreduce:@$mine
on 2 2
TUTTI_ALGORITHM=

# Several small pieces are in flight, and the library is started twice.
export TUTTI_CHUNK_BYTES=32K TUTTI_CREDITS=1
what="small chunks, twice"
launch -np 2 env TUTTI_HOST_ID=a $program twice : -np 1 env TUTTI_HOST_ID=b $program twice
passed 3 "on 2 hosts: twice passed"

test $errors -eq 0
