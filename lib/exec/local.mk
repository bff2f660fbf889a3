# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/use_device.c \
    %reldir%/exec_device.h \
    %reldir%/gpu_direct.c \
    %reldir%/ends.c \
    %reldir%/exec.c \
    %reldir%/exec.h \
    %reldir%/exec_inside.h \
    %reldir%/framed.c \
    %reldir%/on_device.c \
    %reldir%/place.c \
    %reldir%/progress.c \
    %reldir%/sends.c \
    %reldir%/start.c \
    %reldir%/wire.c
