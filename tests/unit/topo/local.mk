# SPDX-License-Identifier: BSD-3-Clause

unit_tests += \
    %reldir%/test_link \
    %reldir%/test_places \
    %reldir%/test_topo
