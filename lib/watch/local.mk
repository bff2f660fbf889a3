# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/depart.c \
    %reldir%/halted.c \
    %reldir%/watch_inside.h \
    %reldir%/late.c \
    %reldir%/links.c \
    %reldir%/links.h \
    %reldir%/orphan.c \
    %reldir%/watch.c \
    %reldir%/watch.h
