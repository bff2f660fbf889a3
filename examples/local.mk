# SPDX-License-Identifier: BSD-3-Clause

EXAMPLES_CPPFLAGS = -D_GNU_SOURCE -I$(top_srcdir)/include

noinst_PROGRAMS += %reldir%/hello_allreduce %reldir%/tour
%canon_reldir%_hello_allreduce_SOURCES = %reldir%/hello_allreduce.c
%canon_reldir%_hello_allreduce_CPPFLAGS = $(EXAMPLES_CPPFLAGS)
%canon_reldir%_hello_allreduce_LDADD = libtutti.la
%canon_reldir%_tour_SOURCES = %reldir%/tour.c
%canon_reldir%_tour_CPPFLAGS = $(EXAMPLES_CPPFLAGS)
%canon_reldir%_tour_LDADD = libtutti.la

if HAVE_OPENBLAS
if HAVE_ZLIB
noinst_PROGRAMS += %reldir%/example_train
endif
endif

# The loops between the matrix products want the vectoriser, as the library's kernels do. Without the
# last two, GCC would keep scalar what could set errno or raise a trap; no result changes.
TRAIN_CFLAGS = $(TUTTI_KERNEL_CFLAGS) -fno-math-errno -fno-trapping-math

%canon_reldir%_example_train_SOURCES = \
    %reldir%/example_train.c \
    %reldir%/train_base.c %reldir%/train_base.h \
    %reldir%/train_checkpoint.c %reldir%/train_checkpoint.h \
    %reldir%/train_data.c %reldir%/train_data.h \
    %reldir%/train_layer.h %reldir%/train_conv.c %reldir%/train_dense.c \
    %reldir%/train_model.c %reldir%/train_model.h \
    %reldir%/train_optimizer.c %reldir%/train_optimizer.h \
    %reldir%/train_options.c %reldir%/train_options.h \
    %reldir%/train_parallel.c %reldir%/train_parallel.h \
    %reldir%/train_plot.c %reldir%/train_plot.h \
    %reldir%/train_report.c %reldir%/train_report.h \
    %reldir%/train_run.c %reldir%/train_run.h \
    %reldir%/train_schedule.c %reldir%/train_schedule.h \
    %reldir%/train_value.c %reldir%/train_value.h
%canon_reldir%_example_train_CPPFLAGS = $(EXAMPLES_CPPFLAGS) $(OPENBLAS_CFLAGS) $(ZLIB_CFLAGS)
%canon_reldir%_example_train_CFLAGS = $(AM_CFLAGS) $(TRAIN_CFLAGS)
%canon_reldir%_example_train_LDADD = libtutti.la $(OPENBLAS_LIBS) $(ZLIB_LIBS) -lm

EXTRA_DIST += %reldir%/quickstart.sh
