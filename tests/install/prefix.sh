#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs configure --prefix --libdir, make and make install, and then moves the build folder away.
# Programs are compiled with the installed files and run, without environment variables such as
# LD_LIBRARY_PATH. The same is tested after the installed tree was moved to another place, and
# without the parts that configure can omit. This test is not part of a build.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd)
. "$top/tests/install/common.sh"
prefix=$work/usr
bindir=$prefix/bin
machine=$(${CC:-cc} -print-multiarch)
libdir=$prefix/lib${machine:+/$machine}
mandir=$prefix/share/man
jobs=$(nproc)

# build_with FLAG...: builds without optimisation, because nothing is measured.
build_with() {
    must 'configure' "$top/configure" CC="${CC:-cc}" CFLAGS=-O0 --prefix="$prefix" \
        --libdir="$libdir" --with-cuda=no "$@"
    must 'make' make -j "$jobs"
}

[ -x "$top/configure" ] || must 'autogen.sh' "$top/autogen.sh"
mkdir "$work/build" && cd "$work/build" || exit 1
build_with --disable-tools --disable-static
find_mpirun "$(sed -n 's/^MPI_LIBS = *//p' Makefile)"
must 'make install' make install
[ ! -e "$bindir" ] || wrong '--disable-tools installs programs'
[ ! -e "$mandir/man1" ] || wrong '--disable-tools installs the pages of programs'
[ -s "$mandir/man7/tutti.7" ] || wrong '--disable-tools omits tutti(7)'
[ ! -e "$libdir/libtutti.a" ] || wrong '--disable-static installs the static library'
must 'make uninstall' make uninstall
nothing_left "$prefix"

build_with
must 'make install' make install
cd "$work" && mv build built

export PKG_CONFIG_PATH="$libdir/pkgconfig"
has_tools ""
has_pages ""
PATH=$bindir:$PATH
runs_tools
by_pkg_config
must 'rpath' ${CC:-cc} "$hello_c" -o "$work/shared" $(pkg-config --cflags --libs tutti) \
    -Wl,-rpath,"$libdir"
for ranks in 1 2; do
    says_sum $ranks "$work/shared"
    says_sum $ranks "$work/static"
done
if command -v cmake >/dev/null; then
    by_cmake "$prefix"
    says_sum 2 "$work/cmake/shared"
    says_sum 2 "$work/cmake/static"
fi

# After the move the modules are still beside the library, and headers and libraries beside the
# CMake package.
mv "$prefix" "$work/moved"
export LD_LIBRARY_PATH="$work/moved${libdir#"$prefix"}"
says_sum 2 "$work/shared"
if command -v cmake >/dev/null; then
    by_cmake "$work/moved"
    says_sum 2 "$work/cmake/shared"
fi
mv "$work/moved" "$prefix"

mv built build && cd build || exit 1
must 'make uninstall' make uninstall
nothing_left "$prefix"
finish
