#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The names that libtutti.so exports, the names in libtutti.map and the names marked TUTTI_API in
# the public headers are equal. Exception: names in the map's TUTTI_PRIVATE are in no public header.
# This script runs in the build directory.
set -eu

lib=.libs/libtutti.so
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT

# nm prints name@@NODE, and the node itself as an absolute symbol.
"${NM:-nm}" -D --defined-only "$lib" |
    awk '$2 != "A" && $3 !~ /@TUTTI_PRIVATE$/ { sub(/@.*/, "", $3); print $3 }' |
    sort >"$here/library"
sed -n '/^TUTTI_PRIVATE/q; s/^ *\(tutti_[a-z0-9_]*\);.*/\1/p' "$srcdir/lib/libtutti.map" | sort >"$here/map"

# A declaration extends from TUTTI_API to its semicolon; its name precedes the first parenthesis.
cat "$srcdir"/include/tutti/*.h | awk '
    /^#/ { next }
    /^TUTTI_API/ { text = ""; inside = 1 }
    inside { text = text " " $0 }
    inside && /;/ {
        sub(/ *\(.*/, "", text); sub(/.*[ *]/, "", text); print text; inside = 0
    }' | sort >"$here/headers"

[ -s "$here/library" ] || { echo "$lib exports nothing"; exit 1; }
failed=0
for other in map headers; do
    if ! diff "$here/library" "$here/$other" >"$here/diff"; then
        echo "names in the library (<) and in the $other (>) differ:"
        cat "$here/diff"
        failed=1
    fi
done
exit "$failed"
