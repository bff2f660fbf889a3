# SPDX-License-Identifier: BSD-3-Clause
#
# Sourced after common.sh by scripts that run ranks on a cluster of cluster.sh; skips the test where
# there can be none.

cluster=$(dirname "$0")/cluster.sh
"$cluster" check || exit
counters=$log.counters
trap 'rm -f "$log" "$counters"' EXIT

limit=100

# over TRANSPORT COMMAND...: runs it with this TUTTI_TRANSPORT. Without it the ranks compare UCX and
# MPI, and mostly take UCX.
over()
{
    export TUTTI_TRANSPORT=$1
    shift
    "$@"
    unset TUTTI_TRANSPORT
}

# have_ucx: is there a module for UCX?
have_ucx()
{
    test -e "$TUTTI_MODULE_DIR/ucx.so"
}

# on PLACES [OPTION...] COMMAND...: runs it on a cluster with so many ranks on each host, "3,1"; sets
# $what, $status, $hosts and $ranks. It may take $limit seconds. Each host has processors of its own, as far as there are enough.
on()
{
    what="on hosts with $*"
    ranks=$(($(echo "$1" | tr , +)))
    hosts=$(echo "$1" | tr , '\n' | wc -l)
    rm -f "$counters"
    timeout --kill-after=5 $limit "$cluster" run --pin --counters "$counters" --per-host "$@" \
        >"$log" 2>&1
    status=$?
}

# crossed BYTES: each host has sent and received at least so many over its link. To start and end
# under mpirun takes some 60 KB.
crossed()
{
    awk -v least="$1" '$3 < least || $5 < least { short = 1 } END { exit short || NR == 0 }' \
        "$counters" || wrong "$what: fewer than $1 bytes crossed a link: $(cat "$counters")"
}
