# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/abort.c \
    %reldir%/calls.c \
    %reldir%/enter.c \
    %reldir%/nccl.c \
    %reldir%/nccl.h \
    %reldir%/open.c \
    %reldir%/overdue.c \
    %reldir%/launch_order.c

# Part of the CUDA module.
cuda_module_sources += \
    %reldir%/cuda_module.c \
    %reldir%/nccl_find.c \
    %reldir%/nccl_lib.c \
    %reldir%/nccl_lib.h
