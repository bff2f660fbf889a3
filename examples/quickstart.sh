#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Trains a small network on Fashion-MNIST with two processes, from nothing: installs what a fresh
# Debian 12 lacks, builds the library and the trainer below build/quickstart, and starts it.
#
# usage: examples/quickstart.sh [ARGUMENT of example_train...]
set -eu

here=$PWD
top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top"
. lib/build/setup.sh

build=build/quickstart
mkdir -p build
alone quickstart.sh
need_packages $BUILD_PACKAGES $TRAIN_PACKAGES
generate
configure_in $build
echo "building below $build, log in $build/make.log"
logged $build/make.log make -C $build -j "$jobs" modules examples/example_train
exec 8>&-

# Open MPI counts cores, not hardware threads, and refuses to start more ranks than that.
cores=$(lscpu -p=core,socket | grep -v '^#' | sort -u | wc -l)
[ "$cores" -lt "$jobs" ] || cores=$jobs
set -- "$top/$build/examples/example_train" "$@"
if [ "$cores" -lt 2 ]; then
    set -- --oversubscribe "$@"
fi
if [ "$(id -u)" -eq 0 ]; then
    echo "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
fi
echo "mpirun -np 2 $*"
cd "$here"
exec mpirun -np 2 "$@"
