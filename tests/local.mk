# SPDX-License-Identifier: BSD-3-Clause
#
# Every test is a program or script of its own. Its exit status is 0 if it has passed, 77 if it was
# skipped, and anything else if it has failed.
#
#     unit_tests      written with cmocka, link libtutti_all.la; see unit/<room>/local.mk
#     rank_tests      programs that make several ranks themselves; link libtutti_all.la too
#     api_tests       use the library as an application does; a second line links libtutti.la
#                     instead of libtutti_all.la: tests_api_name_LDADD = $(API_LIBS)
#     test_programs   not tests, but started by script_tests
#     script_tests    scripts, such as those that call mpirun; need the exec bit
#     early_..._tests tests of these kinds that take 15 seconds and more: they start first, so that
#                     none of them ends long after all others
#     waiting_tests   names of tests, of any kind, that mostly sleep: limit.sh lets more of them run at
#                     a time
#
# A test that takes more than some three seconds of a processor has two forms, quick and long: see
# long.h, or long.sh for scripts. The quick form has fewer ranks, placings, seeds, sizes and rounds,
# and reports in one line which of them it leaves out.
#
#     make check           all tests, quick
#     make check-long      all tests, long
#     make check-asan      asan_quick, quick: in a build --with-sanitizer=address,undefined
#     make check-tsan      tsan_quick, quick: in a build --with-sanitizer=thread
#     make check-tsan-long tsan_tests, long: in the same build
#
# The lists of tests that run once more with a sanitizer:
#
#     asan_quick      programs that can break memory: raw memory and offsets into it, parsers of bytes
#                     from outside, teardown, errors, kernels. `make check-long` in such a build runs
#                     all tests
#     asan_quick_scripts   script_tests of that kind; asan_quick_programs: programs they start
#     tsan_tests      programs whose ranks are threads
#     tsan_quick      the tsan_tests in which threads share state: requests, the engine and its
#                     token, doorbells, launch sequencers, callbacks, freed communicators
#
# The source of a program is its name with .c, unless name_SOURCES says otherwise. limit.sh runs
# each test, with a time limit, and writes into its log how long it took.

unit_tests =
rank_tests =
api_tests =
test_programs =
script_tests =
early_unit_tests =
early_rank_tests =
early_api_tests =
early_script_tests =
asan_quick =
asan_quick_scripts =
asan_quick_programs =
tsan_tests =
tsan_quick =

# Sources that several tests share.
check_LTLIBRARIES += tests/libtests.la
tests_libtests_la_SOURCES = %reldir%/entries.h %reldir%/long.h %reldir%/ranks.c %reldir%/ranks.h \
    %reldir%/store.c %reldir%/store.h %reldir%/tag.h

LDADD = tests/libtests.la libtutti_all.la $(CMOCKA_LIBS)
API_LIBS = tests/libtests.la libtutti.la $(CMOCKA_LIBS)

include %reldir%/pretend/local.mk
include %reldir%/cuda_libs/local.mk
include %reldir%/unit/local.mk
include %reldir%/api/local.mk
include %reldir%/multi/local.mk
include %reldir%/gpu/local.mk
include %reldir%/hosts/local.mk
include %reldir%/fault/local.mk
include %reldir%/machines/local.mk
include %reldir%/fuzz/local.mk
include %reldir%/stress/local.mk
include %reldir%/abi/local.mk
include %reldir%/install/local.mk
include %reldir%/lint/local.mk
include %reldir%/trainer/local.mk
include %reldir%/python/local.mk

# Tests that use less than 0.3 seconds of a processor in each second of the clock.
waiting_tests = \
    %reldir%/api/env \
    %reldir%/api/stats_output \
    %reldir%/fault/excluding \
    %reldir%/fault/files \
    %reldir%/fault/gone \
    %reldir%/fault/idle \
    %reldir%/fault/planned \
    %reldir%/fault/recorded \
    %reldir%/fault/stalled \
    %reldir%/fault/stalling \
    %reldir%/hosts/cluster_down.sh \
    %reldir%/hosts/cluster_idle.sh \
    %reldir%/hosts/faults.sh \
    %reldir%/hosts/late.sh \
    %reldir%/hosts/slurm.sh \
    %reldir%/hosts/starting.sh \
    %reldir%/multi/device/device_overdue \
    %reldir%/multi/device/device_reuse \
    %reldir%/multi/device/device_stopped \
    %reldir%/multi/device/device_stuck \
    %reldir%/multi/mpi/mpi_module.sh \
    %reldir%/multi/requests/connect_ends \
    %reldir%/multi/requests/join \
    %reldir%/multi/requests/overdue \
    %reldir%/trainer/hello.sh \
    %reldir%/trainer/interrupt.sh \
    %reldir%/unit/boot/test_id \
    %reldir%/unit/boot/test_meet \
    %reldir%/unit/boot/test_place

if HAVE_CMOCKA
check_PROGRAMS += $(early_unit_tests) $(unit_tests)
TESTS += $(early_unit_tests)
endif
check_PROGRAMS += $(early_rank_tests) $(early_api_tests) $(rank_tests) $(api_tests) $(test_programs)
TESTS += $(early_script_tests) $(early_rank_tests) $(early_api_tests)
TESTS += $(rank_tests) $(api_tests) $(script_tests)
if HAVE_CMOCKA
TESTS += $(unit_tests)
endif
EXTRA_DIST += $(early_script_tests) $(script_tests) %reldir%/limit.sh %reldir%/run.sh %reldir%/long.sh %reldir%/repeat.sh \
    %reldir%/lsan.supp %reldir%/packaging/debian.sh

CLEANFILES += tests/gpu.lock tests/place.*.lock

TEST_EXTENSIONS =
LOG_COMPILER = $(SHELL) $(top_srcdir)/tests/limit.sh
AM_TESTS_ENVIRONMENT = \
    export CC='$(CC)' CXX='$(CXX)' NM='$(NM)' SED='$(SED)' MPIRUN='$(MPIRUN)'; \
    export LIB_CPPFLAGS='$(LIB_CPPFLAGS)' MPI_CFLAGS='$(MPI_CFLAGS)' MPI_LIBS='$(MPI_LIBS)'; \
    export CUDA_CFLAGS='$(CUDA_CFLAGS)'; \
    export TUTTI_MODULE_DIR='$(abs_top_builddir)/tutti/.libs'; \
    export SANITIZER='$(TUTTI_SANITIZER)' TUTTI_TUNED=none; \
    export TEST_WAITS='$(waiting_tests)'; \
    export LSAN_OPTIONS="suppressions=$(abs_top_srcdir)/tests/lsan.supp:print_suppressions=0"; \
    export UBSAN_OPTIONS=print_stacktrace=1; \
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;

# In these targets, the lists of tests and of their programs are those of a sanitizer's build.
# check_LIBRARIES has the code of the trainer, which these tests do not need.
asan_lists = check_PROGRAMS="$(asan_quick) $(asan_quick_programs)" \
    TESTS="$(asan_quick) $(asan_quick_scripts)" check_LIBRARIES=
tsan_lists = check_PROGRAMS="$(tsan_quick)" TESTS="$(tsan_quick)" check_LIBRARIES=
tsan_long_lists = check_PROGRAMS="$(tsan_tests)" TESTS="$(tsan_tests)" check_LIBRARIES=

check-asan-long: check-long
check-long:
	TUTTI_TEST_LONG=1 $(MAKE) $(AM_MAKEFLAGS) check
check-asan: asan-programs
	$(MAKE) $(AM_MAKEFLAGS) $(asan_lists) check-TESTS
check-tsan: tsan-programs
	$(MAKE) $(AM_MAKEFLAGS) $(tsan_lists) check-TESTS
check-tsan-long: tsan-programs-long
	TUTTI_TEST_LONG=1 $(MAKE) $(AM_MAKEFLAGS) $(tsan_long_lists) check-TESTS

test-programs: $(check_LTLIBRARIES) $(check_PROGRAMS)
asan-programs: modules
	$(MAKE) $(AM_MAKEFLAGS) $(asan_lists) test-programs
tsan-programs:
	$(MAKE) $(AM_MAKEFLAGS) $(tsan_lists) test-programs
tsan-programs-long:
	$(MAKE) $(AM_MAKEFLAGS) $(tsan_long_lists) test-programs
asan-programs-long all-programs: all
	$(MAKE) $(AM_MAKEFLAGS) test-programs
.PHONY: check-long check-asan check-asan-long check-tsan check-tsan-long test-programs \
    asan-programs asan-programs-long tsan-programs tsan-programs-long all-programs
