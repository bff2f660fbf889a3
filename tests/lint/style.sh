#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Checks the rules of style that a few lines of awk can check; clang-format checks the other rules.
# No function of lib/ has more than 60 lines. README.md has less than 200 lines. Every source file
# below lib/ is listed in its folder's local.mk. Then checks that ignored results and long functions
# are detected.
set -eu

lint=$(cd "$srcdir/tests/lint" && pwd)
cd "$srcdir"
failed=0

planted=$(mktemp)
trap 'rm -f "$planted"' EXIT

judge() {
    awk -v device=lib/mem/device.h -f "$lint/code.awk" -f "$lint/style.awk" "$@"
}

# plant RESULT LINE: is LINE, as a statement, rejected (1) or not (0)?
plant() {
    printf '/* SPDX-License-Identifier: BSD-3-Clause */\n    {\n%s\n' "$2" >"$planted"
    seen=0
    judge "$planted" >/dev/null || seen=1
    if [ $seen -ne "$1" ]; then
        echo "seen: $seen, wanted $1: $2"
        failed=1
    fi
}

if [ "$(wc -l <README.md)" -ge 200 ]; then
    echo "README.md has 200 lines or more"
    failed=1
fi

judge $(find include lib bench examples tests -name '*.[ch]' -o -name '*.inc' | sort) || failed=1

plant 1 '    cudaFree(memory);'
plant 1 '    self->api->ncclCommAbort(comm);'
plant 0 '    (void)cudaFree(memory);'
plant 0 '    status = check(cudaFree(memory));'
plant 1 '    ops->copy(dst, src, bytes, stream);'
plant 1 '    self->gpu[0].ops->record(event,'
plant 1 '    pretend_device()->use(0);'
plant 0 '    ops->stream_drop(stream);'
plant 0 '    (void)ops->use(before);'
plant 0 '    status = ops->record(event, stream);'
plant 0 '    CHECK_OK(ops->record(event, stream));'

measure() {
    awk -v most=60 -f "$lint/code.awk" -f "$lint/functions.awk" "$@"
}

# plant_function RESULT LINES: is a function of so many lines rejected (1) or not (0)?
plant_function() {
    {
        printf '/* SPDX */\n#define FEW \\\n    4\nint before;\nstatic int *many(int a,\n'
        printf '                 int b)\n{\n'
        i=4
        while [ $((i += 1)) -le "$2" ]; do echo '    a++;'; done
        printf '}\n'
    } >"$planted"
    seen=0
    measure "$planted" >/dev/null || seen=1
    if [ $seen -ne "$1" ]; then
        echo "seen: $seen, wanted $1: a function of $2 lines"
        failed=1
    fi
}

measure $(find lib -name '*.[ch]' | sort) || failed=1
plant_function 0 60
plant_function 1 61

for path in $(find lib -name '*.[ch]' -o -name '*.inc' | sort); do
    if ! grep -qE "/${path##*/}( |\$)" "${path%/*}/local.mk"; then
        echo "$path is not listed in ${path%/*}/local.mk"
        failed=1
    fi
done
exit "$failed"
