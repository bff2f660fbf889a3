# SPDX-License-Identifier: BSD-3-Clause

rank_tests += %reldir%/requests/async %reldir%/requests/backlog %reldir%/requests/groups \
    %reldir%/requests/goodbye %reldir%/requests/leave %reldir%/direct/zero_large
tsan_tests += %reldir%/requests/async %reldir%/requests/groups

# Communicators without a parent.
rank_tests += %reldir%/requests/connect %reldir%/requests/connect_ends
tsan_tests += %reldir%/requests/connect
tsan_quick += %reldir%/requests/connect
asan_quick += %reldir%/requests/connect %reldir%/requests/connect_ends

# Learned plans.
rank_tests += %reldir%/requests/plans %reldir%/requests/plans_changes \
    %reldir%/requests/plans_lanes %reldir%/requests/plans_ends
tsan_tests += %reldir%/requests/plans %reldir%/requests/plans_changes %reldir%/requests/plans_lanes
tsan_quick += %reldir%/requests/plans %reldir%/requests/plans_changes %reldir%/requests/plans_lanes
asan_quick += %reldir%/requests/plans %reldir%/requests/plans_changes \
    %reldir%/requests/plans_lanes %reldir%/requests/plans_ends

# The order of additions.
rank_tests += %reldir%/requests/bits

# Priorities.
rank_tests += %reldir%/requests/urgent
tsan_tests += %reldir%/requests/urgent

# Wire formats.
rank_tests += %reldir%/requests/wire
tsan_tests += %reldir%/requests/wire
asan_quick += %reldir%/requests/wire
%C%_requests_wire_LDADD = $(LDADD) -lm

# The engine's thread.
rank_tests += %reldir%/requests/alarm

# Calls without a name, and deadlines of requests.
rank_tests += %reldir%/requests/nameless
early_rank_tests += %reldir%/requests/overdue
tsan_tests += %reldir%/requests/nameless
tsan_quick += %reldir%/requests/nameless
asan_quick += %reldir%/requests/nameless

# Statistics.
rank_tests += %reldir%/requests/counters
tsan_tests += %reldir%/requests/counters
tsan_quick += %reldir%/requests/counters
asan_quick += %reldir%/requests/counters

# All asynchronous calls.
rank_tests += %reldir%/requests/async_all %reldir%/requests/async_ends %reldir%/requests/async_errors \
    %reldir%/requests/async_messages \
    %reldir%/requests/handles %reldir%/requests/persistent
early_rank_tests += %reldir%/requests/join
tsan_tests += %reldir%/requests/async_all %reldir%/requests/async_ends %reldir%/requests/handles \
    %reldir%/requests/join \
    %reldir%/requests/persistent
async_shared = %reldir%/requests/async_calls.c %reldir%/requests/async_calls.h %reldir%/requests/async_run.c
%C%_requests_async_all_SOURCES = %reldir%/requests/async_all.c $(async_shared)
%C%_requests_async_ends_SOURCES = %reldir%/requests/async_ends.c $(async_shared)
%C%_requests_async_errors_SOURCES = %reldir%/requests/async_errors.c $(async_shared)
%C%_requests_async_messages_SOURCES = %reldir%/requests/async_messages.c $(async_shared)
%C%_requests_handles_SOURCES = %reldir%/requests/handles.c $(async_shared)
%C%_requests_nameless_SOURCES = %reldir%/requests/nameless.c $(async_shared)
%C%_requests_persistent_SOURCES = %reldir%/requests/persistent.c $(async_shared)

rank_tests += %reldir%/direct/again
tsan_tests += %reldir%/direct/again
rank_tests += %reldir%/direct/late_data

# Groups of ranks inside a host.
rank_tests += %reldir%/direct/levels
tsan_tests += %reldir%/direct/levels
%C%_direct_levels_SOURCES = %reldir%/direct/levels.c $(multi_case)
%C%_direct_levels_LDADD = $(LDADD) -lm

# Direct calls against a sequential reference.
rank_tests += %reldir%/direct/collectives %reldir%/direct/collectives_bad \
    %reldir%/direct/collectives_forced \
    %reldir%/direct/collectives_large %reldir%/direct/collectives_offsets \
    %reldir%/direct/collectives_v \
    %reldir%/direct/messages %reldir%/direct/messages_bad %reldir%/direct/mismatches
tsan_tests += %reldir%/direct/collectives %reldir%/direct/collectives_bad \
    %reldir%/direct/collectives_forced \
    %reldir%/direct/collectives_v %reldir%/direct/messages \
    %reldir%/direct/messages_bad %reldir%/direct/mismatches
multi_case = %reldir%/direct/coll_case.c %reldir%/direct/coll_case.h \
    %reldir%/direct/forced.c \
    %reldir%/direct/reference.c %reldir%/direct/reference.h \
    %reldir%/direct/reference_user.c
%C%_direct_collectives_SOURCES = %reldir%/direct/collectives.c $(multi_case)
%C%_direct_collectives_LDADD = $(LDADD) -lm
%C%_direct_collectives_offsets_SOURCES = %reldir%/direct/collectives_offsets.c \
    $(multi_case)
%C%_direct_collectives_offsets_LDADD = $(LDADD) -lm
%C%_direct_collectives_v_SOURCES = %reldir%/direct/collectives_v.c $(multi_case)
%C%_direct_collectives_v_LDADD = $(LDADD) -lm
%C%_direct_collectives_bad_SOURCES = %reldir%/direct/collectives_bad.c $(multi_case)
%C%_direct_collectives_bad_LDADD = $(LDADD) -lm
%C%_direct_collectives_forced_SOURCES = %reldir%/direct/collectives_forced.c $(multi_case)
%C%_direct_collectives_forced_LDADD = $(LDADD) -lm
%C%_direct_messages_SOURCES = %reldir%/direct/messages.c $(multi_case)
%C%_direct_messages_LDADD = $(LDADD) -lm
%C%_direct_messages_bad_SOURCES = %reldir%/direct/messages_bad.c $(multi_case)
%C%_direct_messages_bad_LDADD = $(LDADD) -lm
%C%_direct_mismatches_SOURCES = %reldir%/direct/mismatches.c $(multi_case)
%C%_direct_mismatches_LDADD = $(LDADD) -lm

# Memory of the program that is registered.
rank_tests += %reldir%/direct/registered
tsan_tests += %reldir%/direct/registered
asan_quick += %reldir%/direct/registered
%C%_direct_registered_SOURCES = %reldir%/direct/registered.c $(multi_case)
%C%_direct_registered_LDADD = $(LDADD) -lm

# The number of messages with and without the comparison of calls.
rank_tests += %reldir%/direct/compared_sends
%C%_direct_compared_sends_SOURCES = %reldir%/direct/compared_sends.c $(multi_case)
%C%_direct_compared_sends_LDADD = $(LDADD) -lm

# Schedules from files.
rank_tests += %reldir%/direct/user_node %reldir%/direct/user_schedule
tsan_tests += %reldir%/direct/user_node %reldir%/direct/user_schedule
%C%_direct_user_node_SOURCES = %reldir%/direct/user_node.c $(multi_case)
%C%_direct_user_node_LDADD = $(LDADD) -lm
%C%_direct_user_schedule_SOURCES = %reldir%/direct/user_schedule.c $(multi_case)
%C%_direct_user_schedule_LDADD = $(LDADD) -lm

# mpi_module needs neither MPI nor the library to build: it has a core of its own.
test_programs += %reldir%/mpi/mpi_module
EXTRA_DIST += %reldir%/module_check.h
tests_multi_mpi_mpi_module_CPPFLAGS = $(LIB_CPPFLAGS) -I$(top_srcdir)/tests
tests_multi_mpi_mpi_module_LDADD = -lpthread -ldl
early_script_tests += %reldir%/mpi/mpi_module.sh

# Finds MPI at run time.
test_programs += %reldir%/mpi/mpi_connect
tests_multi_mpi_mpi_connect_SOURCES = %reldir%/mpi/mpi_connect.c %reldir%/../api/api.h
tests_multi_mpi_mpi_connect_LDADD = $(API_LIBS) -ldl
script_tests += %reldir%/mpi/mpi_connect.sh

# The UCX module, in the same way.
if HAVE_UCX
test_programs += %reldir%/ucx/ucx_module
tests_multi_ucx_ucx_module_CPPFLAGS = $(LIB_CPPFLAGS) -I$(top_srcdir)/tests
tests_multi_ucx_ucx_module_LDADD = -lpthread -ldl
else
EXTRA_DIST += %reldir%/ucx/ucx_module.c
endif
script_tests += %reldir%/ucx/ucx_module.sh %reldir%/ucx/ucx_hosts.sh
EXTRA_DIST += %reldir%/ucx/ucx_common.sh

early_script_tests += %reldir%/bench/bench_device.sh %reldir%/bench/bench_device_lists.sh \
    %reldir%/bench/bench_family.sh
script_tests += %reldir%/bench/bench_allreduce.sh %reldir%/bench/bench_cluster.sh \
    %reldir%/bench/bench_disturb.sh %reldir%/bench/bench_gradients.sh \
    %reldir%/bench/bench_info.sh %reldir%/bench/bench_output.sh \
    %reldir%/bench/bench_peers.sh %reldir%/bench/bench_sched.sh %reldir%/bench/bench_tune.sh \
    %reldir%/bench/bench_tune_gradients.sh %reldir%/bench/bench_tune_link.sh
EXTRA_DIST += %reldir%/bench/bench_common.sh %reldir%/bench/bench_on_device.sh

# Calls on device memory.
rank_tests += %reldir%/device/device_choice
tsan_tests += %reldir%/device/device_choice
%C%_device_device_choice_SOURCES = %reldir%/device/device_choice.c $(device_job) $(multi_case)
%C%_device_device_choice_LDADD = $(PRETEND_LIBS)
rank_tests += %reldir%/device/device_direct %reldir%/device/device_ends \
    %reldir%/device/device_faults %reldir%/device/device_gaps \
    %reldir%/device/device_parts %reldir%/device/device_streams
tsan_tests += %reldir%/device/device_direct %reldir%/device/device_ends \
    %reldir%/device/device_faults %reldir%/device/device_gaps \
    %reldir%/device/device_parts %reldir%/device/device_streams
device_job = %reldir%/device/device_job.c %reldir%/device/device_job.h
%C%_device_device_direct_SOURCES = %reldir%/device/device_direct.c $(device_job) $(multi_case)
%C%_device_device_direct_LDADD = $(PRETEND_LIBS)
%C%_device_device_ends_SOURCES = %reldir%/device/device_ends.c $(device_job) $(multi_case)
%C%_device_device_ends_LDADD = $(PRETEND_LIBS)
EXTRA_%C%_device_device_ends_DEPENDENCIES = tutti/pretend.la
%C%_device_device_faults_SOURCES = %reldir%/device/device_faults.c $(device_job) $(multi_case)
%C%_device_device_faults_LDADD = $(PRETEND_LIBS)
%C%_device_device_gaps_SOURCES = %reldir%/device/device_gaps.c $(device_job) $(multi_case)
%C%_device_device_gaps_LDADD = $(PRETEND_LIBS)
%C%_device_device_parts_SOURCES = %reldir%/device/device_parts.c $(device_job) $(multi_case)
%C%_device_device_parts_LDADD = $(PRETEND_LIBS)
%C%_device_device_streams_SOURCES = %reldir%/device/device_streams.c $(device_job) $(multi_case)
%C%_device_device_streams_LDADD = $(PRETEND_LIBS)

# Memory registered with NCCL, and the pretended NCCL's rules for it.
rank_tests += %reldir%/device/device_registered %reldir%/device/pretend_registered
tsan_tests += %reldir%/device/device_registered %reldir%/device/pretend_registered
%C%_device_device_registered_SOURCES = %reldir%/device/device_registered.c $(device_job) \
    $(multi_case)
%C%_device_device_registered_LDADD = $(PRETEND_LIBS)
%C%_device_pretend_registered_SOURCES = %reldir%/device/pretend_registered.c \
    %reldir%/device/pretend_job.c \
    %reldir%/device/pretend_job.h
%C%_device_pretend_registered_LDADD = $(PRETEND_LIBS)
rank_tests += %reldir%/device/device_flat %reldir%/device/device_flat_ends
tsan_tests += %reldir%/device/device_flat %reldir%/device/device_flat_ends
%C%_device_device_flat_SOURCES = %reldir%/device/device_flat.c $(device_job) $(multi_case)
%C%_device_device_flat_LDADD = $(PRETEND_LIBS)
%C%_device_device_flat_ends_SOURCES = %reldir%/device/device_flat_ends.c $(device_job) $(multi_case)
%C%_device_device_flat_ends_LDADD = $(PRETEND_LIBS)

# The pretend device as a module.
rank_tests += %reldir%/device/pretend_module
EXTRA_%C%_device_pretend_module_DEPENDENCIES = tutti/pretend.la

# The pretend device's NCCL.
rank_tests += %reldir%/device/pretend_ends %reldir%/device/pretend_misuse \
    %reldir%/device/pretend_nccl
tsan_tests += %reldir%/device/pretend_ends %reldir%/device/pretend_misuse \
    %reldir%/device/pretend_nccl
pretend_job = %reldir%/device/pretend_job.c %reldir%/device/pretend_job.h
%C%_device_pretend_ends_SOURCES = %reldir%/device/pretend_ends.c $(pretend_job)
%C%_device_pretend_ends_LDADD = $(PRETEND_LIBS)
%C%_device_pretend_misuse_SOURCES = %reldir%/device/pretend_misuse.c $(pretend_job)
%C%_device_pretend_misuse_LDADD = $(PRETEND_LIBS)
%C%_device_pretend_nccl_SOURCES = %reldir%/device/pretend_nccl.c $(pretend_job)
%C%_device_pretend_nccl_LDADD = $(PRETEND_LIBS)

# Asynchronous calls on device memory.
rank_tests += %reldir%/device/device_async %reldir%/device/device_async_ends \
    %reldir%/device/device_async_queued
tsan_tests += %reldir%/device/device_async %reldir%/device/device_async_ends \
    %reldir%/device/device_async_queued
device_world = %reldir%/device/device_world.c %reldir%/device/device_world.h
%C%_device_device_async_SOURCES = %reldir%/device/device_async.c $(device_world)
%C%_device_device_async_LDADD = $(PRETEND_LIBS)
%C%_device_device_async_ends_SOURCES = %reldir%/device/device_async_ends.c $(device_world)
%C%_device_device_async_ends_LDADD = $(PRETEND_LIBS)
device_user = $(device_job) %reldir%/device/device_user.c %reldir%/device/device_user.h
%C%_device_device_async_queued_SOURCES = %reldir%/device/device_async_queued.c $(device_user) \
    $(multi_case)
%C%_device_device_async_queued_LDADD = $(PRETEND_LIBS)

rank_tests += %reldir%/device/device_join %reldir%/requests/mixtures
tsan_tests += %reldir%/device/device_join %reldir%/requests/mixtures
%C%_device_device_join_SOURCES = %reldir%/device/device_join.c $(device_user)
%C%_device_device_join_LDADD = $(PRETEND_LIBS)
%C%_requests_mixtures_SOURCES = %reldir%/requests/mixtures.c $(device_user)
%C%_requests_mixtures_LDADD = $(PRETEND_LIBS)

early_rank_tests += %reldir%/device/device_handover %reldir%/device/device_handover_ends
tsan_tests += %reldir%/device/device_handover %reldir%/device/device_handover_ends
device_handover = $(device_user) $(multi_case) %reldir%/device/handover.c \
    %reldir%/device/handover.h
%C%_device_device_handover_SOURCES = %reldir%/device/device_handover.c $(device_handover)
%C%_device_device_handover_LDADD = $(PRETEND_LIBS)
%C%_device_device_handover_ends_SOURCES = %reldir%/device/device_handover_ends.c $(device_handover)
%C%_device_device_handover_ends_LDADD = $(PRETEND_LIBS)

# Messages from and to device memory, over an MPI or UCX that accepts it through a preloaded library.
test_programs += %reldir%/device/gpu_direct
EXTRA_%C%_device_gpu_direct_DEPENDENCIES = tutti/pretend.la
tests_multi_device_gpu_direct_LDADD = $(API_LIBS) -lpthread -ldl
script_tests += %reldir%/mpi/mpi_gpu_direct.sh %reldir%/mpi/mpi_gpu_direct_ends.sh \
    %reldir%/ucx/ucx_gpu_direct.sh
EXTRA_DIST += %reldir%/mpi/mpi_gpu_direct_common.sh
if HAVE_OPENMPI
check_LTLIBRARIES += tests/multi/mpi/mpi_gpu_direct_shim.la
tests_multi_mpi_mpi_gpu_direct_shim_la_SOURCES = %reldir%/mpi/mpi_gpu_direct_shim.c
tests_multi_mpi_mpi_gpu_direct_shim_la_CPPFLAGS = $(AM_CPPFLAGS) $(OPENMPI_CFLAGS)
tests_multi_mpi_mpi_gpu_direct_shim_la_LDFLAGS = $(MODULE_LDFLAGS) -rpath /nowhere
tests_multi_mpi_mpi_gpu_direct_shim_la_LIBADD = $(OPENMPI_LIBS) -lpthread -ldl
endif
if HAVE_UCX
check_LTLIBRARIES += tests/multi/ucx/ucx_gpu_direct_shim.la
tests_multi_ucx_ucx_gpu_direct_shim_la_SOURCES = %reldir%/ucx/ucx_gpu_direct_shim.c
tests_multi_ucx_ucx_gpu_direct_shim_la_CPPFLAGS = $(AM_CPPFLAGS) $(UCX_CFLAGS)
tests_multi_ucx_ucx_gpu_direct_shim_la_LDFLAGS = $(MODULE_LDFLAGS) -rpath /nowhere
tests_multi_ucx_ucx_gpu_direct_shim_la_LIBADD = -lpthread -ldl
endif
EXTRA_DIST += %reldir%/mpi/mpi_gpu_direct_shim.c %reldir%/ucx/ucx_gpu_direct_shim.c

# State of devices after errors, ends and forks.
rank_tests += %reldir%/device/device_reuse
tsan_tests += %reldir%/device/device_reuse
%C%_device_device_reuse_SOURCES = %reldir%/device/device_reuse.c $(device_job) $(multi_case)
%C%_device_device_reuse_LDADD = $(PRETEND_LIBS)
early_rank_tests += %reldir%/device/device_stopped
%C%_device_device_stopped_SOURCES = %reldir%/device/device_stopped.c $(device_job) $(multi_case)
%C%_device_device_stopped_LDADD = $(PRETEND_LIBS)
rank_tests += %reldir%/device/device_funneled
tsan_tests += %reldir%/device/device_funneled
%C%_device_device_funneled_SOURCES = %reldir%/device/device_funneled.c $(device_job) $(multi_case)
%C%_device_device_funneled_LDADD = $(PRETEND_LIBS)
rank_tests += %reldir%/device/device_fork
%C%_device_device_fork_SOURCES = %reldir%/device/device_fork.c $(device_job) $(multi_case)
%C%_device_device_fork_LDADD = $(PRETEND_LIBS)
early_rank_tests += %reldir%/device/device_overdue
tsan_tests += %reldir%/device/device_overdue
%C%_device_device_overdue_SOURCES = %reldir%/device/device_overdue.c $(device_job) $(multi_case)
%C%_device_device_overdue_LDADD = $(PRETEND_LIBS)
rank_tests += %reldir%/device/device_loops
%C%_device_device_loops_SOURCES = %reldir%/device/device_loops.c $(device_job) $(multi_case)
%C%_device_device_loops_LDADD = $(PRETEND_LIBS)
# Known hangs of NCCL; see docs/decisions.md.
early_rank_tests += %reldir%/device/device_stuck
tsan_tests += %reldir%/device/device_stuck
%C%_device_device_stuck_SOURCES = %reldir%/device/device_stuck.c $(device_job) $(multi_case)
%C%_device_device_stuck_LDADD = $(PRETEND_LIBS)
rank_tests += %reldir%/device/device_limits
tsan_tests += %reldir%/device/device_limits
%C%_device_device_limits_SOURCES = %reldir%/device/device_limits.c $(device_job) $(multi_case)
%C%_device_device_limits_LDADD = $(PRETEND_LIBS)
rank_tests += %reldir%/device/device_split
tsan_tests += %reldir%/device/device_split
%C%_device_device_split_SOURCES = %reldir%/device/device_split.c $(device_job) $(multi_case)
%C%_device_device_split_LDADD = $(PRETEND_LIBS)

# See tests/local.mk.
asan_quick += %reldir%/requests/async_ends %reldir%/requests/async_errors \
    %reldir%/direct/collectives_bad %reldir%/direct/collectives_v \
    %reldir%/device/device_async_ends \
    %reldir%/device/device_ends %reldir%/device/device_faults %reldir%/requests/leave \
    %reldir%/direct/messages_bad %reldir%/direct/user_schedule
asan_quick_scripts += %reldir%/mpi/mpi_module.sh
asan_quick_programs += %reldir%/mpi/mpi_module
tsan_quick += %reldir%/requests/async %reldir%/requests/async_ends %reldir%/device/device_async \
    %reldir%/device/device_async_ends %reldir%/device/device_ends %reldir%/device/device_flat_ends \
    %reldir%/device/device_reuse %reldir%/requests/groups %reldir%/requests/join \
    %reldir%/direct/mismatches %reldir%/requests/persistent
