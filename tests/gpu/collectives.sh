#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# All calls on device memory through the library, on a real device: direct, asynchronous, and in
# streams; one rank, a rank for each GPU, and hosts that share a GPU.
set -u
. "$srcdir/tests/gpu/common.sh"
need_device

expect tests/gpu/direct
expect tests/gpu/async
export TUTTI_DEVICE="$device"
expect ranks 1 one tests/gpu/stream
expect ranks 2 apart tests/gpu/stream
[ "$gpus" -lt 2 ] || expect ranks "$gpus" one tests/gpu/stream
finish
