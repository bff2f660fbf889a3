# SPDX-License-Identifier: BSD-3-Clause

unit_tests += \
    %reldir%/test_circle %reldir%/test_coordinator %reldir%/test_learn %reldir%/test_metadata %reldir%/test_priority
rank_tests += \
    %reldir%/test_orders \
    %reldir%/test_plans
script_tests += \
    %reldir%/mutants.sh
EXTRA_DIST += %reldir%/mutants.txt

# Two ranks in one process.
agree_pair = %reldir%/pair.c %reldir%/pair.h
%C%_test_coordinator_SOURCES = %reldir%/test_coordinator.c $(agree_pair)
%C%_test_priority_SOURCES = %reldir%/test_priority.c $(agree_pair)

agree_shared = %reldir%/judge.c %reldir%/planned.c %reldir%/reference.c %reldir%/reference.h \
    %reldir%/scenario.c %reldir%/world.c %reldir%/world.h
%C%_test_orders_SOURCES = %reldir%/test_orders.c $(agree_shared)
%C%_test_plans_SOURCES = %reldir%/test_plans.c $(agree_shared)
