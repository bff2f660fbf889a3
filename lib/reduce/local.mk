# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/dispatch.c \
    %reldir%/fold_pairs.c \
    %reldir%/fold_pairs.h \
    %reldir%/kernels.h \
    %reldir%/nontemporal.c \
    %reldir%/nontemporal.h \
    %reldir%/reduce.h \
    %reldir%/user.c
EXTRA_DIST += \
    %reldir%/kernels_f16c.inc \
    %reldir%/kernels_float.inc \
    %reldir%/kernels_int.inc \
    %reldir%/kernels_loc.inc \
    %reldir%/kernels_narrow.inc \
    %reldir%/kernels_sse2.inc \
    %reldir%/sum.inc

noinst_LTLIBRARIES += libtutti_kernels_scalar.la
libtutti_all_la_LIBADD += libtutti_kernels_scalar.la
libtutti_kernels_scalar_la_SOURCES = %reldir%/kernels.c
libtutti_kernels_scalar_la_CPPFLAGS = $(LIB_CPPFLAGS) -DTUTTI__ISA=scalar -DTUTTI__SCALAR
libtutti_kernels_scalar_la_CFLAGS = $(AM_CFLAGS) $(TUTTI_KERNEL_CFLAGS) $(TUTTI_SCALAR_CFLAGS)

if X86_KERNELS
noinst_LTLIBRARIES += libtutti_kernels_sse2.la libtutti_kernels_avx2.la libtutti_kernels_avx512.la
libtutti_all_la_LIBADD += libtutti_kernels_sse2.la libtutti_kernels_avx2.la \
    libtutti_kernels_avx512.la
libtutti_kernels_sse2_la_SOURCES = %reldir%/kernels.c
libtutti_kernels_sse2_la_CPPFLAGS = $(LIB_CPPFLAGS) -DTUTTI__ISA=sse2
libtutti_kernels_sse2_la_CFLAGS = $(AM_CFLAGS) $(TUTTI_KERNEL_CFLAGS)
libtutti_kernels_avx2_la_SOURCES = %reldir%/kernels.c
libtutti_kernels_avx2_la_CPPFLAGS = $(LIB_CPPFLAGS) -DTUTTI__ISA=avx2
libtutti_kernels_avx2_la_CFLAGS = $(AM_CFLAGS) $(TUTTI_KERNEL_CFLAGS) $(TUTTI_AVX2_CFLAGS)
libtutti_kernels_avx512_la_SOURCES = %reldir%/kernels.c
libtutti_kernels_avx512_la_CPPFLAGS = $(LIB_CPPFLAGS) -DTUTTI__ISA=avx512
libtutti_kernels_avx512_la_CFLAGS = $(AM_CFLAGS) $(TUTTI_KERNEL_CFLAGS) $(TUTTI_AVX512_CFLAGS)
endif

if NEON_KERNELS
noinst_LTLIBRARIES += libtutti_kernels_neon.la
libtutti_all_la_LIBADD += libtutti_kernels_neon.la
libtutti_kernels_neon_la_SOURCES = %reldir%/kernels.c
libtutti_kernels_neon_la_CPPFLAGS = $(LIB_CPPFLAGS) -DTUTTI__ISA=neon
libtutti_kernels_neon_la_CFLAGS = $(AM_CFLAGS) $(TUTTI_KERNEL_CFLAGS)
endif

include %reldir%/cuda/local.mk
