#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# bench/peers.sh: which settings it takes and leaves out, and what its table has. Figures come from
# a launcher that makes them up; then there is a run with the real one.
set -u
. "$srcdir/tests/multi/bench_common.sh"

peers="$srcdir/bench/peers.sh"

# A launcher whose ratios are 3, 1, 2 in passes 1 to 3, under yield 5, 0.5, 0.9; at 16 bytes both
# 4. Open MPI here has no ucx, knows the algorithm 7 "other", glibc prints a warning of
# UCX, and 3 ranks are too many.
cat >"$files/mpirun" <<'END'
#!/bin/sh
for last; do :; done
case "$*" in
*--version*)
    echo "mpirun (Open MPI) 4.1"
    exit
    ;;
*"--mca pml ucx "*)
    printf '%s\n\n%s\n' ------ "[host] PML ucx cannot be selected"
    exit 1
    ;;
*"-np 3"*)
    printf '%s\n' "An error occurred in MPI_Allreduce" "MPI_ERR_NOT_NOW: not now"
    exit 1
    ;;
*MALLOC_*) echo "UCX  WARN  transport 'cma' is not available" ;;
esac
case "$*" in
*"yield_when_idle 1"*) ratios="5 0.5 0.9" ;;
*) ratios="3 1 2" ;;
esac
cat >"$last" <<CSV
# Command: made up
# Host: made up; ranks 2; commit none; seed 1
program,bytes,contestant,median_us,ratio
p,8,Tutti,${last##*.},
p,8,MPI,7,$(echo $ratios | cut -d' ' -f"${last##*.}")
p,16,Tutti,10,
p,16,MPI,40,4
CSV
END
cat >"$files/ompi_info" <<'END'
#!/bin/sh
for name in allreduce_algorithm:enumerator:value:0:ignore bcast_algorithm:enumerator:value:1:wrong \
    allreduce_algorithm:enumerator:value:7:other; do
    echo "mca:coll:tuned:param:coll_tuned_$name"
done
END
chmod +x "$files/mpirun" "$files/ompi_info"

# made_up ARGUMENT...: with that launcher.
made_up()
{
    ran env MPIRUN="$files/mpirun" "$peers" "$@"
}

# has LINE: a whole line of the output.
has()
{
    grep -qxF -e "$1" "$log" || wrong "no line '$1'"
}

made_up --settings default,ucx-cma,yield,glibc,yield+other,default -- -T int32
rows 2 '^(8 +2\.00 +2\.00 +0\.90 +0\.90|16 +10\.00 +4\.00 +4\.00 +4\.00) ' "figures"
grep -qE '^# Size +Tutti\(us\) default +yield yield\+other +Best  Setting$' "$log" || wrong "head"
grep -qE '^8 .* 0\.90  yield$' "$log" || wrong "the best setting"
grep -qE '^16 .* 4\.00  default$' "$log" || wrong "the first of two that are as good"
[ "$(grep -c '^pass 1 of 3: default$' "$log")" -eq 1 ] || wrong "named twice, and run twice"
program="bench/tutti_allreduce --peer mpi -m 8:64M -T int32"
flags="--mca mpi_yield_when_idle 1 --mca coll_tuned_use_dynamic_rules 1"
flags="$flags --mca coll_tuned_allreduce_algorithm 7"
has "# default: $files/mpirun --oversubscribe -np 2 $program"
has "# yield+other: $files/mpirun --oversubscribe -np 2 $flags $program"
has "# Left out: ucx-cma: [host] PML ucx cannot be selected"
has "# Left out: glibc: UCX  WARN  transport 'cma' is not available"
has "# Host: made up; ranks 2; commit none"

made_up --settings ucx-posix
[ "$status" -eq 2 ] && grep -q 'no setting ran' "$log" || wrong "no setting ran: status $status"
made_up --settings default -n 3
has "# Left out: default: MPI_ERR_NOT_NOW: not now"
made_up --list
[ "$(cat "$log")" = "default other ucx-cma ucx-posix glibc yield" ] || wrong "--list"

# refuses_peers WHAT ARGUMENT...
refuses_peers()
{
    what=$1
    shift
    refuses "$what" env MPIRUN="$files/mpirun" "$peers" "$@"
}
refuses_peers "no setting 'fast' for tutti_allreduce; there are: default" --settings default,fast
refuses_peers "no setting 'fast'" --settings yield+fast
refuses_peers "no setting 'wrong'" --settings wrong
refuses_peers "no bench/tutti_nothing" --program tutti_nothing
refuses_peers "--passes 0" --passes 0
refuses_peers "--faster: not known" --faster
refuses_peers "-n: a value is missing" -n
refuses "another, or none" env MPIRUN=/nowhere/mpirun "$peers"

# Both yield, for processors that are busy.
case $mpirun in
*--oversubscribe*)
    ran env MPIRUN="${MPIRUN:-mpirun}" "$peers" -n 2 --settings yield,yield+glibc --sizes 8:16 \
        --passes 2 -- -i 2 -x 0 --rounds 2
    rows 2 "^(8|16) +$number +$number +$number +$number  yield" "the real launcher"
    [ "$(grep -cE '^# yield(\+glibc)?: ' "$log")" -eq 2 ] || wrong "the real launcher's settings"
    ;;
esac
finish
