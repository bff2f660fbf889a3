# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/arguments.c \
    %reldir%/arguments.h \
    %reldir%/async.c \
    %reldir%/blocking.c \
    %reldir%/blocking.h \
    %reldir%/call_args.h \
    %reldir%/check_memory.c \
    %reldir%/clocks.c \
    %reldir%/clocks.h \
    %reldir%/collectives.c \
    %reldir%/comm.c \
    %reldir%/comm.h \
    %reldir%/comm_files.c \
    %reldir%/comm_query.c \
    %reldir%/comm_state.h \
    %reldir%/connected.c \
    %reldir%/connected.h \
    %reldir%/cuda.c \
    %reldir%/groups.c \
    %reldir%/info.c \
    %reldir%/info.h \
    %reldir%/memory.c \
    %reldir%/ops.c \
    %reldir%/options.c \
    %reldir%/options.h \
    %reldir%/parts.c \
    %reldir%/recorder.c \
    %reldir%/request.c \
    %reldir%/shape.c \
    %reldir%/sides.c \
    %reldir%/sides.h \
    %reldir%/stats.c \
    %reldir%/submission.c \
    %reldir%/submission.h \
    %reldir%/transports.c \
    %reldir%/world.c
