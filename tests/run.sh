#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs all tests, on a fresh Debian 12 too: installs what is missing, builds below build/, and tests
#
#     check  GCC, warnings are errors: make check
#     clang  clang, warnings are errors: everything compiles, tests included
#     asan   AddressSanitizer and UndefinedBehaviorSanitizer: make check
#     tsan   ThreadSanitizer: the tests whose ranks are threads
#     dist   with --long: make distcheck; and the scripts in $long_scripts
#
# Where there is a GPU, and nvcc to build the CUDA module with, check and asan have it in their
# tests, too: tests/gpu.
#
# usage: tests/run.sh [--long] [BUILD...]. The last line counts the tests of all builds; before it
# are the names of those that were skipped. TUTTI_PACKAGES=as-is installs nothing;
# TUTTI_TEST_GPU=required makes failures of tests for a GPU that find none, or no NCCL.
set -u

top=$(cd "$(dirname "$0")/.." && pwd) && cd "$top" || exit 1
. lib/build/setup.sh

builds=
long=
long_scripts="tests/install/prefix.sh tests/packaging/debian.sh"
for argument; do
    case $argument in
    --long) long=dist ;;
    check | clang | asan | tsan | dist) builds="$builds $argument" ;;
    *)
        sed -n '4,17s/^# \{0,1\}//p' "$0"
        exit 2
        ;;
    esac
done
: "${builds:=check clang asan tsan $long}"

passed=0
failed=0
skipped=0
skipped_names=

finish() {
    for name in $skipped_names; do
        echo "$name"
    done | sort | uniq -c | sed -E 's/^ *([0-9]+) (.*)/skipped: \2, in \1 build(s)/'
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
    exit
}

# count DIR: adds up the results in DIR/make.log, as automake prints them, and shows the logs of
# what failed and the reasons of what was skipped.
count() {
    results=$(grep -E '^(PASS|FAIL|SKIP|ERROR): ' "$1/make.log")
    passed=$((passed + $(echo "$results" | grep -c '^PASS')))
    failed=$((failed + $(echo "$results" | grep -cE '^(FAIL|ERROR)')))
    skipped=$((skipped + $(echo "$results" | grep -c '^SKIP')))
    for name in $(echo "$results" | sed -n 's/^SKIP: //p'); do
        skipped_names="$skipped_names $name"
        echo "   skipped $name: $(grep -v '^SKIP' "$1/$name.log" | tail -n 1)"
    done
    for name in $(echo "$results" | sed -nE 's/^(FAIL|ERROR): //p'); do
        echo "----- failed: $name, $1/$name.log:"
        tail -n 100 "$1/$name.log"
        echo "-----"
    done
}

# run_build NAME TARGET CONFIGURE-ARGUMENT...: a build counts as a failure if it breaks otherwise
# than by its tests, and as a success if it has no tests to count.
run_build() {
    dir=build/$1
    target=$2
    echo "== $1"
    shift 2
    began=$(date +%s)
    before=$failed
    if ! configure_in "$dir" "$@"; then
        failed=$((failed + 1))
        return
    fi
    # One more than processors: tests wait a lot.
    make -C "$dir" -j $((jobs + 1)) "$target" >"$dir/make.log" 2>&1 </dev/null
    status=$?
    case $target in
    check*) count "$dir" ;;
    *) [ "$status" -ne 0 ] || passed=$((passed + 1)) ;;
    esac
    if [ "$status" -ne 0 ] && [ "$failed" -eq "$before" ]; then
        echo "failed: make -C $dir $target; from $dir/make.log:"
        grep -E -A 6 'error:|undefined reference|^FAIL|\*\*\*' "$dir/make.log" | head -n 80
        tail -n 20 "$dir/make.log"
        failed=$((failed + 1))
    fi
    echo "   $(($(date +%s) - began)) s; so far $passed passed, $failed failed, $skipped skipped"
}

# run_script SCRIPT: a test that is part of no build.
run_script() {
    echo "== $1"
    began=$(date +%s)
    script_log=build/$(basename "$1" .sh).log
    "$1" >"$script_log" 2>&1 </dev/null
    case $? in
    0) passed=$((passed + 1)) ;;
    77)
        skipped=$((skipped + 1))
        skipped_names="$skipped_names $1"
        echo "   skipped $1: $(tail -n 1 "$script_log")"
        ;;
    *)
        failed=$((failed + 1))
        echo "----- failed: $1, $script_log:"
        tail -n 100 "$script_log"
        echo "-----"
        ;;
    esac
    echo "   $(($(date +%s) - began)) s; so far $passed passed, $failed failed, $skipped skipped"
}

mkdir -p build
alone run.sh
if ! need_packages $BUILD_PACKAGES $TRAIN_PACKAGES $TEST_PACKAGES || ! generate; then
    failed=1
    finish
fi
for build in $builds; do
    case $build in
    check) run_build check check --enable-werror ;;
    clang) command -v clang >/dev/null || { echo "== clang: there is none"; continue; }
        run_build clang all-programs --enable-werror CC=clang CXX=clang++ ;;
    asan) run_build asan check --with-sanitizer=address,undefined CFLAGS="-O1 -g" ;;
    tsan) run_build tsan check-tsan --with-sanitizer=thread CFLAGS="-O1 -g" ;;
    dist) run_build dist distcheck ;;
    esac
done
# With --long: what is installed, and the Debian packages.
for script in ${long:+$long_scripts}; do
    run_script $script
done
finish
