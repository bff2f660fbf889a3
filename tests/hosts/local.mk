# SPDX-License-Identifier: BSD-3-Clause

rank_tests +=

# Like an application, these programs link the library and not MPI.
test_programs += %reldir%/hosts_check
tests_hosts_hosts_check_SOURCES = %reldir%/hosts_check.c %reldir%/checks.h
tests_hosts_hosts_check_LDADD = libtutti.la -lpthread
test_programs += %reldir%/collectives_check
tests_hosts_collectives_check_SOURCES = %reldir%/collectives_check.c %reldir%/checks.h
tests_hosts_collectives_check_LDADD = libtutti.la
test_programs += %reldir%/down_check
tests_hosts_down_check_LDADD = libtutti.la
test_programs += %reldir%/direct_check
tests_hosts_direct_check_SOURCES = %reldir%/direct_check.c %reldir%/checks.h
tests_hosts_direct_check_LDADD = libtutti.la
test_programs += %reldir%/random_check
tests_hosts_random_check_SOURCES = %reldir%/random_check.c %reldir%/checks.h
tests_hosts_random_check_LDADD = libtutti.la
test_programs += %reldir%/messages_check
tests_hosts_messages_check_SOURCES = %reldir%/messages_check.c %reldir%/checks.h
tests_hosts_messages_check_LDADD = libtutti.la
test_programs += %reldir%/starting_check
tests_hosts_starting_check_LDADD = libtutti.la
test_programs += %reldir%/bits_check
tests_hosts_bits_check_LDADD = libtutti.la
test_programs += %reldir%/idle_check
tests_hosts_idle_check_SOURCES = %reldir%/idle_check.c %reldir%/checks.h
tests_hosts_idle_check_LDADD = libtutti.la

test_programs += %reldir%/faults_check
tests_hosts_faults_check_SOURCES = %reldir%/faults_check.c %reldir%/checks.h
tests_hosts_faults_check_LDADD = libtutti.la

# These programs do not use the library. They are parts of cluster.sh and cluster_check.sh.
test_programs += %reldir%/cluster_relay %reldir%/cluster_wire
tests_hosts_cluster_relay_LDADD =
tests_hosts_cluster_wire_LDADD =

# A program like an application that uses MPI itself.
if HAVE_MPI
test_programs += %reldir%/app_mpi
tests_hosts_app_mpi_CPPFLAGS = $(AM_CPPFLAGS) $(MPI_CFLAGS)
tests_hosts_app_mpi_LDADD = libtutti.la $(MPI_LIBS)
else
EXTRA_DIST += %reldir%/app_mpi.c
endif

if HAVE_OPENMPI
check_LTLIBRARIES += tests/hosts/held_shim.la
tests_hosts_held_shim_la_SOURCES = %reldir%/held_shim.c
tests_hosts_held_shim_la_CPPFLAGS = $(AM_CPPFLAGS) $(OPENMPI_CFLAGS)
tests_hosts_held_shim_la_LDFLAGS = $(MODULE_LDFLAGS) -rpath /nowhere
tests_hosts_held_shim_la_LIBADD = $(OPENMPI_LIBS) -lpthread
endif
EXTRA_DIST += %reldir%/held_shim.c

script_tests += \
    %reldir%/app_mpi.sh \
    %reldir%/bits.sh \
    %reldir%/cluster_auto.sh \
    %reldir%/cluster_calls.sh \
    %reldir%/cluster_check.sh \
    %reldir%/cluster_data.sh \
    %reldir%/cluster_down.sh \
    %reldir%/cluster_trainer.sh \
    %reldir%/cluster_ucx.sh \
    %reldir%/collectives.sh \
    %reldir%/direct_check.sh \
    %reldir%/groups.sh \
    %reldir%/held.sh \
    %reldir%/hosts.sh \
    %reldir%/late.sh \
    %reldir%/lost.sh \
    %reldir%/messages.sh \
    %reldir%/one_host.sh \
    %reldir%/pmix.sh \
    %reldir%/random_check.sh \
    %reldir%/slurm.sh \
    %reldir%/torchrun.sh
early_script_tests += \
    %reldir%/faults.sh \
    %reldir%/cluster_idle.sh \
    %reldir%/starting.sh

EXTRA_DIST += %reldir%/cluster.sh %reldir%/cluster_common.sh %reldir%/common.sh \
    %reldir%/steady.sh

# See tests/local.mk.
asan_quick_scripts += %reldir%/hosts.sh
asan_quick_programs += %reldir%/hosts_check
