# SPDX-License-Identifier: BSD-3-Clause

noinst_LTLIBRARIES += libtutti_all.la
libtutti_all_la_SOURCES =
libtutti_all_la_CPPFLAGS = $(LIB_CPPFLAGS) -DTUTTI__MODULE_DIR='"$(tuttimoduledir)"'
libtutti_all_la_LIBADD = $(HWLOC_LIBS) -lpthread -ldl -lm

lib_LTLIBRARIES += libtutti.la
libtutti_la_SOURCES =
libtutti_la_LIBADD = libtutti_all.la
libtutti_la_LDFLAGS = $(LIB_LDFLAGS) -no-undefined -version-info $(TUTTI_LT_VERSION) \
    -Wl,--version-script=$(top_srcdir)/lib/libtutti.map $(MAP_LDFLAGS) $(TUTTI_SHLIB_LDFLAGS)
EXTRA_libtutti_la_DEPENDENCIES = lib/libtutti.map

# A name in the map that no room defines is an error.
MAP_LDFLAGS = -Wl,--no-undefined-version

# The objects of the shared library, in an archive: position-independent and with the same hidden
# names, so it can be linked into other shared objects as well as into programs.
if STATIC
staticlibdir = $(libdir)
staticlib_DATA = %reldir%/libtutti.a
CLEANFILES += %reldir%/libtutti.a
%reldir%/libtutti.a: libtutti_all.la
	$(AM_V_GEN)$(MKDIR_P) %reldir% && cp .libs/libtutti_all.a $@-t && mv $@-t $@
endif

# Modules are installed in tutti/ beside the library. In the build tree libtool keeps the library in
# .libs/ and the modules in tutti/.libs/, so a link makes both look installed.
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
pkgconfig_DATA = %reldir%/tutti.pc

# The targets find libraries and headers relative to their own place, so the tree may be moved.
cmakedir = $(libdir)/cmake/tutti
cmake_DATA = %reldir%/tuttiConfig.cmake %reldir%/tuttiConfigVersion.cmake
CLEANFILES += %reldir%/tuttiConfig.cmake
%reldir%/tuttiConfig.cmake: %reldir%/tuttiConfig.cmake.in Makefile
	$(AM_V_GEN)$(MKDIR_P) %reldir% && \
	    include=`realpath -ms --relative-to='$(cmakedir)' '$(includedir)'` && \
	    private=`echo $(HWLOC_LIBS) -lpthread -ldl -lm | tr ' ' ';'` && \
	    $(SED) -e "s|@INCLUDE@|$$include|; s|@PRIVATE_LIBS@|$$private|" \
	    $(srcdir)/%reldir%/tuttiConfig.cmake.in >$@-t && mv $@-t $@

uninstall-hook:
	for folder in "$(tuttiincludedir)" "$(tuttimoduledir)" "$(cmakedir)"; do \
	    rmdir "$(DESTDIR)$$folder" 2>/dev/null || :; \
	done

EXTRA_DIST += \
    %reldir%/build/setup.sh \
    %reldir%/build/tutti_flags.m4 \
    %reldir%/build/tutti_libs.m4 \
    %reldir%/build/tutti_mpi.m4 \
    %reldir%/build/tutti_ucx.m4 \
    %reldir%/libtutti.map \
    %reldir%/rooms.txt \
    %reldir%/tuttiConfig.cmake.in

include %reldir%/base/local.mk
include %reldir%/conf/local.mk
include %reldir%/record/local.mk
include %reldir%/topo/local.mk
include %reldir%/mem/local.mk
include %reldir%/reduce/local.mk
include %reldir%/boot/local.mk
include %reldir%/sched/local.mk
include %reldir%/coll/local.mk
include %reldir%/xport/local.mk
include %reldir%/node/local.mk
include %reldir%/exec/local.mk
include %reldir%/watch/local.mk
include %reldir%/call/local.mk
include %reldir%/agree/local.mk
include %reldir%/stats/local.mk
include %reldir%/engine/local.mk
include %reldir%/api/local.mk
