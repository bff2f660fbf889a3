# SPDX-License-Identifier: BSD-3-Clause

unit_tests += %reldir%/test_counting %reldir%/test_http
