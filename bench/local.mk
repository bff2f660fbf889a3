# SPDX-License-Identifier: BSD-3-Clause
#
# To add a program:
#
#     noinst_PROGRAMS += %reldir%/tutti_x
#     bench_tutti_x_SOURCES = %reldir%/tutti_x.c $(bench_shared)
#     bench_tutti_x_CPPFLAGS = $(BENCH_CPPFLAGS)
#     bench_tutti_x_LDADD = $(BENCH_LIBS)
#
# HAVE_MPI is defined where there is an MPI to compare with.

bench_shared = \
    %reldir%/bench.c \
    %reldir%/bench.h \
    %reldir%/options.c \
    %reldir%/pattern.c \
    %reldir%/world.c

BENCH_CPPFLAGS = -D_GNU_SOURCE -I$(top_srcdir)/include
BENCH_LIBS = libtutti.la -lm
if HAVE_MPI
BENCH_CPPFLAGS += -DHAVE_MPI=1 $(MPI_CFLAGS)
BENCH_LIBS += $(MPI_LIBS)
endif

EXTRA_DIST += %reldir%/README.md

noinst_PROGRAMS += %reldir%/tutti_allreduce
bench_tutti_allreduce_SOURCES = %reldir%/tutti_allreduce.c $(bench_shared)
bench_tutti_allreduce_CPPFLAGS = $(BENCH_CPPFLAGS)
bench_tutti_allreduce_LDADD = $(BENCH_LIBS)
