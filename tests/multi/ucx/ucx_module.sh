#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The UCX module without the library: the cases of ucx_module.c over TCP and over shared memory.
set -u

. "$srcdir/tests/long.sh"
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"

program=tests/multi/ucx/ucx_module
if ! test -e "$TUTTI_MODULE_DIR/ucx.so"; then
    echo "no module for UCX"
    exit 77
fi
errors=0
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

# passes CASE...: without a word of UCX, which would print warnings. One is left: of a long message
# that had arrived in part when its sender gave up.
passes()
{
    $program "$@" >"$log" 2>&1 || errors=$((errors + 1))
    if [ "$errors" -gt 0 ] ||
        grep "UCX  *\(WARN\|ERROR\)" "$log" | grep -v -q "was not returned to mpool"; then
        echo "FAILED: $* over ${UCX_TLS:-the default}"
        cat "$log"
        errors=$((errors + 1))
    fi
}

passes
# With error mode PEER, UCX uses its shared memory only if it is told to.
export UCX_MM_ERROR_HANDLING=y UCX_TLS=posix
passes data two quiet mismatch

test $errors -eq 0
