#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Tests the Python package with the library of this build: its collectives on numpy arrays, with two
# ranks and without a network. The long form also tests requests, errors, meetings and the launcher.
# Without numpy it is skipped.
set -u

top=$(cd "$srcdir" && pwd)
. "$top/tests/long.sh"

skip() {
    echo "$1"
    exit 77
}

# The interpreter is not built with a sanitizer, so the sanitizer of the library would have to be
# loaded before the interpreter.
case ${SANITIZER:-no} in
no) ;;
*) skip "a build with a sanitizer" ;;
esac
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || skip "no Python 3.9"
python3 -c 'import numpy' 2>/dev/null || skip "no numpy"

export PYTHONPATH="$top/python" PYTHONDONTWRITEBYTECODE=1
export LD_LIBRARY_PATH="$PWD/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

tests=$top/tests/python/test_collectives.py
if is_long "requests, errors, meetings, the launcher, and numbers of ranks other than 2"; then
    tests=$(echo "$top"/tests/python/test_[acelm]*.py)
else
    export TUTTI_TEST_SIZES=2
fi
failed=0
for test in $tests; do
    echo "$test:"
    python3 "$test" || failed=1
done
exit $failed
