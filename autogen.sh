#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Makes configure and Makefile.in out of configure.ac, Makefile.am and the local.mk fragments.
# Needed once after a checkout; afterwards make does it by itself when one of them changes.
set -eu
cd "$(dirname "$0")"
mkdir -p m4
exec autoreconf --install
