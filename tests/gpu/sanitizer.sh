#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs table.c under CUDA's compute-sanitizer, with memcheck only, because no kernel here uses
# shared memory. The streams are omitted: the tool executes work at once, so a stream never has
# pending work. Then runs three steps of the example trainer.
set -u
. "$srcdir/tests/gpu/common.sh"
need_device

case ${SANITIZER:-no} in
no) ;;
*)
    echo "one sanitizer at a time"
    exit 77
    ;;
esac
tool=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [ -z "$tool" ]; then
    echo "no compute-sanitizer"
    exit 77
fi

# The tool returns 9 if it found an error. If a test makes a call fail on purpose, this is not an
# error.
check="$tool --tool memcheck --error-exitcode 9 --report-api-errors no"
for part in memory casts pieces sums; do
    expect $check tests/gpu/table $part
done
if [ "$nccl" = 1 ]; then
    # The tool rewrites each of NCCL's kernels when they are loaded.
    timeout --kill-after=5 200 $check tests/gpu/table nccl
    status=$?
    case $status in
    0) ;;
    124 | 137) echo "table nccl: not through in 200 s, not checked" ;;
    *) wrong "$check tests/gpu/table nccl: status $status" ;;
    esac
fi

trainer=${EXAMPLE_TRAIN:-./examples/example_train}
data=${TUTTI_TEST_DATA:-/usr/share/datasets/fashion-mnist}
if ! test -x "$trainer" || ! test -e "$data/train-images-idx3-ubyte.gz"; then
    echo "no trainer, or no data: not checked"
    finish
fi
computes=cuda
[ "$device" != pretend ] || computes=cpu
expect ranks 1 one $check "$trainer" --data "$data" --model mlp --steps 3 --epochs 1 --device $computes
finish
