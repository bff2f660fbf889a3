# SPDX-License-Identifier: BSD-3-Clause

unit_tests += \
    %reldir%/test_cache \
    %reldir%/test_check_all \
    %reldir%/test_check_large \
    %reldir%/test_check_largest \
    %reldir%/test_compared \
    %reldir%/test_cost \
    %reldir%/test_device \
    %reldir%/test_device_cost \
    %reldir%/test_flat \
    %reldir%/test_form \
    %reldir%/test_mutants \
    %reldir%/test_override \
    %reldir%/test_select \
    %reldir%/test_table

# Placings of ranks, and all ranks' schedules for them.
shapes = %reldir%/shapes.c %reldir%/shapes.h
# Schedules with bugs, and the interpreter, which is the second check.
plant = %reldir%/plant.c %reldir%/plant.h %reldir%/interpret.c %reldir%/interpret.h \
    %reldir%/interpret_sends.c %reldir%/interpret_world.c %reldir%/interpret_world.h
# Proofs of all algorithms, in three programs, which together take about a minute.
provings = %reldir%/provings.c %reldir%/provings.h $(shapes)
%C%_test_check_all_SOURCES = %reldir%/test_check_all.c $(provings)
%C%_test_check_large_SOURCES = %reldir%/test_check_large.c $(provings)
%C%_test_check_largest_SOURCES = %reldir%/test_check_largest.c $(provings)
%C%_test_compared_SOURCES = %reldir%/test_compared.c $(shapes) %reldir%/plant.c %reldir%/plant.h
%C%_test_mutants_SOURCES = %reldir%/test_mutants.c $(shapes) $(plant)
%C%_test_select_SOURCES = %reldir%/test_select.c $(shapes)
%C%_test_override_SOURCES = %reldir%/test_override.c $(shapes)
%C%_test_table_SOURCES = %reldir%/test_table.c
%C%_test_cache_SOURCES = %reldir%/test_cache.c $(shapes)
%C%_test_device_SOURCES = %reldir%/test_device.c $(shapes)
%C%_test_cost_SOURCES = %reldir%/test_cost.c $(shapes)
%C%_test_cost_LDADD = $(LDADD) -lm
%C%_test_device_cost_SOURCES = %reldir%/test_device_cost.c $(shapes)
%C%_test_flat_SOURCES = %reldir%/test_flat.c $(shapes)
%C%_test_form_SOURCES = %reldir%/test_form.c $(shapes)
