#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Plants the bugs of mutants.txt in lib/agree, one at a time, and checks that test_orders or
# test_plans finds each of them. A line of mutants.txt: file @ text that is in it once @ replacement
# of the text.
set -eu
. "$srcdir/tests/long.sh"

top=$(cd "$srcdir" && pwd)
here=$top/tests/unit/agree
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
step=1
orders=20000
is_long "four of five bugs, and 18000 of 20000 orders for each" || { step=5; orders=2000; }
shared="reference world planned scenario judge"

compile() {
    # shellcheck disable=SC2086
    $CC -std=gnu11 -O1 -w $LIB_CPPFLAGS -I"$top/tests" -I"$here" -c -o "$work/$1.o" "$2"
}

# name_of FILE: the name of the file's object. It contains the room's name, because files of two
# rooms may have the same name.
name_of() {
    echo "$(basename "$(dirname "$1")")_$(basename "$1" .c)"
}

for source in "$top"/lib/base/*.c "$top"/lib/agree/*.c; do
    compile "$(name_of "$source")" "$source"
done
for source in $shared test_orders test_plans; do
    compile "$source" "$here/$source.c"
done
objects=$(for source in $shared; do echo "$work/$source.o"; done)

# passes TEST SEEDS: fails if the test fails or does not end within 60 s.
passes() {
    # shellcheck disable=SC2086
    $CC -o "$work/test" "$work"/base_*.o "$work"/agree_*.o $objects "$work/$1.o" -lpthread
    timeout 60 "$work/test" 1 "$2" >"$work/out" 2>&1
}

# finds_bug NAME: fails if the tests pass. test_orders does not run for a bug in plans, since it has
# no plans.
finds_bug() {
    case $1 in
    agree_plan | agree_learn | agree_name_table) ;;
    *) passes test_orders $orders || return 0 ;;
    esac
    ! passes test_plans $((orders / 4))
}

# replace FILE FROM TO: write the changed file to standard output. Fails unless exactly one line
# contains FROM.
replace() {
    FROM=$2 TO=$3 awk '
        BEGIN { from = ENVIRON["FROM"]; to = ENVIRON["TO"] }
        (at = index($0, from)) {
            $0 = substr($0, 1, at - 1) to substr($0, at + length(from))
            n++
        }
        { print }
        END { exit n != 1 }' "$1"
}

if finds_bug none; then
    cat "$work/out"
    echo "the tests fail without a bug"
    exit 1
fi

number=0
missed=0
while IFS= read -r line; do
    number=$((number + 1))
    file=${line%% @ *}
    rest=${line#* @ }
    name=agree_${file%.c}
    if ! replace "$top/lib/agree/$file" "${rest% @ *}" "${rest##* @ }" >"$work/$file"; then
        echo "mutants.txt:$number: the text is not in $file once"
        exit 1
    fi
    [ $((number % step)) -eq 0 ] || continue
    mv "$work/$name.o" "$work/$name.kept"
    compile "$name" "$work/$file"
    if ! finds_bug "$name"; then
        echo "not found: $line"
        missed=$((missed + 1))
    fi
    mv "$work/$name.kept" "$work/$name.o"
done <"$here/mutants.txt"
[ "$missed" -eq 0 ]
