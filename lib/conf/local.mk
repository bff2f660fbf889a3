# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/conf.c \
    %reldir%/conf.h \
    %reldir%/conf_inside.h \
    %reldir%/job.c \
    %reldir%/launcher.c \
    %reldir%/parse.c \
    %reldir%/parse.h \
    %reldir%/show.c \
    %reldir%/tuned.c \
    %reldir%/tuned.h \
    %reldir%/use_tuned.c
