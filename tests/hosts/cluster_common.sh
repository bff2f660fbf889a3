# SPDX-License-Identifier: BSD-3-Clause
#
# Sourced after common.sh by scripts that run ranks on a cluster of cluster.sh; skips the test where
# a cluster cannot be made.

cluster=$(dirname "$0")/cluster.sh
"$cluster" check || exit
counters=$log.counters
trap 'rm -f "$log" "$counters"' EXIT

limit=100

# over TRANSPORT COMMAND...: runs the command with this TUTTI_TRANSPORT. Without TUTTI_TRANSPORT the
# ranks compare UCX and MPI, and usually select UCX.
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

# on PLACES [OPTION...] COMMAND...: runs the command on a cluster. PLACES: the number of ranks on
# each host, "3,1". Sets $what, $status, $hosts and $ranks. The command may take $limit seconds.
# Hosts do not share processors, if there are enough of them.
on()
{
    what="on hosts with $*"
    ranks=$(($(echo "$1" | tr , +)))
    hosts=$(echo "$1" | tr , '\n' | wc -l)
    rm -f "$counters"
    by_mpirun "$log" "$log" timeout --kill-after=5 $limit "$cluster" run --pin \
        --counters "$counters" --per-host "$@"
}

# crossed BYTES: each host must have sent and received at least so many bytes over its link. The
# start and the end under mpirun alone need some 60 KB.
crossed()
{
    awk -v least="$1" '$3 < least || $5 < least { short = 1 } END { exit short || NR == 0 }' \
        "$counters" || wrong "$what: fewer than $1 bytes crossed a link: $(cat "$counters")"
}
