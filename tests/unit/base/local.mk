# SPDX-License-Identifier: BSD-3-Clause

unit_tests += \
    %reldir%/test_base

tests_libtests_la_SOURCES += \
    %reldir%/capture.c \
    %reldir%/capture.h
