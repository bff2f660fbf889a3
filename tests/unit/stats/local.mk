# SPDX-License-Identifier: BSD-3-Clause

unit_tests += \
    %reldir%/test_counting \
    %reldir%/test_http \
    %reldir%/test_locale \
    %reldir%/test_output

%C%_test_counting_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=pthread_atfork
%C%_test_output_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=eventfd,--wrap=poll \
    -Wl,--wrap=tutti__thread_launch
