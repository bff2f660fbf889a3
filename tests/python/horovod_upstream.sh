#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs Horovod's own tests of its torch interface over Tutti.
#
# usage: TUTTI_HOROVOD_TESTS=CHECKOUT tests/python/horovod_upstream.sh [PYTHON [RANKS]]
#
# CHECKOUT is a checkout of Horovod, which need not be built: its file test/parallel/test_torch.py is
# used. PYTHON must have torch, pytest below version 8, mock, parameterized, cloudpickle and
# packaging, and must find tutti and its library. The script prints how many tests passed. Its
# status is 0, 1 after a failure, or 77 if there is no checkout or PYTHON lacks a package.
#
# These tests are left out:
#   test_*_duplicate_name_error      they expect that a call is pending for a while after all ranks
#                                    have made it; horovod_calls.py tests these errors
#   test_horovod_join_broadcast      expects that a broadcast fails while a rank has joined; over
#                                    Tutti it works
#   test_broadcast_state, test_broadcast_state_options, test_force_allreduce
#                                    with torch >= 2.9: they try each class of torch.optim, and Muon
#                                    refuses their parameters, over Horovod as well
set -u

here=$(cd "$(dirname "$0")" && pwd)
python=${1:-python3}
ranks=${2:-2}

skip() {
    echo "skipped: $1"
    exit 77
}

[ -n "${TUTTI_HOROVOD_TESTS:-}" ] || skip "TUTTI_HOROVOD_TESTS names no checkout of Horovod"
checkout=$TUTTI_HOROVOD_TESTS
unset TUTTI_HOROVOD_TESTS # not a setting of the library, which would warn about it
file=$checkout/test/parallel/test_torch.py
[ -f "$file" ] || skip "there is no $file"
command -v mpirun >/dev/null || skip "there is no mpirun"
PYTHONPATH=$here/../../python${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH
reason=$("$python" -c 'import torch, pytest, mock, parameterized, cloudpickle, packaging' 2>&1) ||
    skip "$python lacks a package: $(echo "$reason" | tail -n 1)"

left_out='duplicate_name_error or test_horovod_join_broadcast'
if "$python" -c 'import torch, sys; sys.exit(not hasattr(torch.optim, "Muon"))'; then
    left_out="$left_out or test_broadcast_state or test_force_allreduce"
fi

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
export TUTTI_TIMEOUT="${TUTTI_TIMEOUT:-60}" TUTTI_TUNED="${TUTTI_TUNED:-none}"
mpirun --oversubscribe --bind-to none -np "$ranks" "$python" "$here/horovod_upstream.py" \
    "$checkout" "$work/log" "$file" \
    -k "test_broadcast_state_no_grad or not ($left_out)" >"$work/mpirun" 2>&1
status=$?
for log in "$work"/log.*; do
    grep -E '^(FAILED|ERROR)' "$log"
    tail -n 1 "$log"
done
[ $status -eq 0 ] && exit 0
cat "$work/mpirun"
exit 1
