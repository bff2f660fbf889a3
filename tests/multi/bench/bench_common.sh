# SPDX-License-Identifier: BSD-3-Clause
#
# Shared by the tests of the bench programs; sourced by them. They do not check measured numbers.

. "$srcdir/tests/long.sh"
. "$srcdir/tests/repeat.sh"

errors=0
log=$(mktemp) || exit 1
files=$(mktemp -d) || exit 1
trap 'rm -rf "$log" "$files"' EXIT
# Open MPI leaks memory in plugins that it has unloaded, so suppressions cannot name it.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"

by_hand=
mpirun=
if [ -n "${MPI_LIBS:-}" ] && command -v "${MPIRUN:-mpirun}" >/dev/null 2>&1; then
    mpirun=${MPIRUN:-mpirun}
    case $($mpirun --version 2>&1) in
    *"Open MPI"* | *OpenRTE*) mpirun="$mpirun --oversubscribe --mca mpi_yield_when_idle 1" ;;
    esac
fi

number='+-?[0-9]+\.[0-9]+'

wrong()
{
    echo "$1"
    cat "$log"
    errors=$((errors + 1))
}

# ran COMMAND...: runs the command, with its output in $log and its status in $status.
ran()
{
    by_mpirun "$log" "$log" "$@"
}

# rows N PATTERN WHAT: the table has N rows that match, and no others.
rows()
{
    if [ "$status" -ne 0 ] || [ "$(grep -cE '^ *[0-9]' "$log")" -ne "$1" ] ||
        [ "$(grep -cE "$2" "$log")" -ne "$1" ]; then
        wrong "$3: status $status"
    fi
}

# refuses WHAT COMMAND...: the command must fail, with WHAT in its output.
refuses()
{
    what=$1
    shift
    ran "$@"
    if [ $status -eq 0 ] || ! grep -q -e "$what" "$log"; then
        wrong "$*: status $status, or no '$what'"
    fi
}

# misuse WHAT COMMAND...: as refuses, and the status must be the status for a wrong option.
misuse()
{
    refuses "$@"
    [ $status -eq 2 ] || wrong "$*: status $status instead of 2"
}

# by_hand: makes $by_hand, a launcher for ranks of this host that starts faster than mpirun:
# $by_hand N COMMAND... Its status is that of the last rank that failed.
by_hand()
{
    by_hand="$files/ranks"
    cat >"$by_hand" <<'END'
#!/bin/sh
folder=${0%/*}
export TUTTI_BOOT="local:bench-${folder##*/}-$$" TUTTI_SIZE="$1"
shift
rank=0
pids=
while [ $rank -lt "$TUTTI_SIZE" ]; do
    TUTTI_RANK=$rank "$@" &
    pids="$pids $!"
    rank=$((rank + 1))
done
status=0
for pid in $pids; do
    wait $pid || status=$?
done
exit $status
END
    chmod +x "$by_hand"
}

finish()
{
    test $errors -eq 0
    exit
}
