# SPDX-License-Identifier: BSD-3-Clause
#
# quick.sh is the only test of the Python package in `make check`; tests/python.sh runs them all.

script_tests += %reldir%/quick.sh
EXTRA_DIST += tests/python.sh %reldir%
