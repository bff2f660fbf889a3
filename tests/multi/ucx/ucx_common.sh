# SPDX-License-Identifier: BSD-3-Clause
#
# Jobs of ranks that meet by env:// on pretended hosts, with UCX between the hosts. Sourced by tests
# that have set srcdir.
. "$srcdir/tests/long.sh"
. "$srcdir/tests/repeat.sh"
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
export TUTTI_TIMEOUT=60 TUTTI_TRANSPORT=ucx

errors=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# on HOSTS PROGRAM...: starts the program with a rank for each letter of HOSTS; the letter names the
# rank's host. Sets $ranks. Rank 0 uses a free port from the test's own range.
on()
{
    hosts=$1
    shift
    ranks=${#hosts}
    what="$* on $hosts"
    past_ucx "$work/[0-9]*" run_ranks "$@"
}

# run_ranks PROGRAM...: starts the $ranks ranks on $hosts, without files of an earlier job
run_ranks()
{
    port=$((20000 + ($$ * 7 + errors) % 10000))
    pids=
    rank=0
    rm -f "$work"/*
    while [ $rank -lt "$ranks" ]; do
        host=$(printf %s "$hosts" | cut -c $((rank + 1)))
        RANK=$rank WORLD_SIZE=$ranks LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$ranks \
            MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TUTTI_HOST_ID=$host \
            timeout --kill-after=5 120 "$@" >"$work/$rank" 2>&1 &
        pids="$pids $!"
        rank=$((rank + 1))
    done
    for pid in $pids; do
        wait $pid
    done
}

# passed N PATTERN: N ranks of the last job must have printed a line that matches.
passed()
{
    lines=$(cat "$work"/[0-9]* | grep -c -e "$2")
    if [ "$lines" -ne "$1" ]; then
        echo "FAILED: $what: $lines of $1 ranks passed"
        tail -n 20 "$work"/[0-9]*
        errors=$((errors + 1))
    fi
}
