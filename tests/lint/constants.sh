#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The library's constants are in lib/base/constants.h. Each constant has its source, and is used. No
# other file of lib/ defines times. Then checks that each kind of violation is detected.
set -eu

lint=$(cd "$srcdir/tests/lint" && pwd)
table=lib/base/constants.h
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

judge() {
    awk -v table="$table" -f "$lint/code.awk" -f "$lint/constants.awk" "$@"
}

# unused FILE...: prints the constants of the table that none of the files names
unused() {
    sed -n 's/^#define \(TUTTI__[A-Z0-9_]*\) .*/\1/p' "$table" | sort >"$work/defined"
    grep -oh 'TUTTI__[A-Z0-9_]*' "$@" | sort -u | comm -23 "$work/defined" -
}

# plant FILE LINE: a file with this line must be rejected
plant() {
    printf '%s\n' "$2" >"$1"
    if judge "$1" >/dev/null; then
        echo "not seen: $2 in $1"
        exit 1
    fi
}

cd "$srcdir"
files=$(find lib -name '*.[ch]' | grep -v "^$table\$" | sort)
judge "$table" $files
unused $files $table >"$work/all"
unused $files >"$work/unused"
if [ -s "$work/unused" ]; then
    cat "$work/unused"
    echo "no file of lib/ uses these constants of $table"
    exit 1
fi
[ ! -s "$work/all" ] || { echo "the search for constants finds nothing"; exit 1; }

mkdir -p "$work/lib/base"
cd "$work"
plant "$table" '#define TUTTI__NAP_US 50'
plant "$table" '/* A nap. Measured: here. */
#define TUTTI__NAP_US 50
/* Another nap. */
#define TUTTI__LONG_NAP_US 50'
plant lib/base/planted.c '#define NAP_US 50'
plant lib/base/planted.c '#define SPIN_LOOKS (10 * 5)'
plant lib/base/planted.c '    usleep(100);'
printf '/* A nap. Chosen: rare. */\n#define TUTTI__NAP_US 50\n' >"$table"
printf '    usleep(TUTTI__OTHER_US);\n' >lib/base/planted.c
judge "$table" lib/base/planted.c
[ "$(unused lib/base/planted.c)" = TUTTI__NAP_US ] || { echo "an unused constant is not seen"; exit 1; }
