# SPDX-License-Identifier: BSD-3-Clause

# One shared object that stands for libcuda, libcudart, libcublas and libnccl; see inside.h.
# names.sh gives it their names. The kernels are in a separate library, so that the rest is
# linked as C.
if HAVE_CUDA
if HAVE_CXX
check_LTLIBRARIES += tests/libhost_kernels.la tests/cuda_libs.la
endif
endif
tests_libhost_kernels_la_SOURCES = \
    %reldir%/kernels.cc \
    %reldir%/kernels.h \
    %reldir%/trainer.cc \
    tests/unit/cuda/host_kernels.inc \
    tests/unit/cuda/host_marks.inc
tests_libhost_kernels_la_CPPFLAGS = \
    $(LIB_CPPFLAGS) -I$(top_srcdir)/tests -I$(top_srcdir)/examples
tests_libhost_kernels_la_CXXFLAGS = $(HOST_KERNELS_CXXFLAGS)
tests_cuda_libs_la_SOURCES = \
    %reldir%/blas.c \
    %reldir%/capture.c \
    %reldir%/driver.c \
    %reldir%/errors.c \
    %reldir%/inside.h \
    %reldir%/nccl.c \
    %reldir%/nccl_calls.c \
    %reldir%/runtime.c \
    %reldir%/streams.c
tests_cuda_libs_la_CPPFLAGS = $(LIB_CPPFLAGS) -I$(top_srcdir)/tests $(CUDA_CFLAGS)
tests_cuda_libs_la_LIBADD = \
    tests/libhost_kernels.la tests/libpretend.la libtutti_all.la -lpthread -lm
tests_cuda_libs_la_LDFLAGS = $(MODULE_LDFLAGS) -rpath /nowhere -Wl,-Bsymbolic \
    -export-symbols-regex '^(cu|cuda|cublas|nccl)[A-Z]'
EXTRA_DIST += %reldir%/names.sh
