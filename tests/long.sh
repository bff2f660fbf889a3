# SPDX-License-Identifier: BSD-3-Clause
#
# For test scripts, what long.h is for programs; sourced by them.

# is_long WHAT: is the test to run whole? If not, says that WHAT is left out. A test asks once.
is_long()
{
    [ -n "${TUTTI_TEST_LONG:-}" ] && return
    echo "quick form: without $1"
    return 1
}
