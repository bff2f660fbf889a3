# SPDX-License-Identifier: BSD-3-Clause

# Tests on a real device, which are skipped without one. TUTTI_TEST_DEVICE names the device.
# pretend.sh runs all of them on the pretend device, and libraries.sh with pretended libraries of
# CUDA and NCCL.
script_tests += \
    %reldir%/bench.sh \
    %reldir%/collectives.sh \
    %reldir%/killed.sh \
    %reldir%/sanitizer.sh \
    %reldir%/table.sh \
    %reldir%/train.sh
early_script_tests += \
    %reldir%/libraries.sh \
    %reldir%/pretend.sh
EXTRA_DIST += %reldir%/common.sh %reldir%/measure.sh

test_programs += %reldir%/probe %reldir%/table
gpu_shared = %reldir%/gpu.c %reldir%/gpu.h
%C%_probe_SOURCES = %reldir%/probe.c $(gpu_shared)
%C%_probe_LDADD = $(LDADD) -ldl
%C%_table_SOURCES = \
    %reldir%/table.c \
    %reldir%/table.h \
    %reldir%/table_casts.c \
    %reldir%/table_memory.c \
    %reldir%/table_nccl.c \
    %reldir%/table_pieces.c \
    %reldir%/table_streams.c \
    %reldir%/table_sums.c \
    tests/multi/direct/reference.c \
    tests/multi/direct/reference.h \
    tests/multi/direct/reference_user.c \
    tests/unit/reduce/reference.c \
    tests/unit/reduce/reference.h \
    $(gpu_shared)
%C%_table_LDADD = $(LDADD) -lm -ldl

# The tests of calls on the pretend device, run on a real device.
test_programs += %reldir%/async %reldir%/direct
gpu_stand_in = %reldir%/stand_in.c $(gpu_shared)
%C%_async_SOURCES = %reldir%/async.c $(device_world) $(gpu_stand_in)
%C%_async_LDADD = $(LDADD) -ldl
%C%_direct_SOURCES = %reldir%/direct.c $(device_job) $(multi_case) $(gpu_stand_in)
%C%_direct_LDADD = $(LDADD) -lm -ldl

# Calls in streams; measure.sh runs this program as well.
test_programs += %reldir%/stream
%C%_stream_SOURCES = %reldir%/stream.c $(gpu_shared)
%C%_stream_LDADD = $(LDADD) -ldl
