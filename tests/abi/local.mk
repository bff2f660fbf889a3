# SPDX-License-Identifier: BSD-3-Clause

api_tests += %reldir%/layout %reldir%/version_0
%C%_layout_LDADD = $(API_LIBS)
%C%_version_0_SOURCES = %reldir%/version_0.c %reldir%/tutti_0.h
%C%_version_0_LDADD = $(API_LIBS)
asan_quick += %reldir%/version_0
script_tests += %reldir%/man.sh %reldir%/symbols.sh
