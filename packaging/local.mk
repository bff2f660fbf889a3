# SPDX-License-Identifier: BSD-3-Clause

EXTRA_DIST += \
    %reldir%/debian/changelog \
    %reldir%/debian/control \
    %reldir%/debian/copyright \
    %reldir%/debian/libtutti-dev.examples \
    %reldir%/debian/libtutti-dev.install \
    %reldir%/debian/libtutti0-openmpi.install \
    %reldir%/debian/libtutti0-ucx.install \
    %reldir%/debian/libtutti0.install \
    %reldir%/debian/not-installed \
    %reldir%/debian/rules \
    %reldir%/debian/source/format \
    %reldir%/debian/tutti-tools.docs \
    %reldir%/debian/tutti-tools.install
