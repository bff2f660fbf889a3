# SPDX-License-Identifier: BSD-3-Clause

unit_tests += \
    %reldir%/test_counters \
    %reldir%/test_calls \
    %reldir%/test_maps \
    %reldir%/test_schedules \
    %reldir%/test_sends \
    %reldir%/test_wire
early_unit_tests += \
    %reldir%/test_device \
    %reldir%/test_gpu_direct \
    %reldir%/test_exec

tsan_tests += %reldir%/test_device %reldir%/test_gpu_direct

# Ranks in one thread, and their input.
team = %reldir%/data.c %reldir%/data.h %reldir%/lag.c %reldir%/lag.h %reldir%/team.c \
    %reldir%/team.h $(world) $(shapes)
hand = %reldir%/hand.c %reldir%/hand.h
%C%_test_counters_SOURCES = %reldir%/test_counters.c $(hand) $(team)
%C%_test_counters_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc \
    -Wl,--wrap=tutti__arena_alloc
%C%_test_calls_SOURCES = %reldir%/test_calls.c $(team)
devteam = %reldir%/devteam.c %reldir%/devteam.h %reldir%/far.c %reldir%/far.h %reldir%/lag.c \
    %reldir%/lag.h $(world) $(shapes)
%C%_test_device_SOURCES = %reldir%/test_device.c $(devteam)
%C%_test_device_LDADD = $(PRETEND_LIBS)
%C%_test_gpu_direct_SOURCES = %reldir%/test_gpu_direct.c $(devteam)
%C%_test_gpu_direct_LDADD = $(PRETEND_LIBS)
# A measurement, not a test.
check_PROGRAMS += %reldir%/device_share
%C%_device_share_SOURCES = %reldir%/device_share.c $(devteam)
%C%_device_share_LDADD = $(PRETEND_LIBS)
%C%_test_exec_SOURCES = %reldir%/test_exec.c %reldir%/model.c %reldir%/model.h $(team)
%C%_test_maps_SOURCES = %reldir%/test_maps.c $(hand) $(team)
%C%_test_schedules_SOURCES = %reldir%/test_schedules.c $(hand) $(team)
%C%_test_wire_SOURCES = %reldir%/test_wire.c %reldir%/model.c %reldir%/model.h $(team)
%C%_test_sends_SOURCES = %reldir%/test_sends.c $(team)
