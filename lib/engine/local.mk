# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/agree.c \
    %reldir%/engine.c \
    %reldir%/engine.h \
    %reldir%/lanes.c \
    %reldir%/links.c \
    %reldir%/requests.c \
    %reldir%/state.h \
    %reldir%/thread.c \
    %reldir%/token.c \
    %reldir%/wait.c \
    %reldir%/watch.c
