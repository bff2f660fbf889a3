# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/faster.c \
    %reldir%/faster.h \
    %reldir%/xport.h

include %reldir%/shm/local.mk
include %reldir%/mpi/local.mk
include %reldir%/ucx/local.mk
