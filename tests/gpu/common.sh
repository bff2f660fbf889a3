# SPDX-License-Identifier: BSD-3-Clause
#
# Sourced, in the build folder, by the scripts that need a real device. TUTTI_TEST_DEVICE names the
# device, by default cuda. Without such a device the scripts print the reason and end with 77. With
# TUTTI_TEST_GPU=required they fail instead, and they also fail without NCCL.

export TUTTI_TEST_DEVICE="${TUTTI_TEST_DEVICE:-cuda}"
device=$TUTTI_TEST_DEVICE
errors=0
unset TUTTI_DEVICE TUTTI_DEVICE_ID

# CUDA's driver maps memory in AddressSanitizer's gap, and does not free all memory at the end.
if [ "$device" = cuda ]; then
    no_gap="protect_shadow_gap=0:detect_leaks=0:alloc_dealloc_mismatch=0"
    export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}$no_gap"
fi

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# need_device: sets gpus, the number of devices that the tests use. The pretend device has
# TUTTI_TEST_DEVICES devices, default two. Sets full, the number of ranks of one host: one for each
# device, or two that share the only device. Sets nccl, 1 if there is NCCL.
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

# expect COMMAND...: runs the command, which must succeed.
expect()
{
    "$@" || wrong "$*: status $?"
}

# fresh: names a new file for the pretended NCCL, which needs a new file for each job; with the real
# NCCL it does nothing.
fresh()
{
    [ "$device" = pretend ] || [ -n "${TUTTI_TEST_PRETEND:-}" ] || return 0
    [ "$nccl" = 1 ] || return 0
    rm -f "$work/nccl"
    export TUTTI_TEST_PRETEND="$work/nccl"
}

# share: for more ranks than devices. NCCL accepts several ranks on one device if each seems to be
# on its own host. They then communicate over sockets, and the GPU runs them alternately, for some
# 10 ms each.
share()
{
    export NCCL_HOSTID="rank$rank" NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-lo}" \
        NCCL_IB_DISABLE=1 NCCL_NET=Socket
}

# ranks N HOSTS COMMAND...: runs the command on N ranks, without a launcher. If HOSTS is `one`, all
# ranks are on this host; if it is `apart`, each rank is on a separate host. Prints the output of
# rank 0, and of the ranks that failed. If `spread` is set and there are enough GPUs, each rank has
# its own GPU, also with `apart`. Otherwise the ranks of each host use the GPUs from the first one
# on.
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
