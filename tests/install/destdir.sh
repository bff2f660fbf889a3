#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# `make install DESTDIR=...` of this build: programs are compiled with the installed files and run.
# LD_LIBRARY_PATH and PATH are set, because the files are not in the configured folders.
set -u
top=$(cd "$srcdir" && pwd)
. "$top/tests/install/common.sh"
root=$work/root

find_mpirun "${MPI_LIBS:-}"
ask_folders
# Keep commit.h. Otherwise programs that other tests run at this time would be linked again.
must 'make install' make -o bench-commit -o bench/commit.h install DESTDIR="$root"

export PATH="$root$bindir:$PATH" LD_LIBRARY_PATH="$root$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export PKG_CONFIG_PATH="$root$libdir/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root"
has_tools "$root"
has_pages "$root"
runs_tools
has_names "$root$libdir/libtutti.a"
needs_little "$root$libdir/libtutti.so"
by_pkg_config
says_sum 1 "$work/shared"
says_sum 2 "$work/shared"
says_sum 1 "$work/static"
if command -v cmake >/dev/null; then
    by_cmake "$root$prefix"
    says_sum 2 "$work/cmake/shared"
fi

# A program that contains the library searches for modules in the configured folder.
if [ -n "$mpirun" ] && [ ! -d "$libdir/tutti" ]; then
    TUTTI_BOOT=mpi $mpirun -np 2 "$work/static" >"$work/log" 2>&1
    grep -qF "no MPI module fits, in $libdir/tutti:" "$work/log" ||
        wrong 'the static program looks elsewhere' "$work/log"
fi
TUTTI_MODULE_DIR=$root$libdir/tutti
export TUTTI_MODULE_DIR
says_sum 2 "$work/static"
[ ! -x "$work/cmake/static" ] || says_sum 2 "$work/cmake/static"

must 'make uninstall' make uninstall DESTDIR="$root"
nothing_left "$root$prefix"
finish
