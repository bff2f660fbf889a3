# SPDX-License-Identifier: BSD-3-Clause

unit_tests += \
    %reldir%/test_boot \
    %reldir%/test_gate \
    %reldir%/test_id \
    %reldir%/test_module \
    %reldir%/test_setup \
    %reldir%/test_share \
    %reldir%/test_side
early_unit_tests += \
    %reldir%/test_meet \
    %reldir%/test_place \
    %reldir%/test_wake

tsan_tests += \
    %reldir%/test_boot \
    %reldir%/test_gate \
    %reldir%/test_id \
    %reldir%/test_meet \
    %reldir%/test_place \
    %reldir%/test_share \
    %reldir%/test_side

# Ranks for these tests, as processes or threads.
crowd = %reldir%/crowd.c %reldir%/crowd.h
%C%_test_boot_SOURCES = %reldir%/test_boot.c $(crowd)
%C%_test_gate_SOURCES = %reldir%/test_gate.c $(crowd)
%C%_test_id_SOURCES = %reldir%/test_id.c $(crowd)
%C%_test_meet_SOURCES = %reldir%/test_meet.c $(crowd)
%C%_test_module_SOURCES = %reldir%/test_module.c $(crowd)
%C%_test_place_SOURCES = %reldir%/test_place.c $(crowd)
%C%_test_share_SOURCES = %reldir%/test_share.c $(crowd)
%C%_test_side_SOURCES = %reldir%/test_side.c $(crowd)

%C%_test_place_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=recv

# Modules that test_module opens: a correct one, and one for another version of the library.
check_LTLIBRARIES += %reldir%/mpi_fake.la %reldir%/mpi_old.la
%C%_mpi_fake_la_SOURCES = %reldir%/fake_module.c
%C%_mpi_fake_la_LDFLAGS = $(MODULE_LDFLAGS) -rpath /nowhere
%C%_mpi_fake_la_LIBADD =
%C%_mpi_old_la_SOURCES = %reldir%/fake_module.c
%C%_mpi_old_la_CPPFLAGS = $(AM_CPPFLAGS) -DFAKE_ABI=999
%C%_mpi_old_la_LDFLAGS = $(MODULE_LDFLAGS) -rpath /nowhere
%C%_mpi_old_la_LIBADD =

# Sources under exploration: compiled with the test's own memory and system calls.
explore = %reldir%/explore.c %reldir%/explore.h %reldir%/weak.h
%C%_test_setup_SOURCES = %reldir%/test_setup.c $(explore) lib/boot/machine.c
%C%_test_setup_CPPFLAGS = $(AM_CPPFLAGS) -include unit/boot/weak.h
%C%_test_setup_LDFLAGS = $(AM_LDFLAGS) \
    -Wl,--wrap=eventfd -Wl,--wrap=tutti__arena_alloc -Wl,--wrap=tutti__arena_create_among \
    -Wl,--wrap=tutti__arena_map -Wl,--wrap=tutti__boot_agree -Wl,--wrap=tutti__boot_allgather \
    -Wl,--wrap=tutti__boot_share_fds -Wl,--wrap=tutti__boot_topo
%C%_test_wake_SOURCES = %reldir%/test_wake.c $(explore) \
    lib/boot/machine.c \
    lib/engine/steps.c \
    lib/engine/thread.c \
    lib/engine/token.c \
    lib/node/shm/shm.c
%C%_test_wake_CPPFLAGS = $(AM_CPPFLAGS) -include unit/boot/weak.h
%C%_test_wake_LDFLAGS = $(AM_LDFLAGS) \
    -Wl,--wrap=tutti__lanes_step -Wl,--wrap=tutti__links_flush -Wl,--wrap=tutti__links_poll \
    -Wl,--wrap=tutti__agreed_step -Wl,--wrap=tutti__stalls_check
