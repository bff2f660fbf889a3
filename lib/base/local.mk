# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/atomic.h \
    %reldir%/compiler.h \
    %reldir%/constants.h \
    %reldir%/describe.c \
    %reldir%/describe.h \
    %reldir%/forked.c \
    %reldir%/forked.h \
    %reldir%/grown.c \
    %reldir%/grown.h \
    %reldir%/handles.c \
    %reldir%/handles.h \
    %reldir%/hash.h \
    %reldir%/kinds.c \
    %reldir%/kinds.h \
    %reldir%/lock.c \
    %reldir%/lock.h \
    %reldir%/log.c \
    %reldir%/log.h \
    %reldir%/log_callback.c \
    %reldir%/log_callback.h \
    %reldir%/own_thread.c \
    %reldir%/own_thread.h \
    %reldir%/names.c \
    %reldir%/names.h \
    %reldir%/status.c \
    %reldir%/status.h \
    %reldir%/time.h \
    %reldir%/types.c
