# SPDX-License-Identifier: BSD-3-Clause

unit_tests += \
    %reldir%/test_isa \
    %reldir%/test_narrow \
    %reldir%/test_nontemporal \
    %reldir%/test_offsets \
    %reldir%/test_user
early_unit_tests += \
    %reldir%/test_large \
    %reldir%/test_reduce

# A second implementation of types.h.
reference = %reldir%/reference.c %reldir%/reference.h
%C%_test_narrow_SOURCES = %reldir%/test_narrow.c $(reference)
%C%_test_offsets_SOURCES = %reldir%/test_offsets.c $(reference)
%C%_test_reduce_SOURCES = %reldir%/test_reduce.c $(reference)
