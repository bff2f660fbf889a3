#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# torchrun itself starts the ranks: with one agent, with two agents on this host, and with an agent
# on each of two hosts made of namespaces (cluster.sh). Ranks that fail are started again by both
# agents. Skipped without PyTorch's torchrun in PATH.
set -u
. "$(dirname "$0")/../long.sh"
cluster=$(dirname "$0")/cluster.sh
hello=${HELLO:-examples/hello_allreduce}

if ! torchrun --help >/dev/null 2>&1; then
    echo "no torchrun that works"
    exit 77
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
errors=0
# torchrun's agents share this port; rank 0 uses a port above it.
port=$((20000 + $$ % 10000))
export OMP_NUM_THREADS=1 TUTTI_TIMEOUT=60 TUTTI_LOG=info
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"

wrong()
{
    echo "FAILED: $1"
    cat "$work"/out*
    errors=$((errors + 1))
}

# passed WHAT N: all agents must have succeeded, with N ranks
passed()
{
    lines=$(cat "$work"/out* | grep -c "of $2: the sum is")
    if [ "$status" -ne 0 ] || [ "$lines" -ne "$2" ]; then
        wrong "$1: status $status, $lines of $2 ranks passed"
    fi
}

# agents COUNT OPTION... COMMAND...: runs so many agents on this host; sets $status
agents()
{
    count=$1
    shift
    rm -f "$work"/out*
    pids=
    status=0
    for agent in $(seq "$count"); do
        timeout --kill-after=5 100 torchrun --nnodes "$count" --nproc-per-node 2 "$@" \
            >"$work/out$agent" 2>&1 &
        pids="$pids $!"
    done
    for pid in $pids; do
        wait "$pid" || status=$?
    done
}

c10d="--rdzv-backend c10d --rdzv-endpoint 127.0.0.1:$port --rdzv-id"

# Each rank runs the program twice. When all ranks have ended the first run, rank 1 fails, and the
# agents must kill the other ranks. The agent of rank 1 counts the restart. The other agent has
# detected no failure, and does not count the restart.
cat >"$work/twice" <<'END'
"$1" || exit
if [ "$RANK" -ne 1 ]; then
    mkdir "$2/first$RANK" 2>/dev/null && exec sleep 100
    exit 0
fi
while [ $(ls -d "$2"/first* 2>/dev/null | wc -l) -lt 3 ]; do
    sleep 0.1
done
if mkdir "$2/failed" 2>/dev/null; then
    exit 3
fi
END

agents 1 --no-python "$hello"
passed "one agent" 2
agents 2 $c10d restart --max-restarts 1 --no-python sh "$work/twice" "$hello" "$work"
lines=$(cat "$work"/out* | grep -c "of 4: the sum is 10")
[ "$status" -eq 0 ] && [ "$lines" -eq 8 ] ||
    wrong "restart: status $status, $lines lines instead of 8"
if is_long "one of two ways by which two agents meet, two hosts"; then
    rm -f "$work"/out*
    pids=
    status=0
    for agent in 0 1; do
        timeout --kill-after=5 100 torchrun --nnodes 2 --node-rank $agent \
            --nproc-per-node $((agent + 1)) --master-addr 127.0.0.1 --master-port $((port + 40)) \
            --no-python "$hello" >"$work/out$agent" 2>&1 &
        pids="$pids $!"
    done
    for pid in $pids; do
        wait "$pid" || status=$?
    done
    passed "static" 3
    if "$cluster" check --launcher env && [ -e "$TUTTI_MODULE_DIR/ucx.so" ]; then
        rm -f "$work"/out*
        timeout --kill-after=5 200 "$cluster" run --launcher env -np 2 sh -c '
            unset RANK LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
            exec torchrun --nnodes "$WORLD_SIZE" --nproc-per-node 2 --rdzv-backend c10d \
                --rdzv-endpoint node1:29400 --rdzv-id hosts --no-python "$0"' "$hello" \
            >"$work/out" 2>&1
        status=$?
        passed "two hosts" 4
    fi
fi
exit $((errors != 0))
