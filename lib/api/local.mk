# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/arguments.c \
    %reldir%/arguments.h \
    %reldir%/async.c \
    %reldir%/async_parts.c \
    %reldir%/collectives.c \
    %reldir%/comm.c \
    %reldir%/comm.h \
    %reldir%/cuda.c \
    %reldir%/device.c \
    %reldir%/device.h \
    %reldir%/device_direct.c \
    %reldir%/device_flat.c \
    %reldir%/device_lanes.c \
    %reldir%/device_memory.c \
    %reldir%/direct.c \
    %reldir%/direct.h \
    %reldir%/files.c \
    %reldir%/groups.c \
    %reldir%/info.c \
    %reldir%/info.h \
    %reldir%/memory.c \
    %reldir%/message.c \
    %reldir%/ops.c \
    %reldir%/parts.c \
    %reldir%/request.c \
    %reldir%/sides.c \
    %reldir%/sides.h \
    %reldir%/submit.c \
    %reldir%/submit.h \
    %reldir%/vector.c \
    %reldir%/world.c
