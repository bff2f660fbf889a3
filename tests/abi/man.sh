#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The manual pages agree with the headers, the table of variables and the programs. Each exported
# function has a page with its declaration. Each parameter and each variable is explained, and each
# option is listed. If mandoc and groff are installed, they must find no error. If other versions of
# awk are installed, they must make the same pages. This script runs in the build directory.
set -eu

top=$(cd "$srcdir" && pwd)
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
failed=0

fail() {
    echo "$@"
    failed=1
}

# squeeze: removes fonts, escapes and blanks.
squeeze() {
    sed 's/\\f[BIPR]//g; s/\\e/\\/g; s/\\-/-/g' "$@" | tr -d ' \n'
}

# make_pages OUT AWK...: makes the pages of sections 3 and 7 from $headers.
make_pages() {
    out=$1
    shift
    mkdir -p "$out/man3" "$out/man7"
    # shellcheck disable=SC2086
    "$@" -v out="$out" -v date=2000-01-01 -v version=0 -f "$top/man/text.awk" \
        -f "$top/man/headers.awk" -f "$top/man/pages.awk" "$top/lib/conf/conf.c" $headers
}

# ---- functions ----

cat "$top"/include/tutti/*.h | awk '
    /^#/ { next }
    /^TUTTI_API/ { text = ""; inside = 1; sub(/^TUTTI_API */, "") }
    inside { text = text " " $0 }
    inside && /;/ {
        name = text; sub(/ *\(.*/, "", name); sub(/.*[ *]/, "", name)
        gsub(/ +/, "", text); print name, text; inside = 0
    }' >"$here/declared"

for name in $(sed -n 's/^ *\(tutti_[a-z][a-z0-9_]*\);.*/\1/p' "$top/lib/libtutti.map"); do
    page=man/man3/$name.3
    if ! [ -s "$page" ]; then
        fail "$name has no page"
        continue
    fi
    target=$(sed -n 's/^\.so //p' "$page")
    [ -z "$target" ] || page=man/$target
    # The names of all sections of the page that have text.
    sections=$(awk '/^\.SH/ { name = $2; next } !/^\./ && !(name in seen) {
        seen[name] = 1; printf "%s ", name }' "$page")
    case $sections in
        *'NAME LIBRARY SYNOPSIS '*'DESCRIPTION RETURN '*'HISTORY SEE ') ;;
        *) fail "$page has text in these sections only: $sections" ;;
    esac
    text=$(sed -n "s/^$name //p" "$here/declared")
    squeeze "$page" | grep -qF -- "$text" || fail "$page does not have: $text"
done
[ -s man/man3/tutti_allreduce.3 ] || fail "there are no pages at all"

# If no comment explains a parameter, text.awk fails and names the parameter.
cat >"$here/odd.h" <<'END'
/* Odd things. */

/* Do something odd. Since 0.1. */
TUTTI_API int tutti_odd(int oddity);
END
headers=$here/odd.h
if make_pages "$here/odd" awk 2>"$here/errors"; then
    fail "an undocumented parameter was taken"
fi
grep -q 'tutti_odd: no comment says what oddity is' "$here/errors" ||
    fail "undocumented parameter: $(cat "$here/errors")"

# No paragraph may be cut in two, and no section may end after a colon that announces a list.
awk 'FNR == 1 { last = ""; cut = 0 }
    /^\.SH/ && last ~ /:$/ { print FILENAME ": nothing follows: " last }
    cut && /^[a-z]/ { print FILENAME ": cut in two: " last " | " $0 }
    { cut = /^\.PP/ && last ~ /^[^.].*[a-z]$/ }
    !/^\.PP/ { last = $0 }' man/man3/* man/man7/* >"$here/cut"
[ ! -s "$here/cut" ] || fail "$(cat "$here/cut")"

# ---- variables ----

TUTTI_HELP=1 TUTTI_TUNED=none ./examples/hello_allreduce >/dev/null 2>"$here/help"
sed -n 's/^\(TUTTI_[A-Z0-9_]*\) \[.*; \(.*\)\]$/\1 \2/p' "$here/help" >"$here/variables"
[ "$(wc -l <"$here/variables")" -gt 20 ] || fail "TUTTI_HELP=1 lists $(cat "$here/variables")"
sed 's/\\f[BP]//g; s/\\-/-/g' man/man7/tutti.7 >"$here/page"
while read -r name value; do
    grep -q "^$name \[.*; $value\]\$" "$here/page" ||
        fail "tutti(7) does not have $name with its default $value"
done <"$here/variables"

# ---- programs ----

for program in bench/tutti_*; do
    name=${program##*/}
    if ! [ -x "$program" ] || [ -d "$program" ]; then
        continue
    fi
    page=man/man1/$name.1
    [ -s "$page" ] || { fail "$name has no page"; continue; }
    if [ -s "man/man3/$name.3" ] && ! grep -qF "\\fB$name\\fP(3)" "$page"; then
        fail "$page does not refer to $name(3)"
    fi
    "./$program" --help | grep -o '^ *-.*' | grep -o -e '--[a-z-]*' >"$here/options"
    [ -s "$here/options" ] || fail "$name --help has no options"
    squeeze "$page" >"$here/page"
    while read -r option; do
        grep -qF -e "$option" "$here/page" || fail "$page does not have $option"
    done <"$here/options"
done

# ---- their language ----

if command -v mandoc >/dev/null; then
    (cd man && mandoc -Tlint -W warning man[137]/* | grep -v '\.so is fragile') >"$here/lint" ||
        :
    [ ! -s "$here/lint" ] || fail "mandoc: $(head "$here/lint")"
else
    echo "mandoc is not here: not checked with it"
fi
if command -v groff >/dev/null && [ -d /usr/share/groff ] &&
    groff -man -z /dev/null 2>/dev/null; then
    (cd man && for page in man[137]/*; do groff -man -ww -z "$page"; done) 2>"$here/lint"
    [ ! -s "$here/lint" ] || fail "groff: $(head "$here/lint")"
else
    echo "groff is not here: not checked with it"
fi

headers=$(echo "$top"/include/tutti/*.h)
make_pages "$here/awk" awk
for other in gawk 'gawk --posix' mawk original-awk 'busybox awk'; do
    command -v "${other%% *}" >/dev/null || continue
    rm -rf "$here/other"
    # shellcheck disable=SC2086
    make_pages "$here/other" $other
    diff -r "$here/awk" "$here/other" >"$here/diff" || fail "$other: $(head "$here/diff")"
done

exit "$failed"
