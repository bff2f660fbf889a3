#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Tests the real module, tutti/cuda.so, with real data: runs the scripts for a GPU, unchanged, over
# pretended libraries of CUDA and NCCL (tests/cuda_libs/), with two devices and with one device.
# These libraries are first in the search path, so they are used even on a machine with a GPU.
set -u

. "$srcdir/tests/cuda_libs/names.sh"
. "$srcdir/tests/trainer/common.sh"
if ! has_cuda_libs; then
    echo "the CUDA module was not built"
    exit 77
fi
use_cuda_libs "$work"
# Each script that starts a job uses its own file instead of $work/nccl.
export TUTTI_TEST_PRETEND="$work/nccl" TUTTI_TEST_DEVICE=cuda

# passes DEVICES COMMAND...: the command must succeed with these devices, and use the libraries.
passes() {
    devices=$1
    shift
    began=$(date +%s)
    CUDA_VISIBLE_DEVICES="$devices" "$@" >"$work/out" 2>&1
    status=$?
    [ $status -eq 0 ] && grep -q '^cuda: [12] CUDA runtime .*, NCCL 2' "$work/out" ||
        wrong "devices $devices, $*: status $status" "$work/out"
    echo "devices $devices, $*: $(($(date +%s) - began)) s"
}

gpu="$srcdir/tests/gpu"
long=no
passes 0,1 sh "$gpu/table.sh"
passes 0,1 sh "$gpu/collectives.sh"
if is_long "the bench programs, all calls with one device, the trainer in all precisions"; then
    long=yes
    # This NCCL is older than 2.27: its calls belong to the calling thread until they are done. The
    # script runs without mpirun, to save time.
    passes 0,1 env MPI_LIBS= TUTTI_TEST_NCCL_VERSION=22605 sh "$gpu/bench.sh"
    passes 0 sh "$gpu/collectives.sh"
fi
if test -x examples/example_train && grep -q cublasGemmEx "$cuda_libs"; then
    varied "$work/data" 200
    passes 0,1 env TUTTI_TEST_DATA="$work/data" sh "$gpu/killed.sh"
    if [ $long = yes ]; then
        passes 0,1 env TUTTI_TEST_DATA="$work/data" sh "$gpu/measure.sh" --quick . train
        [ "$(grep -c '^[mc][ln][pn]  *cuda .*[0-9]$' "$work/out")" -eq 12 ] ||
            wrong "not each model, precision and number of ranks" "$work/out"
    fi
fi
[ "$errors" -eq 0 ]
