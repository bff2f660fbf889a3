# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/aliases.c \
    %reldir%/aliases.h \
    %reldir%/anonymous.c \
    %reldir%/anonymous.h \
    %reldir%/avail.c \
    %reldir%/avail.h \
    %reldir%/blocks.c \
    %reldir%/blocks.h \
    %reldir%/device.h \
    %reldir%/mapping.c \
    %reldir%/mapping.h \
    %reldir%/ranges.c \
    %reldir%/ranges.h \
    %reldir%/shared.c \
    %reldir%/shared.h

include %reldir%/cuda/local.mk
