# SPDX-License-Identifier: BSD-3-Clause

api_tests += %reldir%/layout
tests_abi_layout_LDADD = $(API_LIBS)
script_tests += %reldir%/man.sh %reldir%/symbols.sh
