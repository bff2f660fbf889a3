# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/blockmap.h \
    %reldir%/build.c \
    %reldir%/build.h \
    %reldir%/chans.c \
    %reldir%/chans.h \
    %reldir%/check.c \
    %reldir%/check.h \
    %reldir%/check_cells.c \
    %reldir%/check_make.c \
    %reldir%/check_node.c \
    %reldir%/check_promise.c \
    %reldir%/check_run.c \
    %reldir%/check_run.h \
    %reldir%/check_sends.c \
    %reldir%/check_stuck.c \
    %reldir%/print.c \
    %reldir%/sched.c \
    %reldir%/sched.h \
    %reldir%/step.c \
    %reldir%/step.h \
    %reldir%/text.c \
    %reldir%/text.h \
    %reldir%/text_ops.c \
    %reldir%/valid.c \
    %reldir%/words.c \
    %reldir%/words.h
