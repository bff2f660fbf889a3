# SPDX-License-Identifier: BSD-3-Clause

noinst_LTLIBRARIES += libtutti_all.la
libtutti_all_la_SOURCES =
libtutti_all_la_CPPFLAGS = $(LIB_CPPFLAGS)
libtutti_all_la_LIBADD = $(HWLOC_LIBS) -lpthread -ldl -lm

lib_LTLIBRARIES += libtutti.la
libtutti_la_SOURCES =
libtutti_la_LIBADD = libtutti_all.la
libtutti_la_LDFLAGS = $(LIB_LDFLAGS) -no-undefined -version-info $(TUTTI_LT_VERSION) \
    -Wl,--version-script=$(top_srcdir)/lib/libtutti.map $(MAP_LDFLAGS) $(TUTTI_SHLIB_LDFLAGS)
EXTRA_libtutti_la_DEPENDENCIES = lib/libtutti.map

# A name in the map that no room defines is an error.
MAP_LDFLAGS = -Wl,--no-undefined-version

# Modules stand in tutti/ beside the library. In the build tree libtool keeps the library in .libs/
# and the modules in tutti/.libs/, so a link makes both look as if they were installed.
tuttimoduledir = $(libdir)/tutti
tuttimodule_LTLIBRARIES =
MODULE_LDFLAGS = $(LIB_LDFLAGS) -module -avoid-version -shared -no-undefined \
    $(TUTTI_SHLIB_LDFLAGS)

all-local: modules
modules: $(tuttimodule_LTLIBRARIES)
	$(AM_V_at)$(MKDIR_P) .libs tutti/.libs
	$(AM_V_at)test -h .libs/tutti || $(LN_S) ../tutti/.libs .libs/tutti
clean-local: clean-modules
clean-modules:
	rm -f .libs/tutti
.PHONY: modules clean-modules

pkgconfigdir = $(libdir)/pkgconfig
pkgconfig_DATA = lib/tutti.pc

EXTRA_DIST += \
    %reldir%/build/setup.sh \
    %reldir%/build/tutti_flags.m4 \
    %reldir%/build/tutti_libs.m4 \
    %reldir%/build/tutti_mpi.m4 \
    %reldir%/libtutti.map \
    %reldir%/rooms.txt

include %reldir%/base/local.mk
include %reldir%/conf/local.mk
include %reldir%/topo/local.mk
include %reldir%/mem/local.mk
include %reldir%/reduce/local.mk
include %reldir%/boot/local.mk
include %reldir%/sched/local.mk
include %reldir%/coll/local.mk
include %reldir%/xport/local.mk
include %reldir%/node/local.mk
include %reldir%/exec/local.mk
include %reldir%/engine/local.mk
include %reldir%/api/local.mk
