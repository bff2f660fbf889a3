# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/core_groups.c \
    %reldir%/detect.c \
    %reldir%/link.c \
    %reldir%/places.c \
    %reldir%/topo.c \
    %reldir%/topo.h
