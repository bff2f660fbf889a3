# SPDX-License-Identifier: BSD-3-Clause
#
# To add a program of the family:
#
#     noinst_PROGRAMS += %reldir%/tutti_x
#     bench_tutti_x_CPPFLAGS = $(BENCH_CPPFLAGS)
#     bench_tutti_x_LDADD = $(BENCH_LIBS)
#
# and at the end of this file, to install it:
#
#     bin_PROGRAMS += %reldir%/installed/tutti_x
#     bench_installed_tutti_x_SOURCES =
#     bench_installed_tutti_x_LDADD = $(bench_tutti_x_OBJECTS) $(BENCH_LIBS)
#     EXTRA_bench_installed_tutti_x_DEPENDENCIES = $(bench_tutti_x_OBJECTS)
#     bench_installed_tutti_x_LDFLAGS = $(LIB_LDFLAGS)
#
# HAVE_MPI is defined if there is an MPI to compare with, HAVE_UCC if there is also a UCC,
# HAVE_JANSSON if JSON can be written and read.

# The common code of the programs that measure a collective.
noinst_LTLIBRARIES += %reldir%/libbench.la
bench_libbench_la_SOURCES = \
    %reldir%/harness/allreduce.c \
    %reldir%/harness/allreduce.h \
    %reldir%/harness/bench.c \
    %reldir%/harness/bench.h \
    %reldir%/harness/buffers.c \
    %reldir%/harness/check.c \
    %reldir%/harness/compare.c \
    %reldir%/harness/csv.c \
    %reldir%/harness/device.c \
    %reldir%/harness/device.h \
    %reldir%/harness/disturb.c \
    %reldir%/harness/facts.c \
    %reldir%/harness/figures.c \
    %reldir%/harness/files.c \
    %reldir%/harness/flags.c \
    %reldir%/harness/flags.h \
    %reldir%/harness/json.c \
    %reldir%/harness/limits.c \
    %reldir%/harness/measure.c \
    %reldir%/harness/mpi.c \
    %reldir%/harness/naive.c \
    %reldir%/harness/nccl.c \
    %reldir%/harness/options.c \
    %reldir%/harness/pattern.c \
    %reldir%/harness/pattern.h \
    %reldir%/harness/peers.h \
    %reldir%/harness/plot.c \
    %reldir%/harness/stats.c \
    %reldir%/harness/stats.h \
    %reldir%/harness/table.c \
    %reldir%/harness/ucc.c \
    %reldir%/harness/values.c \
    %reldir%/harness/world.c
bench_libbench_la_CPPFLAGS = $(BENCH_CPPFLAGS) $(BENCH_DEVICE_CPPFLAGS)

BENCH_CPPFLAGS = -D_GNU_SOURCE -Ibench -I$(top_srcdir)/bench -I$(top_srcdir)/include
# The interfaces of a device's table and module are in internal headers of the library.
BENCH_DEVICE_CPPFLAGS = -I$(top_srcdir)/lib $(HWLOC_CFLAGS)
BENCH_LIBS = bench/libbench.la libtutti.la -lm -ldl
if HAVE_MPI
BENCH_CPPFLAGS += -DHAVE_MPI=1 $(MPI_CFLAGS)
BENCH_LIBS += $(MPI_LIBS)
endif
if HAVE_UCC
BENCH_CPPFLAGS += -DHAVE_UCC=1 $(UCC_CFLAGS)
BENCH_LIBS += $(UCC_LIBS)
endif
if HAVE_JANSSON
BENCH_CPPFLAGS += -DHAVE_JANSSON=1 $(JANSSON_CFLAGS)
BENCH_LIBS += $(JANSSON_LIBS)
endif

# The commit that is printed with the figures. It can change without a change of a source, so each
# make asks git. A release archive that lies inside another project's repository must not report
# that project's commit.
CLEANFILES += %reldir%/commit.h
%reldir%/commit.h: bench-commit
	@$(MKDIR_P) %D%
	@commit=unknown; \
	if test -e $(top_srcdir)/.git; then \
	    commit=`cd $(top_srcdir) && git describe --always --dirty 2>/dev/null || echo unknown`; \
	fi; \
	line="#define BENCH_COMMIT \"$$commit\""; \
	test "`cat $@ 2>/dev/null`" = "$$line" || echo "$$line" >$@
bench-commit:
.PHONY: bench-commit
bench_facts_object = %reldir%/harness/libbench_la-facts.lo
$(bench_facts_object): %reldir%/commit.h

EXTRA_DIST += %reldir%/README.md %reldir%/cluster.sh %reldir%/peers.sh
EXTRA_DIST += %reldir%/python

# These programs contain the library's code, because they call functions that it does not export.
# So they are installed without a second link.
inside_programs =

# Prints and checks schedules.
inside_programs += %reldir%/tutti_sched
bench_tutti_sched_SOURCES = %reldir%/tutti_sched.c %reldir%/harness/refuse.h %reldir%/schedules/read_text.c %reldir%/schedules/read_text.h
bench_tutti_sched_CPPFLAGS = $(LIB_CPPFLAGS) -I$(top_srcdir)/bench
bench_tutti_sched_LDADD = libtutti_all.la

noinst_PROGRAMS += \
    %reldir%/tutti_allgather \
    %reldir%/tutti_allreduce \
    %reldir%/tutti_allreduce_async \
    %reldir%/tutti_alltoall \
    %reldir%/tutti_barrier \
    %reldir%/tutti_broadcast \
    %reldir%/tutti_reduce \
    %reldir%/tutti_reduce_scatter
bench_tutti_allgather_CPPFLAGS = $(BENCH_CPPFLAGS)
bench_tutti_allgather_LDADD = $(BENCH_LIBS)
bench_tutti_allreduce_CPPFLAGS = $(BENCH_CPPFLAGS)
bench_tutti_allreduce_LDADD = $(BENCH_LIBS)
bench_tutti_allreduce_async_CPPFLAGS = $(BENCH_CPPFLAGS)
bench_tutti_allreduce_async_LDADD = $(BENCH_LIBS)
bench_tutti_alltoall_CPPFLAGS = $(BENCH_CPPFLAGS)
bench_tutti_alltoall_LDADD = $(BENCH_LIBS)
bench_tutti_barrier_CPPFLAGS = $(BENCH_CPPFLAGS)
bench_tutti_barrier_LDADD = $(BENCH_LIBS)
bench_tutti_broadcast_CPPFLAGS = $(BENCH_CPPFLAGS)
bench_tutti_broadcast_LDADD = $(BENCH_LIBS)
bench_tutti_reduce_CPPFLAGS = $(BENCH_CPPFLAGS)
bench_tutti_reduce_LDADD = $(BENCH_LIBS)
bench_tutti_reduce_scatter_CPPFLAGS = $(BENCH_CPPFLAGS)
bench_tutti_reduce_scatter_LDADD = $(BENCH_LIBS)

# Calls the reduce room directly, which libtutti.la does not export.
inside_programs += %reldir%/tutti_kernels
bench_tutti_kernels_SOURCES = %reldir%/tutti_kernels.c %reldir%/harness/refuse.h
bench_tutti_kernels_CPPFLAGS = $(LIB_CPPFLAGS) -I$(top_srcdir)/bench
bench_tutti_kernels_LDADD = libtutti_all.la

# Calls the exec, coll and xport rooms directly.
inside_programs += %reldir%/tutti_exec
bench_tutti_exec_SOURCES = %reldir%/tutti_exec.c %reldir%/harness/refuse.h %reldir%/schedules/exec_world.c %reldir%/schedules/exec_world.h \
    %reldir%/schedules/read_text.c %reldir%/schedules/read_text.h
bench_tutti_exec_CPPFLAGS = $(LIB_CPPFLAGS) -I$(top_srcdir)/bench
bench_tutti_exec_LDADD = libtutti_all.la

# The limit of a link between two hosts. It does not use the library, is not installed, and has no
# manual page.
check_PROGRAMS += %reldir%/raw_stream
bench_raw_stream_SOURCES = %reldir%/raw_stream.c
bench_raw_stream_CPPFLAGS = -D_GNU_SOURCE

# Gradient lists of real networks through the engine.
noinst_PROGRAMS += %reldir%/tutti_gradients
bench_tutti_gradients_SOURCES = \
    %reldir%/gradients/gradients.c \
    %reldir%/gradients/gradients.h \
    %reldir%/gradients/gradients_check.c \
    %reldir%/gradients/gradients_cycle.c \
    %reldir%/gradients/gradients_flags.c \
    %reldir%/gradients/gradients_measure.c \
    %reldir%/gradients/gradients_mpi.c \
    %reldir%/gradients/gradients_nccl.c \
    %reldir%/gradients/gradients_peers.c \
    %reldir%/gradients/gradients_start.c \
    %reldir%/gradients/gradients_step.c \
    %reldir%/tutti_gradients.c
bench_tutti_gradients_CPPFLAGS = $(BENCH_CPPFLAGS) $(BENCH_DEVICE_CPPFLAGS)
bench_tutti_gradients_LDADD = $(BENCH_LIBS)

# Packing on a device, without ranks.
noinst_PROGRAMS += %reldir%/tutti_pack
bench_tutti_pack_SOURCES = %reldir%/gradients/gradients.c %reldir%/gradients/gradients.h %reldir%/tutti_pack.c
bench_tutti_pack_CPPFLAGS = $(BENCH_CPPFLAGS) $(BENCH_DEVICE_CPPFLAGS)
bench_tutti_pack_LDADD = $(BENCH_LIBS)

# tutti_info is an application, but includes lib/api/info.h.
noinst_PROGRAMS += %reldir%/tutti_info
bench_tutti_info_SOURCES = \
    %reldir%/info/info.h \
    %reldir%/info/info_machine.c \
    %reldir%/info/info_modules.c \
    %reldir%/info/info_report.c \
    %reldir%/tutti_info.c
bench_tutti_info_CPPFLAGS = -D_GNU_SOURCE -I$(top_srcdir)/include -I$(top_srcdir)/lib -I$(top_srcdir)/bench
bench_tutti_info_LDADD = libtutti.la

# Reads dumps. Does not link the library.
noinst_PROGRAMS += %reldir%/tutti_report
bench_tutti_report_SOURCES = \
    %reldir%/report/judge.c \
    %reldir%/report/print.c \
    %reldir%/report/read.c \
    %reldir%/report/report.h \
    %reldir%/report/trace.c \
    %reldir%/tutti_report.c \
    lib/record/trace_json.c
bench_tutti_report_CPPFLAGS = -D_GNU_SOURCE -I$(top_srcdir)/bench -I$(top_srcdir)/lib -I$(top_srcdir)/include
bench_tutti_report_LDADD =

# Finds this machine's settings. The code that finds and reads the tuned file is the library's.
noinst_PROGRAMS += %reldir%/tutti_tune
bench_tutti_tune_SOURCES = \
    %reldir%/tune/tune.h \
    %reldir%/tune/tune_file.c \
    %reldir%/tune/tune_link.c \
    %reldir%/tune/tune_list.c \
    %reldir%/tune/tune_measure.c \
    %reldir%/tune/tune_search.c \
    %reldir%/tune/tune_settings.c \
    %reldir%/tutti_tune.c \
    lib/conf/parse.c \
    lib/conf/tuned.c
bench_tutti_tune_CPPFLAGS = $(BENCH_CPPFLAGS) -I$(top_srcdir)/lib
bench_tutti_tune_LDADD = $(BENCH_LIBS)

# The programs in bench/ find the library in the build folder. The installed programs that link the
# library are linked once more, from the same objects, so that they find the installed library.
if TOOLS
bin_PROGRAMS += $(inside_programs) \
    %reldir%/installed/tutti_allgather \
    %reldir%/installed/tutti_allreduce \
    %reldir%/installed/tutti_allreduce_async \
    %reldir%/installed/tutti_alltoall \
    %reldir%/installed/tutti_barrier \
    %reldir%/installed/tutti_broadcast \
    %reldir%/installed/tutti_gradients \
    %reldir%/installed/tutti_info \
    %reldir%/installed/tutti_pack \
    %reldir%/installed/tutti_reduce \
    %reldir%/installed/tutti_reduce_scatter \
    %reldir%/installed/tutti_report \
    %reldir%/installed/tutti_tune
bench_installed_tutti_allgather_SOURCES =
bench_installed_tutti_allgather_LDADD = $(bench_tutti_allgather_OBJECTS) $(BENCH_LIBS)
EXTRA_bench_installed_tutti_allgather_DEPENDENCIES = $(bench_tutti_allgather_OBJECTS)
bench_installed_tutti_allgather_LDFLAGS = $(LIB_LDFLAGS)
bench_installed_tutti_allreduce_SOURCES =
bench_installed_tutti_allreduce_LDADD = $(bench_tutti_allreduce_OBJECTS) $(BENCH_LIBS)
EXTRA_bench_installed_tutti_allreduce_DEPENDENCIES = $(bench_tutti_allreduce_OBJECTS)
bench_installed_tutti_allreduce_LDFLAGS = $(LIB_LDFLAGS)
bench_installed_tutti_allreduce_async_SOURCES =
bench_installed_tutti_allreduce_async_LDADD = $(bench_tutti_allreduce_async_OBJECTS) $(BENCH_LIBS)
EXTRA_bench_installed_tutti_allreduce_async_DEPENDENCIES = $(bench_tutti_allreduce_async_OBJECTS)
bench_installed_tutti_allreduce_async_LDFLAGS = $(LIB_LDFLAGS)
bench_installed_tutti_alltoall_SOURCES =
bench_installed_tutti_alltoall_LDADD = $(bench_tutti_alltoall_OBJECTS) $(BENCH_LIBS)
EXTRA_bench_installed_tutti_alltoall_DEPENDENCIES = $(bench_tutti_alltoall_OBJECTS)
bench_installed_tutti_alltoall_LDFLAGS = $(LIB_LDFLAGS)
bench_installed_tutti_barrier_SOURCES =
bench_installed_tutti_barrier_LDADD = $(bench_tutti_barrier_OBJECTS) $(BENCH_LIBS)
EXTRA_bench_installed_tutti_barrier_DEPENDENCIES = $(bench_tutti_barrier_OBJECTS)
bench_installed_tutti_barrier_LDFLAGS = $(LIB_LDFLAGS)
bench_installed_tutti_broadcast_SOURCES =
bench_installed_tutti_broadcast_LDADD = $(bench_tutti_broadcast_OBJECTS) $(BENCH_LIBS)
EXTRA_bench_installed_tutti_broadcast_DEPENDENCIES = $(bench_tutti_broadcast_OBJECTS)
bench_installed_tutti_broadcast_LDFLAGS = $(LIB_LDFLAGS)
bench_installed_tutti_gradients_SOURCES =
bench_installed_tutti_gradients_LDADD = $(bench_tutti_gradients_OBJECTS) $(BENCH_LIBS)
EXTRA_bench_installed_tutti_gradients_DEPENDENCIES = $(bench_tutti_gradients_OBJECTS)
bench_installed_tutti_gradients_LDFLAGS = $(LIB_LDFLAGS)
bench_installed_tutti_info_SOURCES =
bench_installed_tutti_info_LDADD = $(bench_tutti_info_OBJECTS) libtutti.la
EXTRA_bench_installed_tutti_info_DEPENDENCIES = $(bench_tutti_info_OBJECTS)
bench_installed_tutti_info_LDFLAGS = $(LIB_LDFLAGS)
bench_installed_tutti_pack_SOURCES =
bench_installed_tutti_pack_LDADD = $(bench_tutti_pack_OBJECTS) $(BENCH_LIBS)
EXTRA_bench_installed_tutti_pack_DEPENDENCIES = $(bench_tutti_pack_OBJECTS)
bench_installed_tutti_pack_LDFLAGS = $(LIB_LDFLAGS)
bench_installed_tutti_reduce_SOURCES =
bench_installed_tutti_reduce_LDADD = $(bench_tutti_reduce_OBJECTS) $(BENCH_LIBS)
EXTRA_bench_installed_tutti_reduce_DEPENDENCIES = $(bench_tutti_reduce_OBJECTS)
bench_installed_tutti_reduce_LDFLAGS = $(LIB_LDFLAGS)
bench_installed_tutti_reduce_scatter_SOURCES =
bench_installed_tutti_reduce_scatter_LDADD = $(bench_tutti_reduce_scatter_OBJECTS) $(BENCH_LIBS)
EXTRA_bench_installed_tutti_reduce_scatter_DEPENDENCIES = $(bench_tutti_reduce_scatter_OBJECTS)
bench_installed_tutti_reduce_scatter_LDFLAGS = $(LIB_LDFLAGS)
bench_installed_tutti_report_SOURCES =
bench_installed_tutti_report_LDADD = $(bench_tutti_report_OBJECTS)
EXTRA_bench_installed_tutti_report_DEPENDENCIES = $(bench_tutti_report_OBJECTS)
bench_installed_tutti_tune_SOURCES =
bench_installed_tutti_tune_LDADD = $(bench_tutti_tune_OBJECTS) $(BENCH_LIBS)
EXTRA_bench_installed_tutti_tune_DEPENDENCIES = $(bench_tutti_tune_OBJECTS)
bench_installed_tutti_tune_LDFLAGS = $(LIB_LDFLAGS)
else
noinst_PROGRAMS += $(inside_programs)
endif
