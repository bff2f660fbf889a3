# SPDX-License-Identifier: BSD-3-Clause

unit_tests += \
    %reldir%/test_conf \
    %reldir%/test_job \
    %reldir%/test_tuned
