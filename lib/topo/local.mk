# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/detect.c \
    %reldir%/groups.c \
    %reldir%/places.c \
    %reldir%/topo.c \
    %reldir%/topo.h
