# SPDX-License-Identifier: BSD-3-Clause
#
# The CUDA module: its parts are in three rooms, whose local.mk add to its sources.

cuda_module_sources = \
    %reldir%/cuda_parts.h \
    %reldir%/driver.c \
    %reldir%/libs.c \
    %reldir%/runtime.c

if HAVE_CUDA
tuttimodule_LTLIBRARIES += tutti/cuda.la
tutti_cuda_la_SOURCES = $(cuda_module_sources)
nodist_tutti_cuda_la_SOURCES =
tutti_cuda_la_CPPFLAGS = $(LIB_CPPFLAGS) $(CUDA_CFLAGS)
tutti_cuda_la_LDFLAGS = $(MODULE_LDFLAGS)
tutti_cuda_la_LIBADD = -lpthread -ldl
endif

EXTRA_DIST += $(cuda_module_sources) lib/build/tutti_cuda.m4
