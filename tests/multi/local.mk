# SPDX-License-Identifier: BSD-3-Clause

rank_tests += %reldir%/direct %reldir%/async %reldir%/leave
script_tests +=
tsan_tests += %reldir%/direct %reldir%/async

# Needs no MPI to build, and no library: it stands in for the core.
test_programs += %reldir%/mpi_module
tests_multi_mpi_module_CPPFLAGS = $(LIB_CPPFLAGS)
tests_multi_mpi_module_LDADD = -lpthread -ldl
script_tests += %reldir%/mpi_module.sh

script_tests += %reldir%/bench_allreduce.sh
