# SPDX-License-Identifier: BSD-3-Clause

unit_tests += %reldir%/test_dump %reldir%/test_trace

%C%_test_dump_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=tutti__trace_start
%C%_test_trace_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=calloc,--wrap=pthread_atfork \
    -Wl,--wrap=fcntl,--wrap=clock_gettime,--wrap=usleep,--wrap=posix_fallocate
