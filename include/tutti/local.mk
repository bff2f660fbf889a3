# SPDX-License-Identifier: BSD-3-Clause

tuttiincludedir = $(includedir)/tutti
tuttiinclude_HEADERS = \
    %reldir%/async.h \
    %reldir%/collectives.h \
    %reldir%/comm.h \
    %reldir%/cuda.h \
    %reldir%/log.h \
    %reldir%/mem.h \
    %reldir%/record.h \
    %reldir%/stats.h \
    %reldir%/tutti.h \
    %reldir%/types.h \
    %reldir%/version.h
