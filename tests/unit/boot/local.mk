# SPDX-License-Identifier: BSD-3-Clause

unit_tests += \
    %reldir%/test_boot \
    %reldir%/test_gate \
    %reldir%/test_id \
    %reldir%/test_meet \
    %reldir%/test_module \
    %reldir%/test_place \
    %reldir%/test_share \
    %reldir%/test_side

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

# What test_module opens: a module as it should be, and one for another version of the library.
check_LTLIBRARIES += %reldir%/mpi_fake.la %reldir%/mpi_old.la
%C%_mpi_fake_la_SOURCES = %reldir%/fake_module.c
%C%_mpi_fake_la_LDFLAGS = $(MODULE_LDFLAGS) -rpath /nowhere
%C%_mpi_fake_la_LIBADD =
%C%_mpi_old_la_SOURCES = %reldir%/fake_module.c
%C%_mpi_old_la_CPPFLAGS = $(AM_CPPFLAGS) -DFAKE_ABI=999
%C%_mpi_old_la_LDFLAGS = $(MODULE_LDFLAGS) -rpath /nowhere
%C%_mpi_old_la_LIBADD =
