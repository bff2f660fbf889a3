# SPDX-License-Identifier: BSD-3-Clause
#
# Tests of the trainer. Those in C take its parts without the library.

TRAINER_TEST_CPPFLAGS = $(EXAMPLES_CPPFLAGS) -I$(top_srcdir)/examples $(CMOCKA_CFLAGS)
TRAINER_TEST_LIBS = $(CMOCKA_LIBS) -lm

if HAVE_OPENBLAS
if HAVE_ZLIB
unit_tests += \
    %reldir%/test_checkpoint \
    %reldir%/test_data \
    %reldir%/test_model \
    %reldir%/test_optimizer \
    %reldir%/test_options \
    %reldir%/test_schedule
endif
endif

%canon_reldir%_test_data_SOURCES = \
    %reldir%/test_data.c examples/train_data.c examples/train_base.c
%canon_reldir%_test_data_CPPFLAGS = $(TRAINER_TEST_CPPFLAGS) $(ZLIB_CFLAGS)
%canon_reldir%_test_data_LDADD = $(TRAINER_TEST_LIBS) $(ZLIB_LIBS)

%canon_reldir%_test_checkpoint_SOURCES = \
    %reldir%/test_checkpoint.c examples/train_checkpoint.c examples/train_base.c
%canon_reldir%_test_checkpoint_CPPFLAGS = $(TRAINER_TEST_CPPFLAGS) $(ZLIB_CFLAGS)
%canon_reldir%_test_checkpoint_LDADD = $(TRAINER_TEST_LIBS) $(ZLIB_LIBS)

# with the trainer's flags, here and below: vectorised loops are what is to be tested
%canon_reldir%_test_model_SOURCES = \
    %reldir%/test_model.c examples/train_model.c examples/train_dense.c examples/train_conv.c \
    examples/train_base.c
%canon_reldir%_test_model_CPPFLAGS = $(TRAINER_TEST_CPPFLAGS) $(OPENBLAS_CFLAGS)
%canon_reldir%_test_model_CFLAGS = $(AM_CFLAGS) $(TRAIN_CFLAGS)
%canon_reldir%_test_model_LDADD = $(TRAINER_TEST_LIBS) $(OPENBLAS_LIBS)

%canon_reldir%_test_optimizer_SOURCES = \
    %reldir%/test_optimizer.c examples/train_optimizer.c examples/train_base.c
%canon_reldir%_test_optimizer_CPPFLAGS = $(TRAINER_TEST_CPPFLAGS)
%canon_reldir%_test_optimizer_CFLAGS = $(AM_CFLAGS) $(TRAIN_CFLAGS)
%canon_reldir%_test_optimizer_LDADD = $(TRAINER_TEST_LIBS)

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
    %reldir%/hello.sh \
    %reldir%/lost.sh \
    %reldir%/output.sh \
    %reldir%/resume.sh \
    %reldir%/track.sh

EXTRA_DIST += %reldir%/common.sh
