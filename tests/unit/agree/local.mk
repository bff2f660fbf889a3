# SPDX-License-Identifier: BSD-3-Clause

unit_tests += \
    %reldir%/test_metadata
rank_tests += \
    %reldir%/test_orders
script_tests += \
    %reldir%/mutants.sh
EXTRA_DIST += %reldir%/mutants.txt

%C%_test_orders_SOURCES = %reldir%/test_orders.c %reldir%/reference.c %reldir%/reference.h \
    %reldir%/world.c %reldir%/world.h
