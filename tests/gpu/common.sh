# SPDX-License-Identifier: BSD-3-Clause
#
# For the scripts that need a real device; sourced by them in the build folder. TUTTI_TEST_DEVICE
# names the device, default cuda. Without such a device they are skipped: ends with 77 and says why;
# or fail, with TUTTI_TEST_GPU=required, as then without NCCL.

export TUTTI_TEST_DEVICE="${TUTTI_TEST_DEVICE:-cuda}"
device=$TUTTI_TEST_DEVICE
errors=0
unset TUTTI_DEVICE TUTTI_DEVICE_ID

# CUDA's driver maps where AddressSanitizer has its gap, and keeps memory until the end.
if [ "$device" = cuda ]; then
    no_gap="protect_shadow_gap=0:detect_leaks=0:alloc_dealloc_mismatch=0"
    export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}$no_gap"
fi

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# need_device: sets gpus, how many devices the tests use. Of pretend ones there are as many as
# TUTTI_TEST_DEVICES says, else two. And full, the ranks of one host: one for each, or two that share
# the only one; and nccl, 1 if there is NCCL.
need_device()
{
    tests/gpu/probe >"$work/probe" 2>&1
    status=$?
    if [ $status -ne 0 ]; then
        cat "$work/probe"
        [ -z "${TUTTI_TEST_GPU:-}" ] || status=1
        exit $status
    fi
    gpus=$(sed 's/ .*//;q' "$work/probe")
    [ "$device" = cuda ] || gpus=${TUTTI_TEST_DEVICES:-2}
    [ "$gpus" -le 8 ] || gpus=8
    full=$gpus
    [ "$gpus" -gt 1 ] || full=2
    echo "$device: $(cat "$work/probe")"
    nccl=1
    ! grep -q 'no NCCL' "$work/probe" || [ "$device" = pretend ] || nccl=0
    if [ "$nccl" = 0 ] && [ -n "${TUTTI_TEST_GPU:-}" ]; then
        echo "there is a GPU, but no NCCL"
        exit 1
    fi
    nccl=${TUTTI_TEST_NCCL:-$nccl}
    export TUTTI_TEST_DEVICES="$gpus" TUTTI_TEST_NCCL="$nccl"
}

wrong()
{
    echo "wrong: $1"
    errors=$((errors + 1))
}

# expect COMMAND...: ends well.
expect()
{
    "$@" || wrong "$*: status $?"
}

# fresh: what the pretend NCCL needs, new for each job; that of libraries.sh, too.
fresh()
{
    [ "$device" = pretend ] || [ -n "${TUTTI_TEST_PRETEND:-}" ] || return 0
    [ "$nccl" = 1 ] || return 0
    rm -f "$work/nccl"
    export TUTTI_TEST_PRETEND="$work/nccl"
}

# share: ranks that are more than devices. NCCL takes several on one if it thinks that each is on a host
# of its own, and then they talk over sockets; they take turns on the GPU, some 10 ms each.
share()
{
    export NCCL_HOSTID="rank$rank" NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-lo}" \
        NCCL_IB_DISABLE=1 NCCL_NET=Socket
}

# ranks N HOSTS COMMAND...: N ranks, without any launcher. HOSTS is one: all on this host; apart:
# each is a host of its own. Rank 0's output is shown, that of others where it failed. With `spread`
# set each has a GPU of its own if there are enough, also of hosts apart, which else begin with the
# first.
ranks()
{
    count=$1
    hosts=$2
    shift 2
    jobs=$((${jobs:-0} + 1))
    fresh
    pids=
    rank=0
    while [ $rank -lt "$count" ]; do
        (
            [ "$hosts" = one ] || export TUTTI_HOST_ID="host$rank"
            [ "$count" -le "$gpus" ] || share
            [ -z "${spread:-}" ] || [ "$gpus" -lt "$count" ] || export TUTTI_DEVICE_ID="$rank"
            export TUTTI_BOOT="local:gpu-${work##*/}-$jobs" TUTTI_RANK="$rank" TUTTI_SIZE="$count"
            exec "$@"
        ) >"$work/rank.$rank" 2>&1 &
        pids="$pids $!"
        rank=$((rank + 1))
    done
    rank=0
    ended=0
    for pid in $pids; do
        if wait "$pid"; then
            result=0
        else
            result=$?
            ended=$result
        fi
        [ $rank -gt 0 ] && [ $result -eq 0 ] || cat "$work/rank.$rank"
        rank=$((rank + 1))
    done
    return $ended
}

finish()
{
    test $errors -eq 0
    exit
}
