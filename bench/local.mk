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

# Looks at schedules, inside the library.
noinst_PROGRAMS += %reldir%/tutti_sched
bench_tutti_sched_LDADD = libtutti_all.la

noinst_PROGRAMS += %reldir%/tutti_allreduce
bench_tutti_allreduce_SOURCES = %reldir%/tutti_allreduce.c $(bench_shared)
bench_tutti_allreduce_CPPFLAGS = $(BENCH_CPPFLAGS)
bench_tutti_allreduce_LDADD = $(BENCH_LIBS)

# Calls the reduce room directly, which libtutti.la does not export.
noinst_PROGRAMS += %reldir%/tutti_kernels
bench_tutti_kernels_SOURCES = %reldir%/tutti_kernels.c
bench_tutti_kernels_CPPFLAGS = $(LIB_CPPFLAGS)
bench_tutti_kernels_LDADD = libtutti_all.la

# Calls the exec, coll and xport rooms directly.
noinst_PROGRAMS += %reldir%/tutti_exec
bench_tutti_exec_SOURCES = %reldir%/tutti_exec.c %reldir%/exec_world.c %reldir%/exec_world.h
bench_tutti_exec_CPPFLAGS = $(LIB_CPPFLAGS)
bench_tutti_exec_LDADD = libtutti_all.la
