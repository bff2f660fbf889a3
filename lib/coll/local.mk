# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/algorithms.h \
    %reldir%/binomial.c \
    %reldir%/cache.c \
    %reldir%/cache.h \
    %reldir%/coll.h \
    %reldir%/dissemination.c \
    %reldir%/hierarchical.c \
    %reldir%/node.c \
    %reldir%/recursive_doubling.c \
    %reldir%/ring.c \
    %reldir%/ring_allgather.c \
    %reldir%/select.c
