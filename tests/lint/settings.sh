#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# docs/settings.md lists each setting of lib/conf/conf.c once, with its default and with a case in
# which users change it. In a build folder the allowed values are also compared with the output of
# TUTTI_HELP=1. Settings for tests, and no others, begin with TUTTI_TEST_. Then checks that each
# kind of difference is detected.
set -u

hello=${HELLO_ALLREDUCE:-./examples/hello_allreduce}
source=${srcdir:-.}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# prints "NAME default" for each row of the table in C
sed -nE 's/^    \{ "(TUTTI_[A-Z0-9_]+)", CONF_[A-Z]+, AT\([a-z0-9_.]+\), "([^"]*)",$/\1 \2/p' \
    "$source/lib/conf/conf.c" | sed 's/ $/ not set/' | sort >"$work/table"

# listed FILE SED-REPLACEMENT: prints the replacement for each row "| `NAME` | default | allowed |"
# of a page
listed() {
    sed -nE "s/^\| \`(TUTTI_[A-Z0-9_]+)\` \| ([^|]*) \| ([^|]*) \|.*/$2/p" "$1" | sort
}

# odd PAGE: prints the rows that are in a wrong group, or have no case
odd() {
    awk -F' *\\| *' '
        /^## / { tests = $0 == "## For tests" }
        $2 ~ /^`TUTTI_/ && tests != ($2 ~ /^`TUTTI_TEST_/) { print $2 ": for tests only?" }
        $2 ~ /^`TUTTI_/ && $6 == "" { print $2 ": when to change it?" }' "$1"
}

# same PAGE: does it list the library's settings?
same() {
    odd "$1" >"$work/odd"
    cat "$work/odd"
    [ ! -s "$work/odd" ] || return 1
    listed "$1" '\1 \2' | diff "$work/table" - || return 1
    [ ! -s "$work/help" ] || listed "$1" '\1 [\3; \2]' | diff "$work/help" -
}

# plant SED-SCRIPT: a page with this change must be rejected
plant() {
    sed "$1" "$source/docs/settings.md" >"$work/planted"
    if same "$work/planted" >/dev/null; then
        echo "not seen: $1"
        exit 1
    fi
}

if [ -x "$hello" ]; then
    TUTTI_HELP=1 TUTTI_BOOT=self TUTTI_LOG=none "$hello" 2>&1 >"$work/out" |
        grep '^TUTTI_[A-Z0-9_]* \[' | sed 's/|/, /g' | sort >"$work/help"
    [ -s "$work/help" ] || { echo "TUTTI_HELP=1 $hello prints no settings"; exit 1; }
fi
# check that the expression above has matched every row
rows=$(grep -c '^    { "TUTTI_' "$source/lib/conf/conf.c")
[ "$rows" -gt 0 ] && [ "$rows" -eq "$(grep -c . "$work/table")" ] || {
    echo "read $(grep -c . "$work/table") of the $rows settings of lib/conf/conf.c"
    exit 1
}
same "$source/docs/settings.md" || { echo "docs/settings.md differs: < library, > page"; exit 1; }

plant '/^| `TUTTI_CREDITS`/d'
plant '/^| `TUTTI_CREDITS`/s/TUTTI_CREDITS/TUTTI_DEBITS/'
plant '/^| `TUTTI_CREDITS`/s/| 4 |/| 5 |/'
plant '/^| `TUTTI_CREDITS`/p'
plant '/^| `TUTTI_CREDITS`/s/| [^|]* |$/| |/'
plant '/^| `TUTTI_CREDITS`/s/| [^|]* |$/|/'
plant 's/^## For tests/## Other settings/'
plant 's/^## Which device/## For tests/'
[ ! -s "$work/help" ] || plant '/^| `TUTTI_CREDITS`/s/ 1 to 64 / 1 to 65 /'
