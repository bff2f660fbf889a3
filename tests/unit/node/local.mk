# SPDX-License-Identifier: BSD-3-Clause

# The protocols' own sources, built with a scheduler at each access to a shared word.
unit_tests += \
    %reldir%/test_channel \
    %reldir%/test_interleave \
    %reldir%/test_nccl \
    %reldir%/test_nccl_ends \
    %reldir%/test_places
tsan_tests += %reldir%/test_nccl %reldir%/test_nccl_ends
interleaved = \
    %reldir%/interleave.c \
    %reldir%/interleave.h \
    $(world) \
    lib/node/shm/chunks.c \
    lib/node/shm/cut.c \
    lib/node/shm/levels.c \
    lib/node/shm/compare.c \
    lib/node/shm/open.c \
    lib/node/shm/repeat.c \
    lib/node/shm/shm.c \
    lib/node/shm/zero.c \
    lib/xport/shm/shm.c
tests_unit_node_test_channel_SOURCES = %reldir%/test_channel.c $(interleaved)
tests_unit_node_test_channel_CPPFLAGS = $(AM_CPPFLAGS) -DTUTTI_INTERLEAVE
tests_unit_node_test_interleave_SOURCES = %reldir%/test_interleave.c $(interleaved)
tests_unit_node_test_interleave_CPPFLAGS = $(AM_CPPFLAGS) -DTUTTI_INTERLEAVE

nccl_world = %reldir%/test_nccl_world.c %reldir%/test_nccl_world.h \
    %reldir%/watched.c %reldir%/watched.h $(world)
tests_unit_node_test_nccl_SOURCES = %reldir%/test_nccl.c $(nccl_world)
tests_unit_node_test_nccl_LDADD = $(PRETEND_LIBS)
tests_unit_node_test_nccl_ends_SOURCES = %reldir%/test_nccl_ends.c $(nccl_world)
tests_unit_node_test_nccl_ends_LDADD = $(PRETEND_LIBS)
tests_unit_node_test_places_SOURCES = %reldir%/test_places.c $(world)

# Ranks without boot, for tests of everything above shared memory.
world = tests/unit/node/world.c tests/unit/node/world.h
