#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The real module, tutti/cuda.so, with real data: the scripts for a GPU, as they are, over pretended
# libraries of CUDA and NCCL (tests/cuda_libs/), with two devices and with one. Where there is a GPU
# these are taken all the same, as they come first.
set -u

libs=$PWD/tests/.libs/cuda_libs.so
if ! test -e "$TUTTI_MODULE_DIR/cuda.so" || ! test -e "$libs"; then
    echo "the CUDA module was not built"
    exit 77
fi
files=$(mktemp -d) || exit 1
trap 'rm -rf "$files"' EXIT
for name in libcuda.so.1 libcudart.so.12 libcudart.so.13 libnccl.so.2; do
    ln -s "$libs" "$files/$name"
done
export LD_LIBRARY_PATH="$files${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
# Whoever starts a job puts a file of its own here.
export TUTTI_TEST_PRETEND="$files/nccl" TUTTI_TEST_DEVICE=cuda
errors=0

# passes DEVICES SCRIPT [VARIABLE=VALUE...]
passes()
{
    devices=$1
    script=$2
    shift 2
    began=$(date +%s)
    env CUDA_VISIBLE_DEVICES="$devices" "$@" sh "$srcdir/tests/gpu/$script.sh" >"$files/out" 2>&1
    status=$?
    if [ $status -ne 0 ] || ! grep -q '^cuda: [12] CUDA runtime .*, NCCL 2' "$files/out"; then
        cat "$files/out"
        echo "wrong: $script.sh, devices $devices $*: status $status"
        errors=$((errors + 1))
    fi
    echo "$script.sh, devices $devices $*: $(($(date +%s) - began)) s"
}

passes 0,1 table
passes 0,1 collectives
# Calls of NCCL before 2.27 belong to their threads. Without mpirun, for time's sake.
passes 0,1 bench MPI_LIBS= TUTTI_TEST_NCCL_VERSION=22605
passes 0 collectives
test $errors -eq 0
