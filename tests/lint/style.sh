#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The rules of style that a few lines of awk can judge; clang-format decides about the rest. And
# every source below lib/ is listed in its folder's local.mk.
set -eu

lint=$(cd "$srcdir/tests/lint" && pwd)
cd "$srcdir"
failed=0

find include lib bench examples tests -name '*.[ch]' -o -name '*.inc' | sort |
    xargs awk -f "$lint/code.awk" -f "$lint/style.awk" || failed=1

for path in $(find lib -name '*.[ch]' -o -name '*.inc' | sort); do
    if ! grep -qE "/${path##*/}( |\$)" "${path%/*}/local.mk"; then
        echo "$path is not listed in ${path%/*}/local.mk"
        failed=1
    fi
done
exit "$failed"
