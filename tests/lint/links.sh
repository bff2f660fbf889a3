#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The files and headings to which documents link must exist, and README.md must lead to each
# document. Then checks that a broken link of each kind is detected.
set -u

cd "${srcdir:-.}" || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The names that GitHub gives headings in links: lower case, hyphens for blanks, no other signs; the
# second heading of a name ends with -1.
headings() {
    sed -n 's/^##* //p' "$1" | tr 'A-Z' 'a-z' | sed 's/[^a-z0-9 _-]//g; s/ /-/g' |
        awk '{ print seen[$0]++ ? $0 "-" seen[$0] - 1 : $0 }'
}

# check: prints the errors in the documents of this folder
check() {
    for document in README.md CHANGELOG.md CONTRIBUTING.md lib/README.md bench/README.md docs/*.md; do
        [ -f "$document" ] || { echo "no $document" && continue; }
        [ "$document" = README.md ] || grep -q "]($document[)#]" README.md ||
            echo "README.md does not lead to $document"

        # the targets of [text](target), except addresses
        for target in $(grep -o '](\([^)]*\))' "$document" | sed 's/^](//; s/)$//'); do
            case $target in
            http://* | https://*) continue ;;
            \#*) page=$document ;;
            *) page=$(dirname "$document")/${target%%#*} ;;
            esac
            if [ ! -e "$page" ]; then
                echo "$document: no $target"
            elif [ "${target#*#}" != "$target" ] && ! headings "$page" | grep -qx -e "${target#*#}"; then
                echo "$document: no heading for $target"
            fi
        done
    done
}

check >"$work/wrong"
cat "$work/wrong"
[ ! -s "$work/wrong" ] || exit 1

# plant LINE WHAT: this line in a copy of README.md must be rejected with this message
mkdir "$work/docs"
echo '# A page, of `one` heading' >"$work/docs/page.md"
for document in CHANGELOG.md CONTRIBUTING.md lib/README.md bench/README.md; do
    mkdir -p "$work/$(dirname "$document")"
    : >"$work/$document"
    echo "[]($document)" >>"$work/listed"
done
cd "$work" || exit 1
plant() {
    { cat listed && printf '%s\n' '## Here' "$1"; } >README.md
    [ "$(check)" = "$2" ] && return
    echo "wanted '$2' of '$1'; seen: $(check)"
    exit 1
}
plant '[a](docs/page.md) [b](#here)' ''
plant '[a](docs/page.md#a-page-of-one-heading)' ''
plant '[a](docs/other.md) [b](docs/page.md)' 'README.md: no docs/other.md'
plant '[a](docs/page.md) [b](#there)' 'README.md: no heading for #there'
plant '[a](docs/page.md#two)' 'README.md: no heading for docs/page.md#two'
plant '' 'README.md does not lead to docs/page.md'
