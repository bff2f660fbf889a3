# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/add.h \
    %reldir%/counting.c \
    %reldir%/http.c \
    %reldir%/metrics.c \
    %reldir%/output.c \
    %reldir%/phase.c \
    %reldir%/read.c \
    %reldir%/stats.h \
    %reldir%/stats_inside.h \
    %reldir%/summary.c
