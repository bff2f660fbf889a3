# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/call.h \
    %reldir%/call_kinds.c \
    %reldir%/call_prepare.c \
    %reldir%/call_sides.c \
    %reldir%/call_sides.h \
    %reldir%/staged.c \
    %reldir%/staged.h
