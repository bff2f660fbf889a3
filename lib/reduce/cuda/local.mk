# SPDX-License-Identifier: BSD-3-Clause
#
# Kernels of the CUDA module: kernels.cu is compiled for all architectures into one file, and that
# becomes an array of bytes in a C source.

cuda_module_sources += \
    %reldir%/kernel_args.h \
    %reldir%/launch.c

cuda_kernels_sources = \
    %reldir%/kernels.cu \
    %reldir%/kernel_args.h \
    %reldir%/types.inc

# Without contraction, so that results equal the processor's.
kernels_nvccflags = -O3 -std=c++17 -fmad=false -Xfatbin -compress-all -I$(top_srcdir)/lib

%reldir%/kernels.fatbin: $(cuda_kernels_sources)
	$(AM_V_GEN)$(MKDIR_P) %reldir% && \
	    $(NVCC) -fatbin $(kernels_nvccflags) $(NVCC_ARCHS) $(NVCCFLAGS) \
	    -o $@ $(top_srcdir)/%reldir%/kernels.cu

# Aligned, as the driver requires.
%reldir%/image.c: %reldir%/kernels.fatbin
	$(AM_V_GEN){ echo '#include "mem/cuda/cuda_parts.h"'; \
	    echo 'const unsigned char tutti__cuda_image[] TUTTI__ALIGNED(64) = {'; \
	    od -An -v -tu1 %reldir%/kernels.fatbin | $(SED) 's/  */,/g; s/^,//; s/$$/,/'; \
	    echo '};'; } >$@-t && mv $@-t $@

if HAVE_CUDA
nodist_tutti_cuda_la_SOURCES += %reldir%/image.c
endif

CLEANFILES += %reldir%/image.c %reldir%/kernels.fatbin
EXTRA_DIST += $(cuda_kernels_sources)
