# SPDX-License-Identifier: BSD-3-Clause

# This program replaces the core, and needs neither CUDA nor the library.
test_programs += %reldir%/module
%C%_module_CPPFLAGS = $(LIB_CPPFLAGS)
%C%_module_LDADD = -ldl
script_tests += %reldir%/module.sh
EXTRA_DIST += %reldir%/stubs.c

# Device kernels as C++ for the host.
if HAVE_CXX
rank_tests += %reldir%/test_kernels
endif
HOST_KERNELS_CXXFLAGS = $(TUTTI_OPT_CFLAGS) -std=c++17 -Wall -Wextra -ffp-contract=off \
    $(TUTTI_SANITIZE)
%C%_test_kernels_SOURCES = %reldir%/test_kernels.cc %reldir%/host_device.inc \
    %reldir%/host_kernels.inc %reldir%/host_marks.inc lib/reduce/cuda/launch.c
%C%_test_kernels_CPPFLAGS = $(LIB_CPPFLAGS) -I$(top_srcdir)/tests
%C%_test_kernels_CXXFLAGS = $(HOST_KERNELS_CXXFLAGS)
%C%_test_kernels_LDADD = libtutti_all.la -lm
