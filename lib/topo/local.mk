# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/detect.c \
    %reldir%/topo.c \
    %reldir%/topo.h
