# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/agreed.c \
    %reldir%/engine.c \
    %reldir%/engine.h \
    %reldir%/events.c \
    %reldir%/exchange.c \
    %reldir%/flat.c \
    %reldir%/flat.h \
    %reldir%/fuse.c \
    %reldir%/join.c \
    %reldir%/completion.c \
    %reldir%/lanes.c \
    %reldir%/on_device.c \
    %reldir%/pending.c \
    %reldir%/queued.c \
    %reldir%/requests.c \
    %reldir%/stalls.c \
    %reldir%/state.h \
    %reldir%/submit.c \
    %reldir%/thread.c \
    %reldir%/semaphore.c \
    %reldir%/token.c \
    %reldir%/wait.c \
    %reldir%/wait_calls.c
