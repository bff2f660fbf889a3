# SPDX-License-Identifier: BSD-3-Clause

%C%_test_no_block_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc
unit_tests += \
    %reldir%/test_aliases \
    %reldir%/test_avail \
    %reldir%/test_blocks \
    %reldir%/test_no_block \
    %reldir%/test_ranges \
    %reldir%/test_registered \
    %reldir%/test_shared

%C%_test_blocks_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=tutti__fork_generation
%C%_test_shared_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=madvise
