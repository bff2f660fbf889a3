# SPDX-License-Identifier: BSD-3-Clause

# The pretend device, for tests that need one: name_LDADD = $(PRETEND_LIBS)
check_LTLIBRARIES += tests/libpretend.la
tests_libpretend_la_SOURCES = \
    %reldir%/cast.c \
    %reldir%/event.c \
    %reldir%/inside.h \
    %reldir%/memory.c \
    %reldir%/nccl.c \
    %reldir%/nccl_inside.h \
    %reldir%/nccl_messages.c \
    %reldir%/nccl_register.c \
    %reldir%/nccl_run.c \
    %reldir%/nccl_shared.c \
    %reldir%/opened.h \
    %reldir%/pretend.c \
    %reldir%/pretend.h \
    %reldir%/stream.c \
    %reldir%/word.c \
    %reldir%/work.c
PRETEND_LIBS = tests/libpretend.la $(LDADD) -lm

# The pretend device as a module, in the folder of the other modules; see module.c. Without -rpath
# libtool makes no shared object.
check_LTLIBRARIES += tutti/pretend.la
tutti_pretend_la_SOURCES = %reldir%/module.c
tutti_pretend_la_LIBADD = tests/libpretend.la libtutti_all.la -lm
tutti_pretend_la_LDFLAGS = $(MODULE_LDFLAGS) -rpath /nowhere -Wl,-Bsymbolic \
    -Wl,--wrap=tutti__fail -export-symbols-regex '^(pretend_.*|tutti_module)$$'
