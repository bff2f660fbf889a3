#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Checks that a makefile lists each script, page, example and data file of the repository.
# Otherwise `make dist` would leave the file out. C files are not checked: without them the
# distributed package does not build.
set -eu

cd "$srcdir"
if ! git ls-files --error-unmatch configure.ac >/dev/null 2>&1; then
    echo "not in a git repository"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git ls-files '*.mk' Makefile.am | xargs cat >"$work/listed"

# missing: prints the files of its input that no makefile lists
missing() {
    while read -r file; do
        grep -qF "${file##*/}" "$work/listed" || echo "$file"
    done
}

# Automake itself lists its own inputs. Of the folders for Python, makefiles list the whole.
git ls-files | grep -v '\.\(c\|h\|cu\|mk\|in\)$\|^Makefile.am$\|^configure.ac$\|^.gitignore$' |
    grep -v '^python/\|^tests/python/\|^bench/python/' | missing >"$work/missing"
cat "$work/missing"
test ! -s "$work/missing"
test "$(echo docs/not_listed_anywhere.md | missing)" = docs/not_listed_anywhere.md
