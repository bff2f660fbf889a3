# SPDX-License-Identifier: BSD-3-Clause

EXAMPLES_CPPFLAGS = -D_GNU_SOURCE -I$(top_srcdir)/include

noinst_PROGRAMS += \
    %reldir%/hello_allreduce %reldir%/tour %reldir%/persistent %reldir%/unique_id %reldir%/vector
%canon_reldir%_hello_allreduce_SOURCES = %reldir%/hello_allreduce.c
%canon_reldir%_hello_allreduce_CPPFLAGS = $(EXAMPLES_CPPFLAGS)
%canon_reldir%_hello_allreduce_LDADD = libtutti.la
%canon_reldir%_tour_SOURCES = %reldir%/tour.c
%canon_reldir%_tour_CPPFLAGS = $(EXAMPLES_CPPFLAGS)
%canon_reldir%_tour_LDADD = libtutti.la
%canon_reldir%_persistent_SOURCES = %reldir%/persistent.c
%canon_reldir%_persistent_CPPFLAGS = $(EXAMPLES_CPPFLAGS)
%canon_reldir%_persistent_LDADD = libtutti.la
%canon_reldir%_unique_id_SOURCES = %reldir%/unique_id.c
%canon_reldir%_unique_id_CPPFLAGS = $(EXAMPLES_CPPFLAGS)
%canon_reldir%_unique_id_LDADD = libtutti.la
%canon_reldir%_vector_SOURCES = %reldir%/vector.c
%canon_reldir%_vector_CPPFLAGS = $(EXAMPLES_CPPFLAGS)
%canon_reldir%_vector_LDADD = libtutti.la

if HAVE_OPENBLAS
if HAVE_ZLIB
noinst_PROGRAMS += %reldir%/example_train
endif
endif

# The loops between the matrix products need the vectoriser, like the library's kernels. Without the
# last two flags, GCC does not vectorise operations that could set errno or raise a trap. The flags
# change no result.
TRAIN_CFLAGS = $(TUTTI_KERNEL_CFLAGS) -fno-math-errno -fno-trapping-math

# All sources but train_cuda.c. Tests compile train_own_sources once more, with TRAIN_NO_TUTTI_CUDA,
# and link them with a device on the host.
train_own_sources = \
    %reldir%/example_train.c \
    %reldir%/train_parallel.c %reldir%/train_parallel.h
train_shared_sources = \
    %reldir%/train_about.c %reldir%/train_about.h \
    %reldir%/train_base.c %reldir%/train_base.h \
    %reldir%/train_checkpoint.c %reldir%/train_checkpoint.h \
    %reldir%/train_compute.c %reldir%/train_compute.h %reldir%/train_cpu.c %reldir%/train_rules.c \
    %reldir%/train_device.h %reldir%/train_gpu.c %reldir%/train_kernels.h \
    %reldir%/train_data.c %reldir%/train_data.h \
    %reldir%/train_interrupt.c %reldir%/train_interrupt.h \
    %reldir%/train_layer.h %reldir%/train_conv.c %reldir%/train_dense.c \
    %reldir%/train_model.c %reldir%/train_model.h \
    %reldir%/train_optimizer.c %reldir%/train_optimizer.h \
    %reldir%/train_options.c %reldir%/train_options.h \
    %reldir%/train_plot.c %reldir%/train_plot.h \
    %reldir%/train_report.c %reldir%/train_report.h \
    %reldir%/train_run.c %reldir%/train_run.h \
    %reldir%/train_scale.c %reldir%/train_scale.h \
    %reldir%/train_schedule.c %reldir%/train_schedule.h \
    %reldir%/train_value.c %reldir%/train_value.h
%canon_reldir%_example_train_SOURCES = $(train_own_sources) $(train_shared_sources) %reldir%/train_cuda.c
%canon_reldir%_example_train_CPPFLAGS = $(EXAMPLES_CPPFLAGS) $(OPENBLAS_CFLAGS) $(ZLIB_CFLAGS)
%canon_reldir%_example_train_CFLAGS = $(AM_CFLAGS) $(TRAIN_CFLAGS)
%canon_reldir%_example_train_LDADD = libtutti.la $(OPENBLAS_LIBS) $(ZLIB_LIBS) -lm -ldl

# The kernels: nvcc compiles them for all architectures into one file. The file becomes an array of
# bytes in a C source, aligned as the driver requires. Without nvcc there is no --device cuda.
train_kernels_sources = %reldir%/train_kernels.cu %reldir%/train_kernels.inc
train_nvccflags = -O3 -std=c++17 -fmad=false -Xfatbin -compress-all

if HAVE_CUDA
%canon_reldir%_example_train_CPPFLAGS += -DTRAIN_CUDA_IMAGE
nodist_%canon_reldir%_example_train_SOURCES = %reldir%/train_image.c
endif

%reldir%/train_kernels.fatbin: $(train_kernels_sources) %reldir%/train_kernels.h
	$(AM_V_GEN)$(MKDIR_P) %reldir% && \
	    $(NVCC) -fatbin $(train_nvccflags) $(NVCC_ARCHS) $(NVCCFLAGS) \
	    -o $@ $(top_srcdir)/%reldir%/train_kernels.cu

%reldir%/train_image.c: %reldir%/train_kernels.fatbin
	$(AM_V_GEN){ echo 'extern const unsigned char train_cuda_image[];'; \
	    echo '__attribute__((aligned(64))) const unsigned char train_cuda_image[] = {'; \
	    od -An -v -tu1 %reldir%/train_kernels.fatbin | $(SED) 's/  */,/g; s/^,//; s/$$/,/'; \
	    echo '};'; } >$@-t && mv $@-t $@

CLEANFILES += %reldir%/train_image.c %reldir%/train_kernels.fatbin
EXTRA_DIST += $(train_kernels_sources)

EXTRA_DIST += %reldir%/quickstart.sh
EXTRA_DIST += %reldir%/python/common.py %reldir%/python/ddp.py %reldir%/python/elastic.py \
    %reldir%/python/fsdp.py %reldir%/python/horovod_keras.py %reldir%/python/horovod_mnist.py \
    %reldir%/python/pipeline.py %reldir%/python/powersgd.py %reldir%/python/tensor_parallel.py \
    %reldir%/python/zero.py %reldir%/python/zero_deepspeed.py
