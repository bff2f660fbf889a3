# SPDX-License-Identifier: BSD-3-Clause

unit_tests += \
    %reldir%/test_bugs \
    %reldir%/test_build \
    %reldir%/test_check \
    %reldir%/test_promises \
    %reldir%/test_text

%C%_test_bugs_SOURCES = %reldir%/test_bugs.c $(shapes) $(plant)
%C%_test_text_SOURCES = %reldir%/test_text.c $(shapes)
