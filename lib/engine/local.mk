# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/agreed.c \
    %reldir%/engine.c \
    %reldir%/engine.h \
    %reldir%/events.c \
    %reldir%/fuse.c \
    %reldir%/join.c \
    %reldir%/completion.c \
    %reldir%/lanes.c \
    %reldir%/pending.c \
    %reldir%/queued.c \
    %reldir%/requests.c \
    %reldir%/stalls.c \
    %reldir%/state.h \
    %reldir%/submit.c \
    %reldir%/thread.c \
    %reldir%/semaphore.c \
    %reldir%/token.c \
    %reldir%/help.c \
    %reldir%/run.c \
    %reldir%/run.h \
    %reldir%/wait.c \
    %reldir%/wait.h \
    %reldir%/wait_loop.c \
    %reldir%/wait_calls.c
