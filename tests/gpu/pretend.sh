#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs the scripts for a real device on the pretend device, to make sure that they will work when a
# real device is available. Also checks that without a device they are skipped with a reason.
set -u
export TUTTI_TEST_DEVICE=pretend TUTTI_TEST_DEVICES=2
unset TUTTI_TEST_GPU

errors=0
files=$(mktemp -d) || exit 1
trap 'rm -rf "$files"' EXIT

# ends STATUS PATTERN COMMAND...: the command must end with this status, and print this pattern.
ends()
{
    wanted=$1
    pattern=$2
    shift 2
    "$@" >"$files/out" 2>&1
    status=$?
    if [ $status -ne "$wanted" ] || ! grep -qE -e "$pattern" "$files/out"; then
        echo "wrong: $*: status $status, or no '$pattern'"
        cat "$files/out"
        errors=$((errors + 1))
    fi
}

gpu="$srcdir/tests/gpu"
. "$srcdir/tests/long.sh"
long=no
! is_long "all calls (libraries.sh makes them), also without NCCL, and measure.sh with four devices and without NCCL" || long=yes

ends 0 '^pretend: 16 ' sh "$gpu/table.sh"
[ $long = no ] || ends 0 '^pretend: 16 ' env TUTTI_TEST_DEVICES=1 sh "$gpu/collectives.sh"
ends 0 '^pretend: 16 ' sh "$gpu/bench.sh"
if test -x examples/example_train && test -d /usr/share/datasets/fashion-mnist; then
    ends 0 '^test accuracy' env TUTTI_TEST_DEVICES=1 sh "$gpu/train.sh"
fi

# An imitated tool: it only runs the program, or with FOUND it only reports an error.
cat >"$files/compute-sanitizer" <<'END2'
#!/bin/sh
until test -f "$1" && test -x "$1"; do
    shift
done
echo "checked $*"
[ -n "${FOUND:-}" ] || exec "$@"
exit "$FOUND"
END2
chmod +x "$files/compute-sanitizer"
if [ "${SANITIZER:-no}" = no ]; then
    ends 0 '^checked tests/gpu/table nccl' env PATH="$files:$PATH" sh "$gpu/sanitizer.sh"
    ! grep -q 'no trainer' "$files/out" || trainer=none
    if [ "${trainer:-}" != none ] && ! grep -q '^checked .*--steps 3' "$files/out"; then
        cat "$files/out"
        errors=$((errors + 1))
    fi
    ends 1 '^wrong: .*memcheck.* casts: status 9' env FOUND=9 PATH="$files:$PATH" \
        sh "$gpu/sanitizer.sh"
fi

ends 0 '^# [0-9]+ s, 0 steps failed' sh "$gpu/measure.sh" --quick . pack direct hosts ways lists
if [ $long = yes ]; then
    ends 0 '^# allreduce of .*, by cost: staged, [0-9]+ us instead of [0-9]+$' \
        env TUTTI_TEST_DEVICES=4 sh "$gpu/measure.sh" --quick . ways
    # Now there is no NCCL.
    ends 0 '^pretend: 16 ' env TUTTI_TEST_DEVICES=1 TUTTI_TEST_NCCL=0 sh "$gpu/collectives.sh"
    ends 0 '^# [0-9]+ s, 0 steps failed' \
        env TUTTI_TEST_NCCL=0 sh "$gpu/measure.sh" --quick . direct hosts lists
fi

ends 1 '1 steps failed' sh "$gpu/measure.sh" --quick . no_part
ends 2 'usage: measure.sh' sh "$gpu/measure.sh"

for script in table collectives bench sanitizer train; do
    ends 77 'no nodevice device:' env TUTTI_TEST_DEVICE=nodevice sh "$gpu/$script.sh"
done
ends 1 'no nodevice device:' env TUTTI_TEST_DEVICE=nodevice TUTTI_TEST_GPU=required \
    sh "$gpu/table.sh"
ends 77 'no cuda device: .*cuda.so' env TUTTI_TEST_DEVICE=cuda TUTTI_MODULE_DIR="$files" \
    sh "$gpu/table.sh"
test $errors -eq 0
