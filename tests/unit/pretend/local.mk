# SPDX-License-Identifier: BSD-3-Clause

pretend_tests = \
    %reldir%/test_casts \
    %reldir%/test_memory \
    %reldir%/test_streams \
    %reldir%/test_work
unit_tests += $(pretend_tests)
%C%_test_casts_LDADD = $(PRETEND_LIBS)
%C%_test_memory_LDADD = $(PRETEND_LIBS)
%C%_test_streams_LDADD = $(PRETEND_LIBS)
%C%_test_work_LDADD = $(PRETEND_LIBS)
if HAVE_CMOCKA
tsan_tests += %reldir%/test_memory %reldir%/test_streams %reldir%/test_work
endif
