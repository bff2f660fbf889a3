# SPDX-License-Identifier: BSD-3-Clause
#
# Fuzz targets. Normal checks run each target over its seeds, with a small driver; see driver.c. To
# use a fuzzer, compile the target's file and the library's files, without driver.c, with clang
# -fsanitize=fuzzer,address.

fuzz_tests = \
    %reldir%/fuzz_gate \
    %reldir%/fuzz_sched_text \
    %reldir%/fuzz_side_frame \
    %reldir%/fuzz_stats_http \
    %reldir%/fuzz_tuned \
    %reldir%/fuzz_unique_id

fuzz_driver = %reldir%/driver.c %reldir%/fuzz.h
%C%_fuzz_gate_SOURCES = %reldir%/fuzz_gate.c $(fuzz_driver)
%C%_fuzz_sched_text_SOURCES = %reldir%/fuzz_sched_text.c $(fuzz_driver)
%C%_fuzz_side_frame_SOURCES = %reldir%/fuzz_side_frame.c $(fuzz_driver)
%C%_fuzz_stats_http_SOURCES = %reldir%/fuzz_stats_http.c $(fuzz_driver)
%C%_fuzz_tuned_SOURCES = %reldir%/fuzz_tuned.c $(fuzz_driver)
%C%_fuzz_unique_id_SOURCES = %reldir%/fuzz_unique_id.c $(fuzz_driver)

check_PROGRAMS += $(fuzz_tests)
TESTS += $(fuzz_tests)
asan_quick += $(fuzz_tests)
