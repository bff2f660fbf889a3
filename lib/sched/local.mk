# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/blockmap.h \
    %reldir%/build.h \
    %reldir%/check.h \
    %reldir%/sched.h \
    %reldir%/step.h
