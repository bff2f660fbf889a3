# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/async.c \
    %reldir%/collectives.c \
    %reldir%/comm.c \
    %reldir%/comm.h \
    %reldir%/memory.c \
    %reldir%/world.c
