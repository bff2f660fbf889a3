# SPDX-License-Identifier: BSD-3-Clause
#
# What tests/run.sh and examples/quickstart.sh share: packages, autogen, configure. To be sourced by
# a script that has set top, the source directory, and has changed to it.
#
# All of it is cheap when there is nothing to do.

BUILD_PACKAGES="gcc libc6-dev make autoconf automake libtool pkg-config libhwloc-dev libopenmpi-dev
    openmpi-bin libjansson-dev"
TRAIN_PACKAGES="libopenblas-dev zlib1g-dev dataset-fashion-mnist"
TEST_PACKAGES="g++ clang binutils cmake libcmocka-dev libucx-dev xz-utils iproute2"
DEBIAN_PACKAGES="build-essential debhelper debootstrap"
PLOT_PACKAGES="gnuplot-nox" # only for --plot

jobs=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) # which obeys them

if [ "$(id -u)" -eq 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# Make starts libtool, a shell script, for every file. In dash each start takes 30 ms instead of 60:
# the build of the tests takes 178 s of a processor instead of 205.
[ ! -x /bin/dash ] || export CONFIG_SHELL=/bin/dash

# alone NAME: waits until no other script of this name runs in this tree.
alone() {
    mkdir -p build
    exec 8>"build/$1.lock"
    flock -n 8 || { echo "waiting for another $1 in this directory"; flock 8; }
}

# logged FILE COMMAND...: runs it silently; if it fails, shows the end of what it said.
logged() {
    log_file=$1
    shift
    mkdir -p "$(dirname "$log_file")"
    "$@" >"$log_file" 2>&1 </dev/null && return
    echo "failed: $*"
    echo "the end of $log_file:"
    tail -n 60 "$log_file"
    return 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 \
        install -y --no-install-recommends "$@"
}

apt_update_and_install() {
    as_root apt-get update && apt_install "$@"
}

# need_packages NAME...: installs those that are missing. Package lists are fetched only if apt
# cannot do with those it has.
need_packages() {
    if ! command -v dpkg-query >/dev/null; then
        echo "not a Debian system: $* must be there already"
        return
    fi
    if [ "${TUTTI_PACKAGES:-}" = as-is ]; then
        echo "nothing is installed; what is missing is left out"
        return
    fi
    missing=
    for package in "$@"; do
        state=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) || state=
        [ "$state" = "install ok installed" ] || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
        echo "please install:$missing"
        return 1
    fi
    echo "installing:$missing"
    apt_install $missing >build/packages.log 2>&1 </dev/null ||
        logged build/packages.log apt_update_and_install $missing
}

# Makes configure and Makefile.in if one of their sources is newer.
generate() {
    changed=$(find configure.ac Makefile.am include lib bench examples packaging python tests \
        \( -name '*.m4' -o -name '*.mk' -o -name configure.ac -o -name Makefile.am \) \
        -newer m4/generated 2>/dev/null | head -n 1)
    if [ ! -e m4/generated ] || [ ! -e configure ] || [ -n "$changed" ]; then
        logged build/autogen.log ./autogen.sh && touch m4/generated
    fi
}

# configure_in DIR ARGUMENT...: again only if the arguments or the packages have changed.
configure_in() {
    dir=$1
    shift
    mkdir -p "$dir"
    wanted="$* $(dpkg-query -W $BUILD_PACKAGES $TRAIN_PACKAGES $TEST_PACKAGES 2>/dev/null || true)"
    if [ ! -e "$dir/config.status" ] || [ "$wanted" != "$(cat "$dir/configured" 2>/dev/null)" ]; then
        (cd "$dir" && logged configure.log "$top/configure" "$@") || return
        printf '%s\n' "$wanted" >"$dir/configured"
    elif [ Makefile.in -nt "$dir/Makefile" ]; then
        (cd "$dir" && logged configure.log ./config.status)
    fi
}
