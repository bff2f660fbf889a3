# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/node.h

include %reldir%/nccl/local.mk
include %reldir%/shm/local.mk
