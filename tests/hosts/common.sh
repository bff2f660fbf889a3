# SPDX-License-Identifier: BSD-3-Clause
#
# Sourced by the scripts in this folder. Finds mpirun and a module for it, or exits with 77. Has
# functions that run a program's ranks and count the successful ones.

. "$(dirname "$0")/../long.sh"
. "$(dirname "$0")/../repeat.sh"

# Open MPI leaks memory in plugins that it has unloaded, so suppressions cannot name these leaks.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
# If a rank hangs, this ends it with an error that names the call.
export TUTTI_TIMEOUT=60

errors=0
limit=100
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

skip()
{
    echo "$1"
    exit 77
}

mpirun=${MPIRUN:-mpirun}
command -v "$mpirun" >/dev/null 2>&1 || skip "no mpirun"
case $($mpirun --version 2>&1) in
*"Open MPI"* | *OpenRTE*)
    mpi=openmpi
    # The options are those of users, without yield_when_idle and the like.
    mpirun="$mpirun --oversubscribe"
    ;;
*) mpi=mpich ;;
esac
test -e "$TUTTI_MODULE_DIR/mpi_$mpi.so" || skip "no module for this mpirun"

# wrong WHAT: report a failure, with the ranks' output
wrong()
{
    echo "FAILED: $1"
    cat "$log"
    errors=$((errors + 1))
}

# launch ARGUMENT...: runs mpirun for at most $limit seconds; sets $status
launch()
{
    by_mpirun "$log" "$log" timeout --kill-after=5 $limit $mpirun "$@"
}

# passed N PATTERN: all ranks must have succeeded, and N lines must match
passed()
{
    lines=$(grep -c -e "$2" "$log")
    if [ "$status" -ne 0 ] || [ "$lines" -ne "$1" ]; then
        wrong "$what: status $status, $lines of $1 ranks passed"
    fi
}

# on_hosts A B [C]: runs A, B and C ranks of $program on the pretended hosts a, b and c; sets
# $status
on_hosts()
{
    a="-np $1 env TUTTI_HOST_ID=a $program"
    b="-np $2 env TUTTI_HOST_ID=b $program"
    if [ $# -eq 3 ]; then
        launch $a : $b : -np "$3" env TUTTI_HOST_ID=c $program
    else
        launch $a : $b
    fi
}
