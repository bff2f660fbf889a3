#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Checks the rooms that hold the state of calls. A header of these rooms may be included by at most
# eight files of lib/, unless lib/rooms.txt has a line "open: HEADER WHY" for this header (tables,
# schedule operations, structures of arguments). Each of these rooms must have at least 4 asserts per
# 1000 lines. Then checks that each kind of violation is detected.
#
# Only direct includes count. A structure that holds its parts by value must include their headers
# (engine/state.h, call/operation.h). If indirect includes counted, each user of the whole would
# count for every part: 22 files for engine/semaphore.h, although 2 include it. Therefore this lint
# does not detect a file that works on a part of a structure but includes only the header of the
# whole structure.
set -eu

rooms="call agree watch engine api"
most=8
least=4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# here: prints the folders of those rooms that exist
here() {
    for room in $rooms; do
        [ ! -d "lib/$room" ] || echo "lib/$room"
    done
}

# headers: prints the headers that are too widely included, and wrong lines of lib/rooms.txt
headers() {
    find lib -name '*.[ch]' | sort >"$work/files"
    for header in $(find $(here) -name '*.h' | sort); do
        name=${header#lib/}
        users=$(xargs grep -lE "^[ 	]*#[ 	]*include[ 	]*\"$name\"" <"$work/files" | wc -l)
        [ "$users" -le "$most" ] || grep -q "^open: $name [^ ]" lib/rooms.txt ||
            echo "$header: included by $users files, more than $most"
    done
    sed -n 's/^open: *\([^ ]*\) *\(.*\)/\1 \2/p' lib/rooms.txt | while read -r name why; do
        [ -f "lib/$name" ] || echo "lib/rooms.txt: no lib/$name"
        [ -n "$why" ] || echo "lib/rooms.txt: why is $name open?"
    done
}

# asserts: prints "ROOM asserts lines" for each room
asserts() {
    for room in $(here); do
        find "$room" -name '*.[ch]' -exec cat {} + | awk -v room="$room" '
            /(^|[^A-Za-z_])assert\(/ { n++ }
            END { print room, n + 0, NR }'
    done
}

# scarce: prints the rooms with too few asserts
scarce() {
    asserts | awk -v least="$least" '$2 * 1000 < least * $3 {
        printf "%s: %d asserts in %d lines: fewer than %d per 1000\n", $1, $2, $3, least }'
}

cd "$srcdir"
{ headers && scarce; } >"$work/wrong"
asserts
cat "$work/wrong"
[ ! -s "$work/wrong" ] || exit 1

# want MESSAGE: the copy in $work/copy must have exactly this violation
want() {
    seen=$(headers && scarce)
    [ "$seen" = "$1" ] && return
    echo "wanted '$1', seen '$seen'"
    exit 1
}
mkdir -p "$work/copy/lib/engine" "$work/copy/lib/base"
cd "$work/copy"
: >lib/rooms.txt
: >lib/base/open.h
printf 'assert(1);\n' | tee lib/engine/state.h >lib/engine/open.h
for i in 1 2 3 4 5 6 7 8; do
    printf '#include "engine/state.h"\n#include "base/open.h"\n' >"lib/engine/$i.c"
done
want ''
echo '#  include "engine/state.h" /* the ninth */' >lib/base/user.h
want 'lib/engine/state.h: included by 9 files, more than 8'
echo 'open: engine/state.h a table' >lib/rooms.txt
want ''
echo 'open: engine/state.h' >lib/rooms.txt
want 'lib/engine/state.h: included by 9 files, more than 8
lib/rooms.txt: why is engine/state.h open?'
echo 'open: engine/other.h a table' >lib/rooms.txt
rm lib/base/user.h
want 'lib/rooms.txt: no lib/engine/other.h'
: >lib/rooms.txt
for i in $(seq 1 800); do echo 'static_assert(1);'; done >>lib/engine/1.c
want 'lib/engine: 2 asserts in 818 lines: fewer than 4 per 1000'
