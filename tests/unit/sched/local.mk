# SPDX-License-Identifier: BSD-3-Clause

unit_tests += \
    %reldir%/test_bugs \
    %reldir%/test_build \
    %reldir%/test_check

%C%_test_bugs_SOURCES = %reldir%/test_bugs.c $(shapes)
