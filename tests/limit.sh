#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs one test with a time limit: limit.sh TEST [ARGUMENT...]. TEST_SECONDS changes the limit, which
# is 300, and 1800 with TUTTI_TEST_LONG: beside other work, the proofs under ASan need more than 600.
# Tests on a real device have twice the limit, since they start CUDA and NCCL again and again, which
# takes seconds, and run one at a time.
#
# At most three times as many tests run at a time as there are processors, even if `make -j` starts
# more: otherwise tests would exceed TEST_SECONDS. Tests in TEST_WAITS do not count, because they mostly
# sleep. The time limit begins when the test has a place.
set -u

seconds=300
[ -z "${TUTTI_TEST_LONG:-}" ] || seconds=1800
seconds=${TEST_SECONDS:-$seconds}
session=
case $1 in
*tests/gpu/*)
    exec 8>tests/gpu.lock
    flock 8
    seconds=$((2 * seconds))
    ;;
esac
# One test at a time looks for a place; the others sleep until it is their turn to look.
case " ${TEST_WAITS:-} " in
*" tests/${1##*tests/} "*) ;;
*)
    exec 7>tests/place.turn.lock
    flock 7
    places=$((3 * $(nproc)))
    place=1
    exec 9>tests/place.$place.lock
    until flock -n 9; do
        place=$((place % places + 1))
        [ $place -gt 1 ] || sleep 0.1
        exec 9>tests/place.$place.lock
    done
    exec 7>&-
    ;;
esac
case $1 in
*tests/unit/* | *tests/abi/* | *tests/lint/*) ;;
*)
    # By default all jobs of Open MPI 4 share a folder, and one that ends removes it when it is empty:
    # then mpirun fails that was about to put its own into it.
    session=$(mktemp -d) || exit 1
    export OMPI_MCA_orte_tmpdir_base="$session"
    ;;
esac

run="timeout --kill-after=5 $seconds"

# ThreadSanitizer of GCC 12 and clang 14 cannot live with much address randomisation.
case ${SANITIZER:-no} in
*thread*)
    if setarch -R true 2>/dev/null; then
        run="setarch -R $run"
    fi
    ;;
esac

# In hundredths of a second: the machine's time, and the processor time of the children that ended.
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
