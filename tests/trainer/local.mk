# SPDX-License-Identifier: BSD-3-Clause
#
# Tests of the trainer. Those in C take its parts without the library.

TRAINER_TEST_CPPFLAGS = $(EXAMPLES_CPPFLAGS) -I$(top_srcdir)/examples $(CMOCKA_CFLAGS)
TRAINER_TEST_LIBS = $(CMOCKA_LIBS) -lm

if HAVE_OPENBLAS
if HAVE_ZLIB
unit_tests += \
    %reldir%/test_data \
    %reldir%/test_model \
    %reldir%/test_options
endif
endif

%canon_reldir%_test_data_SOURCES = \
    %reldir%/test_data.c examples/train_data.c examples/train_base.c
%canon_reldir%_test_data_CPPFLAGS = $(TRAINER_TEST_CPPFLAGS) $(ZLIB_CFLAGS)
%canon_reldir%_test_data_LDADD = $(TRAINER_TEST_LIBS) $(ZLIB_LIBS)

%canon_reldir%_test_model_SOURCES = \
    %reldir%/test_model.c examples/train_model.c examples/train_optimizer.c examples/train_base.c
%canon_reldir%_test_model_CPPFLAGS = $(TRAINER_TEST_CPPFLAGS) $(OPENBLAS_CFLAGS)
%canon_reldir%_test_model_LDADD = $(TRAINER_TEST_LIBS) $(OPENBLAS_LIBS)

%canon_reldir%_test_options_SOURCES = \
    %reldir%/test_options.c examples/train_options.c examples/train_base.c
%canon_reldir%_test_options_CPPFLAGS = $(TRAINER_TEST_CPPFLAGS)
%canon_reldir%_test_options_LDADD = $(TRAINER_TEST_LIBS)

script_tests += \
    %reldir%/accuracy.sh \
    %reldir%/badinput.sh \
    %reldir%/hello.sh \
    %reldir%/lost.sh \
    %reldir%/output.sh \
    %reldir%/track.sh

EXTRA_DIST += %reldir%/common.sh
