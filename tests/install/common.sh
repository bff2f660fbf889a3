# SPDX-License-Identifier: BSD-3-Clause
#
# Sourced by the tests of the files that `make install` installs. Needs the variable top, the source
# directory.

. "$top/tests/repeat.sh"

errors=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
hello_c=$top/examples/hello_allreduce.c

# The tests start a separate make. It must not use the flags and jobs of the make that has started
# the test.
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
# Modules must be found without variables. Settings of this machine must not be used.
unset TUTTI_MODULE_DIR
export TUTTI_TUNED=none
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

case ${SANITIZER:-no} in
no) ;;
*)
    echo "a library with a sanitizer is not for installing"
    exit 77
    ;;
esac

# find_mpirun LIBS: sets mpirun, if the build has MPI; LIBS are MPI's libraries.
mpirun=
find_mpirun() {
    [ -n "$1" ] && command -v "${MPIRUN:-mpirun}" >/dev/null 2>&1 || return 0
    mpirun=${MPIRUN:-mpirun}
    case $($mpirun --version 2>&1) in
    *"Open MPI"* | *OpenRTE*) mpirun="$mpirun --oversubscribe --mca mpi_yield_when_idle 1" ;;
    esac
}

# wrong WHAT [FILE...]: counts an error and shows the files.
wrong() {
    echo "wrong: $1"
    shift
    for shown; do
        sed "s/^/    ${shown##*/}: /" "$shown"
    done
    errors=$((errors + 1))
}

# must WHAT COMMAND...: the command must succeed, otherwise the test ends. Its output is in
# $work/log.
must() {
    what=$1
    shift
    by_mpirun "$work/log" "$work/log" "$@"
    [ $status -ne 0 ] || return
    wrong "$what: $*" "$work/log"
    exit 1
}

# ask_folders: sets prefix, bindir, libdir, includedir and mandir to the folders of the build in the
# current folder.
ask_folders() {
    folders=$(make -s --no-print-directory --eval='folders:;@echo $(prefix) $(bindir) $(libdir) \
        $(includedir) $(mandir)' folders) || exit 1
    read -r prefix bindir libdir includedir mandir <<END
$folders
END
}

# says_sum RANKS PROGRAM: RANKS ranks of the program must print the sum. One rank runs without a
# launcher.
says_sum() {
    launch=
    if [ "$1" -gt 1 ]; then
        [ -n "$mpirun" ] || return 0
        launch="$mpirun -np $1"
    fi
    by_mpirun "$work/out" "$work/log" $launch "$2"
    sum=$(($1 * ($1 + 1) / 2))
    if [ $status -ne 0 ] || [ "$(grep -c "of $1: the sum is $sum\$" "$work/out")" -ne "$1" ]; then
        wrong "$2 with $1 ranks ended with $status" "$work/out" "$work/log"
    fi
}

# has_tools ROOT: each program of bench/ must be installed below ROOT. No program may contain the
# name of the build folder, and programs that link the library must use the installed library.
has_tools() {
    for source in "$top"/bench/tutti_*.c; do
        tool=$1$bindir/$(basename "$source" .c)
        if [ ! -x "$tool" ]; then
            wrong "$tool is not installed"
            continue
        fi
        if readelf -d "$tool" | grep -E 'R(UN)?PATH' >"$work/log" && grep -q '/\.libs' "$work/log"; then
            wrong "$tool finds libraries in the build folder" "$work/log"
        fi
        ldd "$tool" >"$work/log"
        if grep -q libtutti "$work/log" && ! grep -qF "=> $1$libdir/libtutti.so" "$work/log"; then
            wrong "$tool uses another library than the installed one" "$work/log"
        fi
    done
}

# has_pages ROOT: the manual pages of functions, of the library and of each program must be
# installed below ROOT.
has_pages() {
    for page in man3/tutti_allreduce.3 man3/tutti_init.3 man7/tutti.7 \
        $(for source in "$top"/bench/tutti_*.c; do echo "man1/$(basename "$source" .c).1"; done); do
        [ -s "$1$mandir/$page" ] || wrong "$1$mandir/$page is not installed"
    done
    man --version 2>/dev/null | grep -q '^man ' || return 0
    MANPATH=$1$mandir man tutti_allreduce >"$work/log" 2>&1 &&
        grep -q '^SYNOPSIS' "$work/log" || wrong 'man tutti_allreduce' "$work/log"
}

# runs_tools: runs programs that contain the library, and programs that link it. All must be in
# PATH.
runs_tools() {
    must 'tutti_info' tutti_info
    must 'tutti_sched' tutti_sched print allreduce:ring -n 3
    must 'tutti_allreduce' ${mpirun:+$mpirun -np 2} tutti_allreduce -c -m 4:1K -i 2 -x 0
}

# has_names LIBRARY: the static library may define only global names that begin with tutti_.
has_names() {
    "${NM:-nm}" -g --defined-only "$1" | awk 'NF == 3 { print $3 }' >"$work/all"
    grep -q '^tutti_allreduce$' "$work/all" || wrong "$1 has no tutti_allreduce"
    grep -v '^tutti_' "$work/all" >"$work/out" && wrong "$1 defines global names" "$work/out"
}

# needs_little LIBRARY: the shared library may need only hwloc and the C library. MPI, UCX, PMIx,
# PMI-2, libcrypto, CUDA and NCCL are opened at run time, or a module needs them.
needs_little() {
    readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p' >"$work/all"
    grep -q '^libc\.' "$work/all" || wrong "readelf prints no C library for $1" "$work/all"
    grep -vE '^(ld-.*|lib(c|m|dl|rt|pthread|atomic|gcc_s|hwloc)\..*)$' "$work/all" >"$work/out" &&
        wrong "$1 needs more libraries" "$work/out"
}

# by_pkg_config: compiles $work/shared and $work/static with the help of pkg-config.
by_pkg_config() {
    must 'pkg-config' pkg-config --cflags --static --libs tutti
    must 'shared' ${CC:-cc} "$hello_c" -o "$work/shared" $(pkg-config --cflags --libs tutti)
    must 'static' ${CC:-cc} "$hello_c" -o "$work/static" \
        $(pkg-config --cflags --static --libs tutti | sed 's/-ltutti/-l:libtutti.a/')
    ldd "$work/static" >"$work/log"
    grep -q libtutti "$work/log" && wrong 'the static program uses the shared library' "$work/log"
}

# by_cmake PREFIX: compiles $work/cmake/shared and static with the help of CMake.
by_cmake() {
    rm -rf "$work/project" "$work/cmake"
    mkdir "$work/project"
    cat >"$work/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.13)
project(hello C)
find_package(tutti 99 QUIET)
if(tutti_FOUND)
    message(FATAL_ERROR "version 99 is here")
endif()
find_package(tutti 0.1 REQUIRED)
add_executable(shared $hello_c)
target_link_libraries(shared tutti::tutti)
add_executable(static $hello_c)
target_link_libraries(static tutti::static)
END
    must 'cmake' cmake -S "$work/project" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$1"
    must 'cmake --build' cmake --build "$work/cmake"
    ldd "$work/cmake/static" >"$work/log"
    grep -q libtutti "$work/log" && wrong 'CMake links the shared library' "$work/log"
}

# nothing_left FOLDER: after `make uninstall`, FOLDER, the prefix below DESTDIR, must have no file,
# and no folder with this library's name.
nothing_left() {
    [ -d "$1" ] || return 0
    find "$1" -mindepth 1 \( ! -type d -o -name '*tutti*' \) >"$work/left"
    [ ! -s "$work/left" ] || wrong "make uninstall leaves files" "$work/left"
}

# finish: ends the test; it is skipped if CMake was not found.
finish() {
    [ $errors -eq 0 ] || exit 1
    command -v cmake >/dev/null && exit 0
    echo "no cmake: all but find_package was tried"
    exit 77
}
