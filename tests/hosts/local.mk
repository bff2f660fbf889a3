# SPDX-License-Identifier: BSD-3-Clause

rank_tests +=
script_tests +=
