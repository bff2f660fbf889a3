#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# What the documents link to is there, and README.md leads to each of them.
set -u

cd "${srcdir:-.}" || exit 1
documents='README.md CHANGELOG.md CONTRIBUTING.md lib/README.md bench/README.md docs/decisions.md'
errors=0

wrong() {
    echo "$1"
    errors=$((errors + 1))
}

for document in $documents; do
    [ -f "$document" ] || wrong "no $document"
    [ "$document" = README.md ] || grep -q "]($document[)#]" README.md ||
        wrong "README.md does not lead to $document"
done

# the targets of [text](target), but for addresses and for places in the document itself
for document in $documents; do
    for target in $(grep -o ']([^)#][^)]*)' "$document" 2>/dev/null | sed 's/^](//; s/[#)].*//'); do
        case $target in
        http://* | https://*) ;;
        *) [ -e "$(dirname "$document")/$target" ] || wrong "$document: no $target" ;;
        esac
    done
done

[ "$errors" -eq 0 ]
