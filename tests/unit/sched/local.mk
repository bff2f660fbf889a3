# SPDX-License-Identifier: BSD-3-Clause

unit_tests += \
    %reldir%/test_bugs \
    %reldir%/test_build \
    %reldir%/test_check \
    %reldir%/test_check_blocks \
    %reldir%/test_check_results \
    %reldir%/test_promises \
    %reldir%/test_text

# Small schedules for the checker.
small = %reldir%/small.c %reldir%/small.h
%C%_test_bugs_SOURCES = %reldir%/test_bugs.c $(shapes) $(plant)
%C%_test_check_SOURCES = %reldir%/test_check.c $(small)
%C%_test_check_blocks_SOURCES = %reldir%/test_check_blocks.c $(small)
%C%_test_check_results_SOURCES = %reldir%/test_check_results.c $(small)
%C%_test_text_SOURCES = %reldir%/test_text.c $(shapes)
