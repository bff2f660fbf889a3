#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs table.c on a real device: every function of the device's table; results are compared with the
# processor's.
set -u
. "$srcdir/tests/gpu/common.sh"
need_device

for part in memory streams casts pieces sums; do
    expect tests/gpu/table $part
done
if [ "$nccl" = 1 ]; then
    expect tests/gpu/table nccl
    expect tests/gpu/table ranks
fi
finish
