# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/agreed.c \
    %reldir%/agreed.h \
    %reldir%/bucket.c \
    %reldir%/bucket.h \
    %reldir%/completion.c \
    %reldir%/completion.h \
    %reldir%/engine.c \
    %reldir%/engine.h \
    %reldir%/events.c \
    %reldir%/events.h \
    %reldir%/fuse.c \
    %reldir%/fuse.h \
    %reldir%/help.c \
    %reldir%/join.c \
    %reldir%/join.h \
    %reldir%/lanes.c \
    %reldir%/lanes.h \
    %reldir%/pending.c \
    %reldir%/pending.h \
    %reldir%/queued.c \
    %reldir%/queued.h \
    %reldir%/request.h \
    %reldir%/requests.c \
    %reldir%/run.c \
    %reldir%/run.h \
    %reldir%/semaphore.c \
    %reldir%/semaphore.h \
    %reldir%/signals.h \
    %reldir%/stalls.c \
    %reldir%/stalls.h \
    %reldir%/state.h \
    %reldir%/steps.c \
    %reldir%/steps.h \
    %reldir%/submit.c \
    %reldir%/thread.c \
    %reldir%/token.c \
    %reldir%/token.h \
    %reldir%/wait.c \
    %reldir%/wait.h \
    %reldir%/wait_calls.c \
    %reldir%/wait_loop.c \
    %reldir%/waiter.h
