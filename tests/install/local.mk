# SPDX-License-Identifier: BSD-3-Clause
#
# prefix.sh compiles the library, so only run.sh --long starts it.

script_tests += %reldir%/destdir.sh
EXTRA_DIST += %reldir%/common.sh %reldir%/prefix.sh
