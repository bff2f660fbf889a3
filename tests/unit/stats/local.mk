# SPDX-License-Identifier: BSD-3-Clause

unit_tests += %reldir%/test_counting %reldir%/test_http %reldir%/test_locale

%C%_test_counting_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=pthread_atfork
