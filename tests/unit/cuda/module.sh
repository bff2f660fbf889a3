#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Tests the CUDA module on a machine without a GPU, over imitated libraries of CUDA and NCCL
# (stubs.c), which are missing, too old, incomplete or complete. Checks the module's messages.
# Checks that the module tests the result of each call.
set -u

module=$TUTTI_MODULE_DIR/cuda.so
program=$PWD/tests/unit/cuda/module
source=$srcdir/tests/unit/cuda/stubs.c
errors=0

if ! test -e "$module"; then
    echo "the CUDA module was not built"
    exit 77
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# stub DIR FILE FLAG...: compile an imitated library.
stub()
{
    dir=$work/$1
    file=$2
    shift 2
    mkdir -p "$dir"
    rm -f "$dir/$file"
    $CC -w -fPIC -shared -Wl,-soname,"$file" -o "$dir/$file" "$@" "$source" || exit 1
}

# good DIR: imitate CUDA 13.0 and NCCL 2.28.3, complete.
good()
{
    stub "$1" libcuda.so.1 -DDRIVER -DVERSION=13000
    stub "$1" libcudart.so.13 -DRUNTIME -DVERSION=13000
    stub "$1" libnccl.so.2 -DNCCL -DVERSION=22803
}

# says DIR CASE PATTERN...: the program succeeds, and a line begins with each pattern.
says()
{
    dir=$work/$1
    case=$2
    shift 2
    LD_LIBRARY_PATH=$dir "$program" "$module" "$case" >"$work/out" 2>&1
    status=$?
    for pattern; do
        grep -q "^$pattern" "$work/out" || status="$status, not there: $pattern"
    done
    if [ "$status" != 0 ]; then
        echo "$dir: status $status"
        cat "$work/out"
        errors=$((errors + 1))
    fi
}

good good
says good open "0: CUDA runtime 13.0, driver 13.0, NCCL 2.28.3$"
says good calls "image: .*sm_"
# The images in the module have code for each architecture requested in the Makefile.
archs=$($SED -n 's/^CUDA_ARCHS = //p' Makefile)
for arch in $archs; do
    grep -q "^image:.* sm_$arch\b" "$work/out" || { echo "no code for $arch"; errors=1; }
done
grep -q "^image:.* compute_$arch\b" "$work/out" || { echo "no PTX for $arch"; errors=1; }
# The kernels are loaded once for each device that was used. Two more attempts were made to fail.
if [ "$(grep -c '^image:' "$work/out")" -ne 4 ]; then
    echo "loaded $(grep -c '^image:' "$work/out") times"
    errors=1
fi
# The next call freed the stuck communicator.
if ! tr '\n' ' ' <"$work/out" | grep -q 'stuck: finalize later: destroy abort'; then
    cat "$work/out"
    errors=1
fi

cp "$work/out" "$work/good.out"

good no_driver
: >"$work/no_driver/libcuda.so.1"
says no_driver open "6: cuda: the CUDA driver, libcuda.so.1: .*libcuda.so.1: file too short"

good old_driver
stub old_driver libcuda.so.1 -DDRIVER -DVERSION=11080
says old_driver open "6: .*libcuda.so.1: it is for CUDA 11.8, 1[23].0 or later is needed"

good no_runtime
: >"$work/no_runtime/libcudart.so.13"
: >"$work/no_runtime/libcudart.so.12"
says no_runtime open "6: .*CUDA runtime, libcudart.so.13 or .12: .*so.13: .*; .*so.12: file too"

good old_runtime
stub old_runtime libcudart.so.13 -DRUNTIME -DVERSION=11080
says old_runtime open "6: .*libcudart.so: it is CUDA 11.8, 12.0 or later is needed"

good lacking
stub lacking libcudart.so.13 -DRUNTIME -DVERSION=13000 -DLACKS
says lacking open "6: cuda: the CUDA runtime, .* has no cudaStreamWaitEvent"

# With a driver for CUDA 12 the module takes the runtime of CUDA 12, even if that of 13 exists. The
# module accepts no code that was built for CUDA 13.
good twelve
stub twelve libcuda.so.1 -DDRIVER -DVERSION=12040
stub twelve libcudart.so.12 -DRUNTIME -DVERSION=12040
if echo CUDA_VERSION | $CC $CUDA_CFLAGS -include cuda.h -E - | grep -q '^12...$'; then
    says twelve open "0: CUDA runtime 12.4, driver 12.4, NCCL"
else
    says twelve open "6: .*for CUDA 12.4, 13.0 or later is needed, as tutti was built with 13"
fi

good no_nccl
: >"$work/no_nccl/libnccl.so.2"
says no_nccl open "0: CUDA runtime 13.0, .*, no NCCL (NCCL, libnccl.so.2: .*file too short)"

good old_nccl
stub old_nccl libnccl.so.2 -DNCCL -DVERSION=21403
says old_nccl open "0: .*, no NCCL (NCCL, libnccl.so.2: it is 2.14, 2.18 or later is needed)"

# NCCL 2.18 cannot register buffers. Everything else works.
good nccl_2_18
stub nccl_2_18 libnccl.so.2 -DNCCL -DVERSION=21805
says nccl_2_18 open "0: .*, NCCL 2.18.5, which registers no buffers$"
says nccl_2_18 calls "image: .*sm_"
# With NCCL 2.18, only the thread that has started NCCL's job may wait for its end. Another thread
# must not end the communicator, so a stuck communicator stays.
if ! tr '\n' ' ' <"$work/out" | grep -q 'stuck: finalize later: abort' ||
    ! grep -q '^join$' "$work/out" || grep -q '^abort amid' "$work/out"; then
    cat "$work/out"
    errors=1
fi

# NCCL from 2.27 on binds no thread.
if grep -q '^join$' "$work/good.out"; then
    cat "$work/good.out"
    errors=1
fi

export STUB_FAIL=cudaGetDeviceCount
says good open "6: .* no GPU for us: cudaGetDeviceCount: no GPU, says the stub"
unset STUB_FAIL

# The libraries of this machine itself. CUDA's driver maps memory in AddressSanitizer's gap, and
# does not free all memory.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}protect_shadow_gap=0:detect_leaks=0"
says . open "[06]: "

test "$errors" -eq 0
