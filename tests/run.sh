#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Installs missing packages (Debian 12), builds below build/, and runs the tests.
#
#            by default, about ten minutes      with --long, over an hour: before a change is merged
#     check  GCC, warnings are errors:          the same, all tests long
#            all tests, quick
#     asan   AddressSanitizer, Undefined-       all tests, long
#            BehaviorSanitizer: asan_quick
#     tsan   ThreadSanitizer: tsan_quick        all tests whose ranks are threads, long
#     clang  -                                  clang, warnings are errors: everything compiles
#     dist   -                                  make distcheck, which runs all tests quick
#     install -                                 make install to a prefix: tests/install/prefix.sh
#     debian -                                  the Debian packages: tests/packaging/debian.sh
#     python -                                  the Python package: tests/python.sh
#
# usage: tests/run.sh [--long] [BUILD...]. tests/local.mk says what quick and long are, and lists
# asan_quick and tsan_quick.
#
# If there is a GPU, and nvcc to build the CUDA module, then check and `--long asan` also run the
# tests for a GPU (tests/gpu).
#
# The last line of the output has the number of tests of all builds. The lines before it have the
# names of the skipped tests, the ten longest tests, and the time of each build. With
# TUTTI_PACKAGES=as-is, run.sh installs nothing. With TUTTI_TEST_GPU=required, the tests for a GPU
# fail if there is no GPU or no NCCL.
set -u

top=$(cd "$(dirname "$0")/.." && pwd) && cd "$top" || exit 1
. lib/build/setup.sh

builds=
default="check asan tsan"
cuda=--with-cuda-archs=75 # all later GPUs can run this code, and nvcc takes 2 seconds instead of 14
asan_cuda=--without-cuda
# -g1 is enough for a backtrace; -g takes longer to compile. If CFLAGS are given, configure adds no
# optimisation levels, so its default levels are repeated here.
check_flags="CFLAGS=-g1 TUTTI_OPT_CFLAGS=-O2 TUTTI_OPT_KERNEL_CFLAGS=-O3"
long=
for argument; do
    case $argument in
    --long)
        long=-long
        asan_cuda=$cuda
        default="check clang asan tsan dist install debian python"
        ;;
    check | clang | asan | tsan | dist | install | debian | python) builds="$builds $argument" ;;
    -h | --help)
        sed -n '4,/^set/s/^#$\|^# //p' "$0"
        exit 0
        ;;
    *)
        echo "run.sh: $argument: unknown argument; see --help" >&2
        exit 2
        ;;
    esac
done
: "${builds:=$default}"

passed=0
failed=0
skipped=0
skipped_names=
times=build/times # a line for each test: seconds, seconds of a processor, build, name
parts=            # a line for each build, with its time

finish() {
    for name in $skipped_names; do
        echo "$name"
    done | sort | uniq -c | sed -E 's/^ *([0-9]+) (.*)/skipped: \2, in \1 build(s)/'
    sort -rn "$times" | head -n 10 |
        awk '{ printf "slow: %s s, of a processor %s s: %s, %s\n", $1, $2, $4, $3 }'
    printf '%s' "$parts"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
    exit
}

# count DIR: adds up the results that automake has printed in DIR/make.log, and shows the logs of
# failed tests and the reasons of skipped tests.
count() {
    results=$(grep -E '^(PASS|FAIL|SKIP|ERROR): ' "$1/make.log")
    passed=$((passed + $(echo "$results" | grep -c '^PASS')))
    failed=$((failed + $(echo "$results" | grep -cE '^(FAIL|ERROR)')))
    skipped=$((skipped + $(echo "$results" | grep -c '^SKIP')))
    for name in $(echo "$results" | sed 's/.*: //'); do
        sed -nE "s|^time: ([0-9.]+) s, processor ([0-9.]+) s\$|\1 \2 ${1#build/} $name|p" "$1/$name.log"
    done >>"$times"
    for name in $(echo "$results" | sed -n 's/^SKIP: //p'); do
        skipped_names="$skipped_names $name"
        echo "   skipped $name: $(grep -vE '^(SKIP|time:)' "$1/$name.log" | tail -n 1)"
    done
    for name in $(echo "$results" | sed -nE 's/^(FAIL|ERROR): //p'); do
        echo "----- failed: $name, $1/$name.log:"
        tail -n 100 "$1/$name.log"
        echo "-----"
    done
}

# Prints the processor time of all children that have ended, in hundredths of a second.
processor() {
    set -- $(cat /proc/$$/stat)
    echo $((${16} + ${17}))
}

# part NAME COMMAND...: runs the command, and adds its time to $parts.
part() {
    part=$1
    shift
    echo "== $part"
    began=$(date +%s)
    used=$(processor)
    "$@"
    part="$part: $(($(date +%s) - began)) s, of a processor $((($(processor) - used) / 100)) s"
    echo "   $part; so far $passed passed, $failed failed, $skipped skipped"
    parts="$parts$part
"
}

# configure_build NAME: configures a build; does nothing for a name without a configuration here.
configure_build() {
    case $1 in
    check) configure_in build/check --enable-werror --enable-debug $cuda $check_flags ;;
    clang) configure_in build/clang --enable-werror CC=clang CXX=clang++ ;;
    asan) configure_in build/asan --with-sanitizer=address,undefined $asan_cuda \
        CFLAGS="-O1 -g1" ;;
    tsan) configure_in build/tsan --with-sanitizer=thread --without-cuda CFLAGS="-O1 -g1" ;;
    dist) configure_in build/dist ;;
    esac
}

# run_build NAME TARGET: builds the target, and counts the results of its tests. A target without
# tests counts as one success. An error outside the tests counts as one failure.
run_build() {
    dir=build/$1
    target=$2
    before=$failed
    if ! configure_build "$1"; then
        failed=$((failed + 1))
        return
    fi
    # TUTTI_PACKAGES is removed, because it is no setting of the library, which would warn about it.
    # There are more jobs than processors, because limit.sh lets tests that sleep run beside tests
    # that compute.
    make="env -u TUTTI_PACKAGES make -C $dir -j $((2 * jobs + 4))"
    case $target in
    # The second make compiles the test programs with -O1, which takes 46 s of processor time; -O2
    # takes 67 s. The last make runs the tests without this argument: make would pass it to them in
    # the environment, and the library would take it for a setting.
    check) $make all && $make TUTTI_OPT_CFLAGS=-O1 TESTS= check && $make check ;;
    *) $make "$target" ;;
    esac >"$dir/make.log" 2>&1 </dev/null
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
}

# run_script NAME: runs a test that is not part of a build.
run_script() {
    log=build/${1##*/}.log
    "$1" >"$log" 2>&1 </dev/null
    case $? in
    0) passed=$((passed + 1)) ;;
    77)
        skipped=$((skipped + 1))
        skipped_names="$skipped_names $1"
        echo "   skipped $1: $(tail -n 1 "$log")"
        ;;
    *)
        failed=$((failed + 1))
        echo "----- failed: $1, $log:"
        tail -n 100 "$log"
        echo "-----"
        ;;
    esac
}

# Runs the tests of the Python package. python.sh prints their results as make does.
run_python() {
    mkdir -p build/python
    TUTTI_TEST_COUNTED=1 tests/python.sh >build/python/make.log 2>&1 </dev/null
    status=$?
    before=$failed
    count build/python
    [ $status -eq 0 ] || [ $status -eq 77 ] || [ "$failed" -gt "$before" ] || {
        failed=$((failed + 1))
        echo "failed: tests/python.sh; from build/python/make.log:"
        tail -n 60 build/python/make.log
    }
}

mkdir -p build
alone run.sh
: >"$times"
if ! need_packages $BUILD_PACKAGES $TRAIN_PACKAGES $TEST_PACKAGES || ! generate; then
    failed=1
    finish
fi
# Each configure uses only one processor, so all of them run at the same time. If a configure fails
# here, run_build runs it again and reports the failure.
for build in $builds; do
    configure_build "$build" >/dev/null 2>&1 &
done
wait
for build in $builds; do
    case $build in
    check) part check run_build check "check$long" ;;
    clang) command -v clang >/dev/null || { echo "== clang: there is none"; continue; }
        part clang run_build clang all-programs ;;
    asan) [ -z "$long" ] && target=check-asan || target=check-long
        part asan run_build asan $target ;;
    tsan) part tsan run_build tsan "check-tsan$long" ;;
    dist) part dist run_build dist distcheck ;;
    install) part install run_script tests/install/prefix.sh ;;
    debian) part debian run_script tests/packaging/debian.sh ;;
    python) part python run_python ;;
    esac
done
finish
