# SPDX-License-Identifier: BSD-3-Clause

unit_tests += \
    %reldir%/test_buffers \
    %reldir%/test_device \
    %reldir%/test_pattern \
    %reldir%/test_report \
    %reldir%/test_stats \
    %reldir%/test_tune \
    %reldir%/test_values

# The bench programs' own sources, without MPI.
bench_unit_cppflags = $(AM_CPPFLAGS) -I$(top_srcdir)/bench
bench_unit_device = %reldir%/one_rank.c bench/harness/buffers.c bench/harness/device.c bench/harness/stats.c
%C%_test_buffers_SOURCES = %reldir%/test_buffers.c $(bench_unit_device)
%C%_test_buffers_CPPFLAGS = $(bench_unit_cppflags)
%C%_test_buffers_LDADD = $(LDADD) -lm -ldl
%C%_test_device_SOURCES = %reldir%/test_device.c $(bench_unit_device)
%C%_test_device_CPPFLAGS = $(bench_unit_cppflags)
%C%_test_device_LDADD = $(PRETEND_LIBS) -ldl
%C%_test_pattern_SOURCES = %reldir%/test_pattern.c bench/harness/pattern.c
%C%_test_pattern_CPPFLAGS = $(bench_unit_cppflags)
%C%_test_report_SOURCES = %reldir%/test_report.c bench/report/judge.c bench/report/print.c bench/report/read.c \
    bench/report/report.h
%C%_test_report_CPPFLAGS = $(bench_unit_cppflags)
%C%_test_report_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=strcmp
%C%_test_stats_SOURCES = %reldir%/test_stats.c bench/harness/stats.c
%C%_test_stats_CPPFLAGS = $(bench_unit_cppflags)
%C%_test_stats_LDADD = $(LDADD) -lm
%C%_test_tune_SOURCES = %reldir%/test_tune.c bench/tune/tune_file.c bench/tune/tune_search.c
%C%_test_tune_CPPFLAGS = $(bench_unit_cppflags)
%C%_test_tune_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=tutti_host_count
%C%_test_values_SOURCES = %reldir%/test_values.c bench/harness/values.c
%C%_test_values_CPPFLAGS = $(bench_unit_cppflags)

if HAVE_CMOCKA
tsan_tests += %reldir%/test_device
endif
