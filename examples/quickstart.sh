#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Trains a small network on Fashion-MNIST with two processes, from nothing: installs what a fresh
# Debian 12 lacks, builds the library and the examples below build/quickstart, and starts the trainer.
#
# usage: examples/quickstart.sh [ARGUMENT of example_train...], such as --model cnn or --help
set -eu

here=$PWD
top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top"
. lib/build/setup.sh

build=build/quickstart
mkdir -p build
alone quickstart.sh
plot=
for argument; do
    case $argument in
    --plot | --plot=*) command -v gnuplot >/dev/null || plot=$PLOT_PACKAGES ;;
    esac
done
need_packages $BUILD_PACKAGES $TRAIN_PACKAGES $plot
unset TUTTI_PACKAGES # it is not a setting of the library, so the library would warn about it
if [ -x $build/examples/example_train ]; then
    echo "building what has changed below $build"
else
    echo "building library, modules and examples below $build: a minute or two on two idle cores"
fi
echo "(the compiler's output goes to $build/make.log)"
generate
configure_in $build
logged $build/make.log make -C $build -j "$jobs" modules examples/example_train \
    examples/hello_allreduce examples/tour examples/persistent examples/unique_id examples/vector \
    bench/tutti_info
grep -q '^  CC' $build/make.log || echo "nothing has changed"
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
echo "starting two processes:"
echo "mpirun -np 2 $*"
cd "$here"
exec mpirun -np 2 "$@"
