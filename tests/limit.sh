#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs one test with a time limit: limit.sh TEST [ARGUMENT...]. The limit is TEST_SECONDS, by
# default 600, or 1800 with TUTTI_TEST_LONG, because the proofs under ASan need more than 600 if
# other tests run at the same time. Tests on a real device run one at a time. Their limit is twice
# as long, because they start CUDA and NCCL again and again, and each start takes seconds.
#
# The number of tests that run at a time is at most twice the number of processors, even if
# `make -j` starts more: otherwise tests would exceed TEST_SECONDS. The other tests wait for a free
# place, and the time limit begins after this wait. Tests in TEST_WAITS need no place, because they
# mostly sleep. run.sh runs the tests of several builds at the same time, and sets TEST_LOCKS to one
# folder for the locks of all of them.
set -u

locks=${TEST_LOCKS:-tests}

seconds=600
[ -z "${TUTTI_TEST_LONG:-}" ] || seconds=1800
seconds=${TEST_SECONDS:-$seconds}
session=
case $1 in
*tests/gpu/*)
    exec 8>"$locks/gpu.lock"
    flock 8
    seconds=$((2 * seconds))
    ;;
esac
# Only one test at a time searches for a free place; the other tests sleep on a lock until then.
case " ${TEST_WAITS:-} " in
*" tests/${1##*tests/} "*) ;;
*)
    exec 7>"$locks/place.turn.lock"
    flock 7
    places=$((2 * $(nproc)))
    place=1
    exec 9>"$locks/place.$place.lock"
    until flock -n 9; do
        place=$((place % places + 1))
        [ $place -gt 1 ] || sleep 0.1
        exec 9>"$locks/place.$place.lock"
    done
    exec 7>&-
    ;;
esac
case $1 in
*tests/unit/* | *tests/abi/* | *tests/lint/*) ;;
*)
    # By default all jobs of Open MPI 4 share a folder. A job that ends removes this folder if it is
    # empty. If another mpirun is about to make its own folder in this folder, that mpirun fails.
    session=$(mktemp -d) || exit 1
    export OMPI_MCA_orte_tmpdir_base="$session"
    ;;
esac

run="timeout --kill-after=5 $seconds"

# ThreadSanitizer of GCC 12 and clang 14 fails if addresses are randomised by many bits.
case ${SANITIZER:-no} in
*thread*)
    if setarch -R true 2>/dev/null; then
        run="setarch -R $run"
    fi
    ;;
esac

# Sets now, the time since the machine's start, and used, the processor time of the children that
# have ended. Both are in hundredths of a second.
read_clocks()
{
    read -r now rest </proc/uptime
    now=${now%.*}${now#*.}
    set -- $(cat /proc/$$/stat)
    used=$((${16} + ${17}))
}

seconds_of()
{
    printf '%d.%02d s' $(($1 / 100)) $(($1 % 100))
}

read_clocks
began=$now
used_before=$used
$run "$@" 8>&- 9>&- </dev/null
status=$?
read_clocks
# run.sh reads this line.
echo "time: $(seconds_of $((now - began))), processor $(seconds_of $((used - used_before)))"
if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
    echo "$1: stopped after $seconds s" >&2
fi
test -z "$session" || rm -rf "$session"
exit "$status"
