# SPDX-License-Identifier: BSD-3-Clause

unit_tests += \
    %reldir%/test_backoff %reldir%/test_token
