#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The result's bits do not depend on the transport between hosts, nor on the length of its messages,
# with or without a wire format.
set -u
. "$(dirname "$0")/common.sh"

program=tests/hosts/bits_check
limit=90
transports="mpi shm"
! test -e "$TUTTI_MODULE_DIR/ucx.so" || transports="$transports ucx"

# same A B [C]: runs A, B and C ranks on hosts a, b and c
same()
{
    first=
    for transport in $transports; do
        export TUTTI_TRANSPORT=$transport
        what="hosts with $*, $transport, TUTTI_CHUNK_BYTES=${TUTTI_CHUNK_BYTES:-}"
        on_hosts "$@"
        passed 1 "^bits: [0-9a-f]*\$"
        bits=$(grep "^bits:" "$log")
        : "${first:=$bits}"
        [ "$bits" = "$first" ] || wrong "$what: $bits, over mpi $first"
    done
}

same 2 1
exact=$first
TUTTI_WIRE=bfloat16 same 2 1
[ "$first" != "$exact" ] || wrong "TUTTI_WIRE=bfloat16 changes no bits"
# 700000 elements are 1700 messages of 8 KiB a call. On a busy machine five ranks take minutes.
if is_long "more placings and lengths, and 700000 elements in short messages"; then
    TUTTI_CHUNK_BYTES=8K same 2 1 2
    same 1 1 1
    TUTTI_CHUNK_BYTES=8K same 2 2
    TUTTI_CHUNK_BYTES=1M same 3 1
    TUTTI_DETERMINISTIC=strict TUTTI_CHUNK_BYTES=8K same 1 2
else
    BITS_MOST=150000 TUTTI_CHUNK_BYTES=8K same 2 1 2
fi

test $errors -eq 0
