# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/dispatch.c \
    %reldir%/kernels.h \
    %reldir%/reduce.h
EXTRA_DIST += %reldir%/fold.inc %reldir%/ops.inc

noinst_LTLIBRARIES += libtutti_kernels_base.la
libtutti_all_la_LIBADD += libtutti_kernels_base.la
libtutti_kernels_base_la_SOURCES = %reldir%/kernels.c
libtutti_kernels_base_la_CPPFLAGS = $(LIB_CPPFLAGS) -DTUTTI__ISA=base
libtutti_kernels_base_la_CFLAGS = $(AM_CFLAGS) $(TUTTI_KERNEL_CFLAGS)

if X86_KERNELS
noinst_LTLIBRARIES += libtutti_kernels_avx2.la libtutti_kernels_avx512.la
libtutti_all_la_LIBADD += libtutti_kernels_avx2.la libtutti_kernels_avx512.la
libtutti_kernels_avx2_la_SOURCES = %reldir%/kernels.c
libtutti_kernels_avx2_la_CPPFLAGS = $(LIB_CPPFLAGS) -DTUTTI__ISA=avx2
libtutti_kernels_avx2_la_CFLAGS = $(AM_CFLAGS) $(TUTTI_KERNEL_CFLAGS) $(TUTTI_AVX2_CFLAGS)
libtutti_kernels_avx512_la_SOURCES = %reldir%/kernels.c
libtutti_kernels_avx512_la_CPPFLAGS = $(LIB_CPPFLAGS) -DTUTTI__ISA=avx512
libtutti_kernels_avx512_la_CFLAGS = $(AM_CFLAGS) $(TUTTI_KERNEL_CFLAGS) $(TUTTI_AVX512_CFLAGS)
endif
