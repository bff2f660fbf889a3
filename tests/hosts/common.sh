# SPDX-License-Identifier: BSD-3-Clause
#
# Sourced by the scripts here: finds mpirun and a module for it, or ends with 77; runs a program's
# ranks and counts those that passed.

. "$(dirname "$0")/../long.sh"

# Open MPI leaves memory behind in plugins that it has unloaded: there is no name left to suppress.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
# A hang is an error that says where.
export TUTTI_TIMEOUT=30

errors=0
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
    # As users have it: no yield_when_idle and the like.
    mpirun="$mpirun --oversubscribe"
    ;;
*) mpi=mpich ;;
esac
test -e "$TUTTI_MODULE_DIR/mpi_$mpi.so" || skip "no module for this mpirun"

# wrong WHAT: show what the ranks have said
wrong()
{
    echo "FAILED: $1"
    cat "$log"
    errors=$((errors + 1))
}

# launch ARGUMENT...: mpirun with a time limit; sets $status
launch()
{
    timeout --kill-after=5 60 $mpirun "$@" >"$log" 2>&1
    status=$?
}

# passed N PATTERN: all ranks have ended well, N with such a line
passed()
{
    lines=$(grep -c -e "$2" "$log")
    if [ "$status" -ne 0 ] || [ "$lines" -ne "$1" ]; then
        wrong "$what: status $status, $lines of $1 ranks passed"
    fi
}
