#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The MPI module without the library: runs the cases of mpi_module.c under mpirun. Most cases
# succeed. If a case makes the job fail, the job must end soon, and the launcher must detect the
# failure.
set -u

# Open MPI leaks memory in plugins that it has unloaded, so suppressions cannot name it.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"

. "$srcdir/tests/long.sh"
. "$srcdir/tests/repeat.sh"

program=tests/multi/mpi/mpi_module
errors=0
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

if ! command -v "${MPIRUN:-mpirun}" >/dev/null 2>&1; then
    echo "no mpirun"
    exit 77
fi
mpirun=${MPIRUN:-mpirun}
case $($mpirun --version 2>&1) in
*"Open MPI"* | *OpenRTE*)
    module=$TUTTI_MODULE_DIR/mpi_openmpi.so
    never=0
    mpirun="$mpirun --oversubscribe --mca mpi_yield_when_idle 1"
    ;;
*)
    module=$TUTTI_MODULE_DIR/mpi_mpich.so
    never=124
    ;;
esac
if ! test -e "$module"; then
    echo "no module for this mpirun: $module"
    exit 77
fi

# launch RANKS CASES [FLAG]: sets $status
launch()
{
    by_mpirun "$log" "$log" timeout --kill-after=5 280 $mpirun ${3:-} -np "$1" \
        $program "$module" $2
}

wrong()
{
    echo "$1"
    cat "$log"
    errors=$((errors + 1))
}

# pass RANKS CASES: one job must pass all these cases.
pass()
{
    launch "$1" "$2"
    for case in $2; do
        passed=$(grep -c "^rank [0-9]*: $case passed" "$log")
        if [ "$status" -ne 0 ] || [ "$passed" -ne "$1" ]; then
            wrong "$case with $1 ranks: status $status, $passed passed"
        fi
    done
}

# passes RANKS CASE...: each case must pass, in a job of its own.
passes()
{
    ranks=$1
    shift
    for case; do
        pass "$ranks" "$case"
    done
}

common="data two_xports threads wrong_length lent cancel"
if is_long "2 and 4 ranks, and separate jobs of most cases"; then
    for ranks in 2 3 4; do
        passes $ranks $common
    done
    passes 1 data cancel
    passes 2 twice fork
    passes 3 twice
else
    pass 3 "$common twice"
    pass 1 "data cancel"
    pass 2 fork
fi
passes 2 app_single app_funneled app_serialized app_multiple app_ends_ours
passes 3 app_ends_first

# Rank 0 leaves at once while the other ranks sleep for a minute: the launcher ends the job. MPICH's
# launcher then ends with rank 0's status.
for case in give_up leave timeout timeout_first; do
    launch 3 $case
    if [ "$status" -eq 124 ] || [ "$status" -eq 137 ] || [ "$status" -eq "$never" ]; then
        wrong "$case: status $status"
    fi
    grep -q "^rank 0: $case passed" "$log" || wrong "$case: rank 0 did not pass"
done

# Rank 1 is killed, and the other ranks give up.
if [ "$never" -eq 0 ]; then
    launch 3 killed --enable-recovery
    if [ "$(grep -c "^rank [02]: killed passed" "$log")" -ne 2 ]; then
        wrong "killed: status $status"
    fi
fi

test $errors -eq 0
