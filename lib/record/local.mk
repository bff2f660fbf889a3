# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/dump.c \
    %reldir%/put.c \
    %reldir%/put.h \
    %reldir%/record.c \
    %reldir%/record.h \
    %reldir%/recorders.h \
    %reldir%/trace.c \
    %reldir%/trace.h \
    %reldir%/trace_json.c
