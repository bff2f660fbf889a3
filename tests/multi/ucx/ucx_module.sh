#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The UCX module without the library: the cases of ucx_module.c over TCP and over shared memory.
set -u

. "$srcdir/tests/long.sh"
. "$srcdir/tests/repeat.sh"
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"

program=tests/multi/ucx/ucx_module
if ! test -e "$TUTTI_MODULE_DIR/ucx.so"; then
    echo "no module for UCX"
    exit 77
fi
errors=0
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

# run_cases CASE...: sets $status
run_cases()
{
    $program "$@" >"$log" 2>&1
    status=$?
}

# passes CASE...: the cases must pass, and UCX may print no warning and no error.
passes()
{
    past_ucx "$log" run_cases "$@"
    [ $status -eq 0 ] || errors=$((errors + 1))
    if [ "$errors" -gt 0 ] || grep -q "UCX  *\(WARN\|ERROR\)" "$log"; then
        echo "FAILED: $* over ${UCX_TLS:-the default}"
        cat "$log"
        errors=$((errors + 1))
    fi
}

few=
runs="1 2 3"
is_long "most cases with 2 ranks, and most rounds" || { few=few runs=1; }
passes data
passes $few two threads quiet full anew mismatch placed cancel woken killed left_open lent
# If the other end gives up a connection, UCX prints errors.
for run in $runs; do
    $program $few connecting unreachable >"$log" 2>&1 && ! grep -q "UCX  *WARN" "$log" && continue
    echo "FAILED: connecting unreachable"
    cat "$log"
    errors=$((errors + 1))
done
# With error mode PEER, UCX uses its shared memory only with this setting.
export UCX_MM_ERROR_HANDLING=y UCX_TLS=posix
passes $few data two quiet full mismatch woken

test $errors -eq 0
