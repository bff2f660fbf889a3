# SPDX-License-Identifier: BSD-3-Clause
#
# Sourced by the tests of bench/ on device memory. Sets $device to TUTTI_TEST_DEVICE, by default the
# pretend device. Sets $devices to the number of devices, because NCCL needs a device for each rank.
. "$srcdir/tests/multi/bench/bench_common.sh"

unset TUTTI_DEVICE TUTTI_DEVICE_ID
device=${TUTTI_TEST_DEVICE:-pretend}
devices=${TUTTI_TEST_DEVICES:-1}
[ "$device" = cuda ] || devices=3

# job COMMAND...: as ran, with a new file for the pretended NCCL, which needs one for each job.
job()
{
    TUTTI_TEST_PRETEND=$files/nccl
    export TUTTI_TEST_PRETEND
    rm -f "$TUTTI_TEST_PRETEND"
    ran "$@"
}

# spoiled WHAT COMMAND...: the command must fail, with WHAT in its output.
spoiled()
{
    what=$1
    shift
    job "$@"
    [ $status -ne 0 ] && grep -q -e "$what" "$log" || wrong "$*: status $status, or no '$what'"
}
