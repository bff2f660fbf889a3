# SPDX-License-Identifier: BSD-3-Clause

# Recorded machines; tests/unit/topo/test_places.c says how to read them.
EXTRA_DIST += \
    %reldir%/altra.txt \
    %reldir%/container.txt \
    %reldir%/epyc.txt \
    %reldir%/laptop.txt \
    %reldir%/xeon.txt
