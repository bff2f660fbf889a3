# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/agree.h \
    %reldir%/announce.c \
    %reldir%/buckets.c \
    %reldir%/circle.c \
    %reldir%/circle.h \
    %reldir%/decide.c \
    %reldir%/joins.c \
    %reldir%/learn.c \
    %reldir%/metadata.c \
    %reldir%/metadata.h \
    %reldir%/missing.c \
    %reldir%/name_table.c \
    %reldir%/name_table.h \
    %reldir%/plan.c \
    %reldir%/plan.h \
    %reldir%/refuse.c \
    %reldir%/tensors.c \
    %reldir%/tensors.h
