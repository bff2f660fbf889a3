#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# bench/tutti_allreduce: OSU's table, right results from all contestants, clear refusals. Its
# numbers are nobody's business here.
set -u

bench=bench/tutti_allreduce
errors=0
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
# Open MPI leaves memory behind in plugins that it has unloaded: there is no name left to suppress.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"

wrong()
{
    echo "$1"
    cat "$log"
    errors=$((errors + 1))
}

# rows N PATTERN WHAT: the table has N rows that look so, and no others.
rows()
{
    if [ "$status" -ne 0 ] || [ "$(grep -c '^[0-9]' "$log")" -ne "$1" ] ||
        [ "$(grep -cE "$2" "$log")" -ne "$1" ]; then
        wrong "$3: status $status"
    fi
}

# refuses WHAT ARGUMENT...
refuses()
{
    what=$1
    shift
    if $bench "$@" >"$log" 2>&1 || ! grep -q -e "$what" "$log"; then
        wrong "$bench $*: no '$what'"
    fi
}

number='+[0-9]+\.[0-9]+'

$bench -m 64 >"$log" 2>&1
status=$?
rows 5 "^[0-9]+ $number\$" "alone, OSU's two columns"
$bench -v >"$log" 2>&1 && grep -q '^# Tutti Allreduce Latency Test v' "$log" || wrong version
$bench -h >"$log" 2>&1 && grep -q 'message-size' "$log" || wrong help
refuses '-m 8:4' -m 8:4
refuses '-i 0' -i 0
refuses '-T char' -T char
refuses '-d cuda' -d cuda
refuses '--peer gloo' --peer gloo
refuses 'MPI has no such type' --peer mpi -T bfloat16

if [ -z "${MPI_LIBS:-}" ] || ! command -v "${MPIRUN:-mpirun}" >/dev/null 2>&1; then
    test $errors -eq 0
    exit
fi
mpirun=${MPIRUN:-mpirun}
case $($mpirun --version 2>&1) in
*"Open MPI"* | *OpenRTE*) mpirun="$mpirun --oversubscribe --mca mpi_yield_when_idle 1" ;;
esac

$mpirun -np 2 $bench -c -f -m 4:65536 -i 20 >"$log" 2>&1
status=$?
rows 15 "^[0-9]+ $number $number $number +20 +Pass\$" "-c -f"
$mpirun -np 3 $bench -c -m 1K:64K -i 20 --peer mpi --async --seed 7 >"$log" 2>&1
status=$?
rows 7 "^[0-9]+ $number +Pass( +-?[0-9]+\.[0-9]+){11}\$" "--peer mpi --async"
grep -q 'seed 7$' "$log" || wrong "the seed is not printed"
for flags in "-T int64 -l" "-T bfloat16" "-T uint8 --buffers shared" "--back-to-back --stats"; do
    $mpirun -np 3 $bench -c -m 8:32K -i 10 $flags >"$log" 2>&1
    status=$?
    rows 13 "^[0-9]+ .* Pass" "$flags"
done
test $errors -eq 0
