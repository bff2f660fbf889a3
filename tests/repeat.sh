# SPDX-License-Identifier: BSD-3-Clause
#
# Sourced by test scripts. A job is repeated if it failed by a known fault of mpirun or of UCX.

# by_mpirun OUT LOG COMMAND...: runs the command, with its stdout in OUT and its stderr in LOG; both
# may be the same file. Sets $status. On a busy machine, mpirun of Open MPI 4 sometimes says of a
# rank that ended well that it exited improperly. It then names process 0, which no rank is. If it
# says nothing else, the command runs again, at most three times more.
by_mpirun()
{
    mpirun_out=$1
    mpirun_log=$2
    shift 2
    attempt=0
    until
        : >"$mpirun_out" && : >"$mpirun_log"
        "$@" >>"$mpirun_out" 2>>"$mpirun_log"
        status=$?
        [ $attempt -eq 3 ] || ! only_pid_0 "$mpirun_log"
    do
        attempt=$((attempt + 1))
    done
}

# only_pid_0 LOG: did the last command, which ended with $status, fail by this message alone? It did
# not if `timeout` ended it.
only_pid_0()
{
    case $status in
    0 | 124 | 137) return 1 ;;
    esac
    grep -q 'has exited due to process rank .* with PID 0 on' "$1" &&
        ! grep -q 'exited on signal\|non-zero' "$1"
}

# past_ucx LOGS COMMAND...: runs the command, which writes to the files of the pattern LOGS. A UCX
# with assertions may end a survivor: see the head of lib/xport/ucx/xport.c. Then the command runs
# again, at most twice.
past_ucx()
{
    ucx_logs=$1
    shift
    for attempt in 1 2 3; do
        "$@"
        cat $ucx_logs 2>/dev/null | grep -q "Assertion .comp->count > 0' failed" || break
        echo "$*: an assertion of UCX, attempt $attempt"
    done
}
