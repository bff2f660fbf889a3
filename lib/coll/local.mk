# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/cache.c \
    %reldir%/cache.h \
    %reldir%/coll.h
