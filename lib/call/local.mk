# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/cached.c \
    %reldir%/cached.h \
    %reldir%/call.h \
    %reldir%/call_kinds.c \
    %reldir%/call_prepare.c \
    %reldir%/call_sides.c \
    %reldir%/call_sides.h \
    %reldir%/compare_calls.c \
    %reldir%/compare_calls.h \
    %reldir%/device_gpu_direct.c \
    %reldir%/device_flat.c \
    %reldir%/device_lanes.c \
    %reldir%/device_meet.c \
    %reldir%/device_meet.h \
    %reldir%/device_nccl.c \
    %reldir%/device_route.c \
    %reldir%/device_setup.c \
    %reldir%/device_setup.h \
    %reldir%/env.h \
    %reldir%/exchange.c \
    %reldir%/exchange.h \
    %reldir%/call_inside.h \
    %reldir%/operation.c \
    %reldir%/operation.h \
    %reldir%/own.c \
    %reldir%/pairs.c \
    %reldir%/pairs.h \
    %reldir%/ride.c \
    %reldir%/ride.h \
    %reldir%/sequencer.c \
    %reldir%/sequencer.h \
    %reldir%/staged.c \
    %reldir%/staged.h \
    %reldir%/what.c \
    %reldir%/what.h
