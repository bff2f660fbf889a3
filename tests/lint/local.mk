# SPDX-License-Identifier: BSD-3-Clause

script_tests += \
    %reldir%/constants.sh \
    %reldir%/dist.sh \
    %reldir%/headers.sh \
    %reldir%/links.sh \
    %reldir%/names.sh \
    %reldir%/rooms.sh \
    %reldir%/settings.sh \
    %reldir%/state.sh \
    %reldir%/style.sh

EXTRA_DIST += \
    %reldir%/code.awk \
    %reldir%/constants.awk \
    %reldir%/functions.awk \
    %reldir%/rooms.awk \
    %reldir%/style.awk
