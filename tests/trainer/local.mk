# SPDX-License-Identifier: BSD-3-Clause
#
# Tests of the trainer. The tests in C use its parts without the library.

TRAINER_TEST_CPPFLAGS = $(EXAMPLES_CPPFLAGS) -I$(top_srcdir)/examples $(CMOCKA_CFLAGS)
TRAINER_TEST_LIBS = $(CMOCKA_LIBS) -lm

# computations on the processor
trainer_cpu_sources = \
    examples/train_compute.c examples/train_cpu.c examples/train_rules.c examples/train_base.c

if HAVE_OPENBLAS
if HAVE_ZLIB
check_LIBRARIES += %reldir%/libtrain.a
test_programs += %reldir%/train_pretend %reldir%/train_stream %reldir%/terminal
unit_tests += \
    %reldir%/test_checkpoint \
    %reldir%/test_cuda \
    %reldir%/test_data \
    %reldir%/test_gpu \
    %reldir%/test_model \
    %reldir%/test_optimizer \
    %reldir%/test_options \
    %reldir%/test_schedule
if HAVE_CMOCKA
asan_quick += %reldir%/test_checkpoint %reldir%/test_data %reldir%/test_options
endif
endif
endif

%canon_reldir%_test_data_SOURCES = \
    %reldir%/test_data.c examples/train_data.c $(trainer_cpu_sources)
%canon_reldir%_test_data_CPPFLAGS = $(TRAINER_TEST_CPPFLAGS) $(ZLIB_CFLAGS) $(OPENBLAS_CFLAGS)
%canon_reldir%_test_data_LDADD = $(TRAINER_TEST_LIBS) $(ZLIB_LIBS) $(OPENBLAS_LIBS)

%canon_reldir%_test_checkpoint_SOURCES = \
    %reldir%/test_checkpoint.c examples/train_checkpoint.c examples/train_about.c \
    examples/train_options.c examples/train_value.c examples/train_base.c
%canon_reldir%_test_checkpoint_CPPFLAGS = $(TRAINER_TEST_CPPFLAGS) $(ZLIB_CFLAGS)
%canon_reldir%_test_checkpoint_LDADD = $(TRAINER_TEST_LIBS) $(ZLIB_LIBS)

# The trainer without its main function, compiled once for five programs. It has the trainer's
# flags, because vectorised loops must be tested. train_parallel.c is not in it, because it differs
# between the programs.
host_kernels = %reldir%/host_kernels.c %reldir%/host_kernels.h
%canon_reldir%_libtrain_a_SOURCES = $(train_shared_sources) $(host_kernels)
%canon_reldir%_libtrain_a_CPPFLAGS = \
    $(TRAINER_TEST_CPPFLAGS) $(OPENBLAS_CFLAGS) $(ZLIB_CFLAGS)
%canon_reldir%_libtrain_a_CFLAGS = $(AM_CFLAGS) $(TRAIN_CFLAGS)
train_lib = %reldir%/libtrain.a

%canon_reldir%_test_model_CPPFLAGS = $(TRAINER_TEST_CPPFLAGS) $(OPENBLAS_CFLAGS)
%canon_reldir%_test_model_CFLAGS = $(AM_CFLAGS) $(TRAIN_CFLAGS)
%canon_reldir%_test_model_LDADD = $(train_lib) $(TRAINER_TEST_LIBS) $(OPENBLAS_LIBS)

%canon_reldir%_test_optimizer_CPPFLAGS = $(TRAINER_TEST_CPPFLAGS) $(OPENBLAS_CFLAGS)
%canon_reldir%_test_optimizer_CFLAGS = $(AM_CFLAGS) $(TRAIN_CFLAGS)
%canon_reldir%_test_optimizer_LDADD = $(train_lib) $(TRAINER_TEST_LIBS) $(OPENBLAS_LIBS)

host_device = %reldir%/host_device.c %reldir%/host_device.h

# the GPU's part on a device on the host, and the whole trainer on such a device
%canon_reldir%_test_gpu_SOURCES = \
    %reldir%/test_gpu.c $(host_device)
%canon_reldir%_test_gpu_CPPFLAGS = $(TRAINER_TEST_CPPFLAGS) $(OPENBLAS_CFLAGS)
%canon_reldir%_test_gpu_CFLAGS = $(AM_CFLAGS) $(TRAIN_CFLAGS)
%canon_reldir%_test_gpu_LDADD = $(train_lib) $(TRAINER_TEST_LIBS) $(OPENBLAS_LIBS)

# test_cuda.c includes examples/train_cuda.c
%canon_reldir%_test_cuda_SOURCES = %reldir%/test_cuda.c $(trainer_cpu_sources)
%canon_reldir%_test_cuda_CPPFLAGS = $(TRAINER_TEST_CPPFLAGS) $(OPENBLAS_CFLAGS)
%canon_reldir%_test_cuda_LDADD = $(TRAINER_TEST_LIBS) $(OPENBLAS_LIBS)

%canon_reldir%_train_pretend_SOURCES = $(train_own_sources) $(host_device)
%canon_reldir%_train_pretend_CPPFLAGS = \
    $(TRAINER_TEST_CPPFLAGS) $(OPENBLAS_CFLAGS) $(ZLIB_CFLAGS) -DTRAIN_NO_TUTTI_CUDA
%canon_reldir%_train_pretend_CFLAGS = $(AM_CFLAGS) $(TRAIN_CFLAGS)
%canon_reldir%_train_pretend_LDADD = $(train_lib) libtutti.la $(OPENBLAS_LIBS) $(ZLIB_LIBS) -lm

# the trainer on the pretend device, which the library uses as well
%canon_reldir%_train_stream_SOURCES = $(train_own_sources) %reldir%/stream_device.c
%canon_reldir%_train_stream_CPPFLAGS = \
    $(TRAINER_TEST_CPPFLAGS) -I$(top_srcdir)/lib -I$(top_srcdir)/tests $(OPENBLAS_CFLAGS) \
    $(ZLIB_CFLAGS)
%canon_reldir%_train_stream_CFLAGS = $(AM_CFLAGS) $(TRAIN_CFLAGS)
%canon_reldir%_train_stream_LDADD = $(train_lib) libtutti.la $(OPENBLAS_LIBS) $(ZLIB_LIBS) -lm -ldl
EXTRA_%canon_reldir%_train_stream_DEPENDENCIES = tutti/pretend.la

%canon_reldir%_terminal_LDADD = -lutil

%canon_reldir%_test_options_SOURCES = \
    %reldir%/test_options.c examples/train_options.c examples/train_value.c examples/train_base.c
%canon_reldir%_test_options_CPPFLAGS = $(TRAINER_TEST_CPPFLAGS)
%canon_reldir%_test_options_LDADD = $(TRAINER_TEST_LIBS)

%canon_reldir%_test_schedule_SOURCES = %reldir%/test_schedule.c examples/train_schedule.c
%canon_reldir%_test_schedule_CPPFLAGS = $(TRAINER_TEST_CPPFLAGS)
%canon_reldir%_test_schedule_LDADD = $(TRAINER_TEST_LIBS)

script_tests += \
    %reldir%/accuracy.sh \
    %reldir%/badinput.sh \
    %reldir%/env.sh \
    %reldir%/hello.sh \
    %reldir%/hidden.sh \
    %reldir%/interrupt.sh \
    %reldir%/lost.sh \
    %reldir%/output.sh \
    %reldir%/quickstart.sh \
    %reldir%/resume.sh \
    %reldir%/stopped.sh
early_script_tests += \
    %reldir%/gpu.sh \
    %reldir%/track.sh

EXTRA_DIST += %reldir%/common.sh
