# SPDX-License-Identifier: BSD-3-Clause

fault_tests = \
    %reldir%/broken \
    %reldir%/excluding \
    %reldir%/files \
    %reldir%/flood \
    %reldir%/gone \
    %reldir%/idle \
    %reldir%/killed \
    %reldir%/leftovers \
    %reldir%/lent \
    %reldir%/memory \
    %reldir%/planned \
    %reldir%/recorded \
    %reldir%/refused \
    %reldir%/scarce \
    %reldir%/starting \
    %reldir%/traced
early_fault_tests = \
    %reldir%/excluding \
    %reldir%/stalled \
    %reldir%/stalling

fault_shared = %reldir%/fault.c %reldir%/fault.h
%C%_broken_SOURCES = %reldir%/broken.c $(fault_shared)
%C%_excluding_SOURCES = %reldir%/excluding.c $(fault_shared)
%C%_files_SOURCES = %reldir%/files.c $(fault_shared)
%C%_gone_SOURCES = %reldir%/gone.c $(fault_shared)
%C%_idle_SOURCES = %reldir%/idle.c $(fault_shared)
%C%_killed_SOURCES = %reldir%/killed.c $(fault_shared)
%C%_leftovers_SOURCES = %reldir%/leftovers.c $(fault_shared)
%C%_lent_SOURCES = %reldir%/lent.c $(fault_shared)
%C%_memory_SOURCES = %reldir%/memory.c $(fault_shared)
%C%_planned_SOURCES = %reldir%/planned.c $(fault_shared)
%C%_recorded_SOURCES = %reldir%/recorded.c $(fault_shared)
%C%_refused_SOURCES = %reldir%/refused.c $(fault_shared)
%C%_stalled_SOURCES = %reldir%/stalled.c $(fault_shared)

%C%_traced_SOURCES = %reldir%/traced.c $(fault_shared)
EXTRA_DIST += %reldir%/traced.py

startup = %reldir%/startup.c %reldir%/startup.h %reldir%/startup_calls.c
%C%_flood_SOURCES = %reldir%/flood.c $(startup)
%C%_scarce_SOURCES = %reldir%/scarce.c $(startup)
%C%_stalling_SOURCES = %reldir%/stalling.c $(startup)
%C%_starting_SOURCES = %reldir%/starting.c $(startup)

rank_tests += $(fault_tests)
early_rank_tests += $(early_fault_tests)
script_tests +=

# See tests/local.mk.
tsan_tests += %reldir%/excluding
tsan_quick += %reldir%/excluding
asan_quick += %reldir%/files %reldir%/gone %reldir%/killed %reldir%/leftovers %reldir%/memory
