# SPDX-License-Identifier: BSD-3-Clause
#
# The MPI module: the same sources for each implementation.

mpi_module_sources = \
    %reldir%/chan.c \
    %reldir%/meet_mpi.c \
    %reldir%/mpi_module.c \
    %reldir%/mpi_module.h \
    %reldir%/xport.c

if HAVE_OPENMPI
tuttimodule_LTLIBRARIES += tutti/mpi_openmpi.la
tutti_mpi_openmpi_la_SOURCES = $(mpi_module_sources)
tutti_mpi_openmpi_la_CPPFLAGS = $(LIB_CPPFLAGS) $(OPENMPI_CFLAGS)
tutti_mpi_openmpi_la_LDFLAGS = $(MODULE_LDFLAGS)
tutti_mpi_openmpi_la_LIBADD = $(OPENMPI_LIBS) -lpthread
endif

if HAVE_MPICH
tuttimodule_LTLIBRARIES += tutti/mpi_mpich.la
tutti_mpi_mpich_la_SOURCES = $(mpi_module_sources)
tutti_mpi_mpich_la_CPPFLAGS = $(LIB_CPPFLAGS) $(MPICH_CFLAGS)
tutti_mpi_mpich_la_LDFLAGS = $(MODULE_LDFLAGS)
tutti_mpi_mpich_la_LIBADD = $(MPICH_LIBS) -lpthread
endif

EXTRA_DIST += $(mpi_module_sources)
