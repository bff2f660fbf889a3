# SPDX-License-Identifier: BSD-3-Clause

unit_tests += \
    %reldir%/test_base \
    %reldir%/test_handles \
    %reldir%/test_grown

tests_libtests_la_SOURCES += \
    %reldir%/capture.c \
    %reldir%/capture.h
