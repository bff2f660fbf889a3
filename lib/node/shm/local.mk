# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/chunks.c \
    %reldir%/compare.c \
    %reldir%/cut.c \
    %reldir%/levels.c \
    %reldir%/open.c \
    %reldir%/repeat.c \
    %reldir%/shm.c \
    %reldir%/shm.h \
    %reldir%/zero.c
