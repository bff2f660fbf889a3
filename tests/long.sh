# SPDX-License-Identifier: BSD-3-Clause
#
# The counterpart of long.h for test scripts, which source it.

# is_long WHAT: must the test run in its long form? If not, prints that WHAT is left out. A test
# calls this function once.
is_long()
{
    [ -n "${TUTTI_TEST_LONG:-}" ] && return
    echo "quick form: without $1"
    return 1
}
