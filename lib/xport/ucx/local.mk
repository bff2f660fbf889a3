# SPDX-License-Identifier: BSD-3-Clause
#
# The UCX module. open_ucx.c is the core's part: it links nothing of UCX.

libtutti_all_la_SOURCES += \
    %reldir%/open_ucx.c \
    %reldir%/open_ucx.h

ucx_module_sources = \
    %reldir%/chan.c \
    %reldir%/networks.c \
    %reldir%/ucx_module.c \
    %reldir%/ucx_module.h \
    %reldir%/xport.c

if HAVE_UCX
tuttimodule_LTLIBRARIES += tutti/ucx.la
tutti_ucx_la_SOURCES = $(ucx_module_sources)
tutti_ucx_la_CPPFLAGS = $(LIB_CPPFLAGS) $(UCX_CFLAGS)
tutti_ucx_la_LDFLAGS = $(MODULE_LDFLAGS)
tutti_ucx_la_LIBADD = $(UCX_LIBS) -lpthread
endif

EXTRA_DIST += $(ucx_module_sources)
