# SPDX-License-Identifier: BSD-3-Clause

unit_tests += \
    %reldir%/test_avail \
    %reldir%/test_blocks \
    %reldir%/test_ranges \
    %reldir%/test_shared

%C%_test_blocks_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=tutti__fork_generation
