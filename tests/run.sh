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
# check, asan and tsan are compiled one after the other; then their tests run at the same time.
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

# make_in NAME ARGUMENT...: runs make in a build, with more jobs than processors, because limit.sh
# lets tests that sleep run beside tests that compute. TUTTI_PACKAGES is removed, because it is no
# setting of the library, which would warn about it.
make_in() {
    dir=build/$1
    shift
    env -u TUTTI_PACKAGES TEST_LOCKS="$top/build" make -C "$dir" -j $((4 * jobs + 4)) "$@" </dev/null
}

# compile NAME: compiles what the tests of a build need.
compile() {
    configure_build "$1" || return
    case $1$long in
    # Test programs take 46 s of processor time to compile with -O1, and 67 s with -O2.
    check) make_in check all && make_in check TUTTI_OPT_CFLAGS=-O1 test-programs ;;
    check-long) make_in check all-programs ;;
    *) make_in "$1" "$1-programs$long" ;;
    esac >"build/$1/compile.log" 2>&1
}

# failed_make NAME LOG TARGET: counts a failure outside the tests, and shows its reason.
failed_make() {
    failed=$((failed + 1))
    echo "failed: make -C build/$1 $3; from build/$1/$2:"
    grep -E -A 6 'error:|undefined reference|^FAIL|\*\*\*' "build/$1/$2" | head -n 80
    tail -n 20 "build/$1/$2"
}

# compile_build NAME: compiles a build, and adds it to $compiled if that succeeds.
compile_build() {
    mkdir -p "build/$1" && : >"build/$1/compile.log"
    if compile "$1"; then
        compiled="$compiled $1"
    else
        failed_make "$1" compile.log "its programs"
    fi
}

# target_of NAME: prints the target that runs the tests of a build.
target_of() {
    case $1 in
    check) echo "check$long" ;;
    *) echo "check-$1$long" ;;
    esac
}

# Runs the tests of all builds in $compiled at the same time, so that the processors also have work
# while the last tests of a build end. Then counts the results.
run_tests() {
    # A background job ignores SIGINT.
    trap 'trap - INT; kill -TERM 0; exit 130' INT
    for build in $compiled; do
        make_in "$build" "$(target_of "$build")" >"build/$build/make.log" 2>&1 &
        eval "job_$build=$!"
    done
    for build in $compiled; do
        eval "wait \$job_$build"
        status=$?
        before=$failed
        count "build/$build"
        [ "$status" -eq 0 ] || [ "$failed" -gt "$before" ] ||
            failed_make "$build" make.log "$(target_of "$build")"
    done
    trap - INT
}

# run_build NAME TARGET: builds a target without tests, which counts as one test.
run_build() {
    mkdir -p "build/$1" && : >"build/$1/make.log"
    if configure_build "$1" && make_in "$1" "$2" >"build/$1/make.log" 2>&1; then
        passed=$((passed + 1))
    else
        failed_make "$1" make.log "$2"
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
compiled=
for build in $builds; do
    case " $compiled $build" in
    *" $build "*) ;; # named twice
    *" check" | *" asan" | *" tsan") part "compile $build" compile_build "$build" ;;
    esac
done
[ -z "$compiled" ] || part "tests of$compiled" run_tests
for build in $builds; do
    case $build in
    clang) command -v clang >/dev/null || { echo "== clang: there is none"; continue; }
        part clang run_build clang all-programs ;;
    dist) part dist run_build dist distcheck ;;
    install) part install run_script tests/install/prefix.sh ;;
    debian) part debian run_script tests/packaging/debian.sh ;;
    python) part python run_python ;;
    esac
done
finish
