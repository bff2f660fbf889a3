# SPDX-License-Identifier: BSD-3-Clause

rank_tests += %reldir%/async %reldir%/backlog %reldir%/groups %reldir%/leave %reldir%/zero_large
script_tests +=
tsan_tests += %reldir%/async %reldir%/groups

# All asynchronous calls.
rank_tests += %reldir%/async_all %reldir%/async_ends %reldir%/async_errors %reldir%/async_messages \
    %reldir%/handles %reldir%/join %reldir%/persistent
tsan_tests += %reldir%/async_all %reldir%/async_ends %reldir%/handles %reldir%/join \
    %reldir%/persistent
async_shared = %reldir%/async_calls.c %reldir%/async_calls.h %reldir%/async_run.c
%C%_async_all_SOURCES = %reldir%/async_all.c $(async_shared)
%C%_async_ends_SOURCES = %reldir%/async_ends.c $(async_shared)
%C%_async_errors_SOURCES = %reldir%/async_errors.c $(async_shared)
%C%_async_messages_SOURCES = %reldir%/async_messages.c $(async_shared)
%C%_handles_SOURCES = %reldir%/handles.c $(async_shared)
%C%_persistent_SOURCES = %reldir%/persistent.c $(async_shared)

rank_tests += %reldir%/again
tsan_tests += %reldir%/again

# Groups of ranks inside a host.
rank_tests += %reldir%/levels
tsan_tests += %reldir%/levels
%C%_levels_SOURCES = %reldir%/levels.c $(multi_case)
%C%_levels_LDADD = $(LDADD) -lm

# Direct calls against a sequential reference.
rank_tests += %reldir%/collectives %reldir%/collectives_bad %reldir%/collectives_forced \
    %reldir%/collectives_large %reldir%/collectives_offsets %reldir%/collectives_v \
    %reldir%/messages %reldir%/messages_bad %reldir%/mismatches
tsan_tests += %reldir%/collectives %reldir%/collectives_bad %reldir%/collectives_forced \
    %reldir%/collectives_v %reldir%/messages %reldir%/messages_bad %reldir%/mismatches
multi_case = %reldir%/coll_case.c %reldir%/coll_case.h %reldir%/forced.c \
    %reldir%/reference.c %reldir%/reference.h %reldir%/reference_user.c
%C%_collectives_SOURCES = %reldir%/collectives.c $(multi_case)
%C%_collectives_LDADD = $(LDADD) -lm
%C%_collectives_offsets_SOURCES = %reldir%/collectives_offsets.c $(multi_case)
%C%_collectives_offsets_LDADD = $(LDADD) -lm
%C%_collectives_v_SOURCES = %reldir%/collectives_v.c $(multi_case)
%C%_collectives_v_LDADD = $(LDADD) -lm
%C%_collectives_bad_SOURCES = %reldir%/collectives_bad.c $(multi_case)
%C%_collectives_bad_LDADD = $(LDADD) -lm
%C%_collectives_forced_SOURCES = %reldir%/collectives_forced.c $(multi_case)
%C%_collectives_forced_LDADD = $(LDADD) -lm
%C%_messages_SOURCES = %reldir%/messages.c $(multi_case)
%C%_messages_LDADD = $(LDADD) -lm
%C%_messages_bad_SOURCES = %reldir%/messages_bad.c $(multi_case)
%C%_messages_bad_LDADD = $(LDADD) -lm
%C%_mismatches_SOURCES = %reldir%/mismatches.c $(multi_case)
%C%_mismatches_LDADD = $(LDADD) -lm

# Schedules from files.
rank_tests += %reldir%/user_schedule
tsan_tests += %reldir%/user_schedule
%C%_user_schedule_SOURCES = %reldir%/user_schedule.c $(multi_case)
%C%_user_schedule_LDADD = $(LDADD) -lm

# Needs no MPI to build, and no library: it replaces the core.
test_programs += %reldir%/mpi_module
tests_multi_mpi_module_CPPFLAGS = $(LIB_CPPFLAGS)
tests_multi_mpi_module_LDADD = -lpthread -ldl
script_tests += %reldir%/mpi_module.sh

script_tests += %reldir%/bench_allreduce.sh %reldir%/bench_device.sh %reldir%/bench_disturb.sh \
    %reldir%/bench_family.sh %reldir%/bench_output.sh %reldir%/bench_peers.sh
script_tests += %reldir%/bench_gradients.sh %reldir%/bench_info.sh %reldir%/bench_sched.sh \
    %reldir%/bench_tune.sh
EXTRA_DIST += %reldir%/bench_common.sh

# Calls on device memory.
rank_tests += %reldir%/device_choice
tsan_tests += %reldir%/device_choice
%C%_device_choice_SOURCES = %reldir%/device_choice.c $(device_job) $(multi_case)
%C%_device_choice_LDADD = $(PRETEND_LIBS)
rank_tests += %reldir%/device_direct %reldir%/device_ends %reldir%/device_faults \
    %reldir%/device_parts %reldir%/device_streams
tsan_tests += %reldir%/device_direct %reldir%/device_ends %reldir%/device_faults \
    %reldir%/device_parts %reldir%/device_streams
device_job = %reldir%/device_job.c %reldir%/device_job.h
%C%_device_direct_SOURCES = %reldir%/device_direct.c $(device_job) $(multi_case)
%C%_device_direct_LDADD = $(PRETEND_LIBS)
%C%_device_ends_SOURCES = %reldir%/device_ends.c $(device_job) $(multi_case)
%C%_device_ends_LDADD = $(PRETEND_LIBS)
EXTRA_%C%_device_ends_DEPENDENCIES = tutti/pretend.la
%C%_device_faults_SOURCES = %reldir%/device_faults.c $(device_job) $(multi_case)
%C%_device_faults_LDADD = $(PRETEND_LIBS)
%C%_device_parts_SOURCES = %reldir%/device_parts.c $(device_job) $(multi_case)
%C%_device_parts_LDADD = $(PRETEND_LIBS)
%C%_device_streams_SOURCES = %reldir%/device_streams.c $(device_job) $(multi_case)
%C%_device_streams_LDADD = $(PRETEND_LIBS)

# Memory registered with NCCL, and the pretended NCCL's rules for it.
rank_tests += %reldir%/device_registered %reldir%/pretend_registered
tsan_tests += %reldir%/device_registered %reldir%/pretend_registered
%C%_device_registered_SOURCES = %reldir%/device_registered.c $(device_job) $(multi_case)
%C%_device_registered_LDADD = $(PRETEND_LIBS)
%C%_pretend_registered_SOURCES = %reldir%/pretend_registered.c %reldir%/pretend_job.c \
    %reldir%/pretend_job.h
%C%_pretend_registered_LDADD = $(PRETEND_LIBS)
rank_tests += %reldir%/device_flat %reldir%/device_flat_ends
tsan_tests += %reldir%/device_flat %reldir%/device_flat_ends
%C%_device_flat_SOURCES = %reldir%/device_flat.c $(device_job) $(multi_case)
%C%_device_flat_LDADD = $(PRETEND_LIBS)
%C%_device_flat_ends_SOURCES = %reldir%/device_flat_ends.c $(device_job) $(multi_case)
%C%_device_flat_ends_LDADD = $(PRETEND_LIBS)

# The pretend device as a module.
rank_tests += %reldir%/pretend_module
EXTRA_%C%_pretend_module_DEPENDENCIES = tutti/pretend.la

# The pretend device's NCCL.
rank_tests += %reldir%/pretend_ends %reldir%/pretend_misuse %reldir%/pretend_nccl
tsan_tests += %reldir%/pretend_ends %reldir%/pretend_misuse %reldir%/pretend_nccl
pretend_job = %reldir%/pretend_job.c %reldir%/pretend_job.h
%C%_pretend_ends_SOURCES = %reldir%/pretend_ends.c $(pretend_job)
%C%_pretend_ends_LDADD = $(PRETEND_LIBS)
%C%_pretend_misuse_SOURCES = %reldir%/pretend_misuse.c $(pretend_job)
%C%_pretend_misuse_LDADD = $(PRETEND_LIBS)
%C%_pretend_nccl_SOURCES = %reldir%/pretend_nccl.c $(pretend_job)
%C%_pretend_nccl_LDADD = $(PRETEND_LIBS)

# Asynchronous calls on device memory.
rank_tests += %reldir%/device_async %reldir%/device_async_ends %reldir%/device_async_queued
tsan_tests += %reldir%/device_async %reldir%/device_async_ends %reldir%/device_async_queued
device_world = %reldir%/device_world.c %reldir%/device_world.h
%C%_device_async_SOURCES = %reldir%/device_async.c $(device_world)
%C%_device_async_LDADD = $(PRETEND_LIBS)
%C%_device_async_ends_SOURCES = %reldir%/device_async_ends.c $(device_world)
%C%_device_async_ends_LDADD = $(PRETEND_LIBS)
%C%_device_async_queued_SOURCES = %reldir%/device_async_queued.c $(device_job) $(multi_case)
%C%_device_async_queued_LDADD = $(PRETEND_LIBS)

rank_tests += %reldir%/device_handover
tsan_tests += %reldir%/device_handover
%C%_device_handover_SOURCES = %reldir%/device_handover.c $(device_job) $(multi_case)
%C%_device_handover_LDADD = $(PRETEND_LIBS)

# Messages of device memory, over an MPI that accepts it with a preloaded library.
test_programs += %reldir%/mpi_direct
EXTRA_%C%_mpi_direct_DEPENDENCIES = tutti/pretend.la
tests_multi_mpi_direct_LDADD = $(API_LIBS) -ldl
script_tests += %reldir%/mpi_direct.sh %reldir%/mpi_direct_ends.sh
EXTRA_DIST += %reldir%/mpi_direct_common.sh
if HAVE_OPENMPI
check_LTLIBRARIES += tests/multi/mpi_direct_shim.la
tests_multi_mpi_direct_shim_la_SOURCES = %reldir%/mpi_direct_shim.c
tests_multi_mpi_direct_shim_la_CPPFLAGS = $(AM_CPPFLAGS) $(OPENMPI_CFLAGS)
tests_multi_mpi_direct_shim_la_LDFLAGS = $(MODULE_LDFLAGS) -rpath /nowhere
tests_multi_mpi_direct_shim_la_LIBADD = $(OPENMPI_LIBS) -lpthread -ldl
endif
EXTRA_DIST += %reldir%/mpi_direct_shim.c
# State of devices after errors, ends and forks.
rank_tests += %reldir%/device_reuse
tsan_tests += %reldir%/device_reuse
%C%_device_reuse_SOURCES = %reldir%/device_reuse.c $(device_job) $(multi_case)
%C%_device_reuse_LDADD = $(PRETEND_LIBS)
rank_tests += %reldir%/device_stopped
%C%_device_stopped_SOURCES = %reldir%/device_stopped.c $(device_job) $(multi_case)
%C%_device_stopped_LDADD = $(PRETEND_LIBS)
rank_tests += %reldir%/device_funneled
tsan_tests += %reldir%/device_funneled
%C%_device_funneled_SOURCES = %reldir%/device_funneled.c $(device_job) $(multi_case)
%C%_device_funneled_LDADD = $(PRETEND_LIBS)
rank_tests += %reldir%/device_fork
%C%_device_fork_SOURCES = %reldir%/device_fork.c $(device_job) $(multi_case)
%C%_device_fork_LDADD = $(PRETEND_LIBS)
rank_tests += %reldir%/device_overdue
tsan_tests += %reldir%/device_overdue
%C%_device_overdue_SOURCES = %reldir%/device_overdue.c $(device_job) $(multi_case)
%C%_device_overdue_LDADD = $(PRETEND_LIBS)
rank_tests += %reldir%/device_loops
%C%_device_loops_SOURCES = %reldir%/device_loops.c $(device_job) $(multi_case)
%C%_device_loops_LDADD = $(PRETEND_LIBS)
# Known hangs of NCCL; see docs/decisions.md.
rank_tests += %reldir%/device_stuck
tsan_tests += %reldir%/device_stuck
%C%_device_stuck_SOURCES = %reldir%/device_stuck.c $(device_job) $(multi_case)
%C%_device_stuck_LDADD = $(PRETEND_LIBS)
rank_tests += %reldir%/device_limits
tsan_tests += %reldir%/device_limits
%C%_device_limits_SOURCES = %reldir%/device_limits.c $(device_job) $(multi_case)
%C%_device_limits_LDADD = $(PRETEND_LIBS)
rank_tests += %reldir%/device_split
tsan_tests += %reldir%/device_split
%C%_device_split_SOURCES = %reldir%/device_split.c $(device_job) $(multi_case)
%C%_device_split_LDADD = $(PRETEND_LIBS)

# See tests/local.mk.
asan_quick += %reldir%/async_ends %reldir%/async_errors \
    %reldir%/collectives_bad %reldir%/collectives_v %reldir%/device_async_ends \
    %reldir%/device_ends %reldir%/device_faults %reldir%/leave \
    %reldir%/messages_bad %reldir%/user_schedule
asan_quick_scripts += %reldir%/mpi_module.sh
asan_quick_programs += %reldir%/mpi_module
tsan_quick += %reldir%/async %reldir%/async_ends %reldir%/device_async \
    %reldir%/device_async_ends %reldir%/device_ends %reldir%/device_flat_ends \
    %reldir%/device_reuse %reldir%/groups %reldir%/join \
    %reldir%/mismatches %reldir%/persistent
