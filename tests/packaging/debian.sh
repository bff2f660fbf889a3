#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Builds the Debian packages of a copy of this tree, installs them into an empty Debian of the same
# release, and there compiles hello_allreduce and runs it with two ranks. Needs root (or sudo), the
# right to mount, and apt's mirror; without one of them the test is skipped (77). The test takes
# minutes.
#
# All files are in one temporary folder. All mounts and processes are in namespaces that end with
# this script.
set -u

top=$(cd "$(dirname "$0")/../.." && pwd) && cd "$top" || exit 1
. lib/build/setup.sh

skip() {
    echo "$1"
    exit 77
}

command -v dpkg-query >/dev/null || skip "not a Debian system"
mkdir -p build
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || skip "needs root"
    exec sudo --preserve-env=TUTTI_PACKAGES "$0"
fi
unshare --mount --pid --fork --mount-proc true 2>/dev/null || skip "this container may not mount"
[ "${TUTTI_PACKAGES:-}" != as-is ] || command -v debootstrap >/dev/null || skip "no debootstrap"
need_packages $BUILD_PACKAGES $DEBIAN_PACKAGES || exit 1

release=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' |
    awk -v release="$release" '$1 == release && $2 == "main" { print $3; exit }')
[ -n "$mirror" ] || skip "apt has no mirror of $release"

work=$(mktemp -d) || exit 1
root=$work/root
child=
leave() {
    trap '' HUP INT TERM
    [ -z "$child" ] || { kill -KILL "$child" && wait "$child"; } 2>/dev/null
    rm -rf --one-file-system "$work"
}
trap leave EXIT
trap 'exit 1' HUP INT TERM

# inside COMMAND...: runs the command in new namespaces, for half an hour at most. A signal ends the
# wait, and everything that the command has started ends with the first process of the namespace.
inside() {
    unshare --mount --pid --fork --kill-child --mount-proc timeout 1800 "$@" \
        >"$work/log" 2>&1 </dev/null &
    child=$!
    wait $child
    status=$?
    child=
    return $status
}

# step WHAT COMMAND...: runs the command inside; if it fails, the test ends.
step() {
    echo "$1"
    shift
    inside "$@" && return
    echo "failed: $*"
    tail -n 60 "$work/log"
    exit 1
}

# there WHAT COMMANDS: a step that the shell of the empty Debian runs.
there() {
    step "$1" sh -c 'mount -t proc proc "$1/proc" && mount -t sysfs -o ro sys "$1/sys" &&
        mount -t tmpfs tmp "$1/dev/shm" && exec chroot "$1" /bin/sh -euc "$2"' sh "$root" "$2"
}

# copy_tree: copies the files that git knows and new files, or all files of a release archive.
copy_tree() {
    if [ -e .git ]; then
        git -c safe.directory="$top" ls-files -z --cached --others --exclude-standard
    else
        find . -path ./build -prune -o -type f -print0
    fi | tar -c --null --ignore-failed-read -T - | tar -x -C "$work/tree"
}

mkdir "$work/tree" "$root" && copy_tree || exit 1
ln -s packaging/debian "$work/tree/debian" || exit 1
step "building packages" sh -c 'cd "$1" && exec dpkg-buildpackage -us -uc -b' sh "$work/tree"
grep -q "^tutti ($(sed -n 's/^#define TUTTI_VERSION_M[A-Z]* //p; s/^#define TUTTI_VERSION_PATCH //p' \
    include/tutti/version.h | paste -sd.))" packaging/debian/changelog ||
    { echo "packaging/debian/changelog has another version than version.h"; exit 1; }
if command -v lintian >/dev/null; then
    step "lintian" sh -c 'exec lintian --allow-root --fail-on error "$1"/*.changes' sh "$work"
    cat "$work/log"
fi

step "empty Debian" debootstrap --variant=minbase "$release" "$root" "$mirror"
mkdir "$root/packages" && mv "$work"/*.deb "$root/packages/" || exit 1
cp examples/hello_allreduce.c "$root/packages/" || exit 1
cp -L /etc/resolv.conf "$root/etc/" 2>/dev/null
echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/test"

install='export DEBIAN_FRONTEND=noninteractive
    install() { apt-get install -y --no-install-recommends "$@"; }
    cd /packages'
there "library" "$install"'
    apt-get update
    install gcc libc6-dev pkg-config ./libtutti0_*.deb ./libtutti-dev_*.deb'
there "a program without a launcher" '
    cd /packages
    cc hello_allreduce.c -o hello $(pkg-config --cflags --libs tutti)
    cc hello_allreduce.c -o static \
        $(pkg-config --cflags --static --libs tutti | sed s/-ltutti/-l:libtutti.a/)
    for program in ./hello ./static; do
        $program | grep "rank 0 of 1: the sum is 1"
        # If mpirun has started the program and there is no module, the message must be clear.
        if OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 $program >said 2>&1; then
            exit 1
        fi
        cat said
        grep "no MPI module fits, in .*/lib/.*/tutti: mpi_openmpi.so: " said
    done'
# The empty Debian shares the machine's network, so the port must be free there.
export port=$((20000 + $$ % 10000))
there "module for UCX" "$install"'
    install ./libtutti0-ucx_*.deb'
there "two hosts without MPI, which are pretended" '
    cd /packages
    export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
    export TUTTI_TRANSPORT=ucx TUTTI_LOG=info
    RANK=1 TUTTI_HOST_ID=b ./hello >said1 2>&1 &
    RANK=0 TUTTI_HOST_ID=a ./hello >said 2>&1 || { cat said; exit 1; }
    wait $!
    cat said1 >>said
    cat said
    [ "$(grep -c "of 2: the sum is 3\$" said)" -eq 2 ]
    [ "$(grep -c "messages between hosts: ucx" said)" -eq 2 ]'
there "module and programs" "$install"'
    install openmpi-bin ./libtutti0-openmpi_*.deb ./tutti-tools_*.deb'
there "two ranks" '
    cd /packages
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    mpirun="mpirun --oversubscribe --mca mpi_yield_when_idle 1 -np 2"
    for program in ./hello ./static; do
        $mpirun $program >said
        cat said
        [ "$(grep -c "of 2: the sum is 3\$" said)" -eq 2 ]
    done
    $mpirun tutti_allreduce --peer mpi -c -m 4:64 -i 2 -x 0
    tutti_sched list | grep allreduce:ring
    tutti_info >said
    cat said
    grep "mpi_openmpi.so  *loads" said
    dpkg -L libtutti-dev | grep "/man3/tutti_allreduce\.3"
    dpkg -L libtutti-dev | grep "/man7/tutti\.7"
    dpkg -L tutti-tools | grep "/man1/tutti_info\.1"'
there "removing packages" '
    rm -r /packages
    dpkg --purge tutti-tools libtutti-dev libtutti0-openmpi libtutti0-ucx libtutti0
    left=$(find / -xdev -name "*tutti*")
    echo "left: $left"
    [ -z "$left" ]'
echo "the Debian packages are right"
