# SPDX-License-Identifier: BSD-3-Clause

unit_tests += \
    %reldir%/test_base \
    %reldir%/test_grown \
    %reldir%/test_handles \
    %reldir%/test_log_callback

tests_libtests_la_SOURCES += \
    %reldir%/capture.c \
    %reldir%/capture.h
