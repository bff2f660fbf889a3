# SPDX-License-Identifier: BSD-3-Clause

unit_tests += \
    %reldir%/test_check_all \
    %reldir%/test_select

# Placings of ranks, and all ranks' schedules for them.
shapes = %reldir%/shapes.c %reldir%/shapes.h
%C%_test_check_all_SOURCES = %reldir%/test_check_all.c $(shapes)
%C%_test_select_SOURCES = %reldir%/test_select.c $(shapes)
