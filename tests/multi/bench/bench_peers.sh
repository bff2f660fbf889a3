#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# bench/peers.sh: the settings that it uses and omits, and its table. First fake launchers print
# made-up figures; then there is a run with the real launcher. This script also tests --peer ucc.
set -u
. "$srcdir/tests/multi/bench/bench_common.sh"

peers="$srcdir/bench/peers.sh"

# A fake launcher. At 8 bytes its ratios in passes 1 to 3 are 3, 1, 2; with the setting yield they
# are 5, 0.5, 0.9. At 16 bytes they are 4 with each setting. In this test Open MPI has no ucx, calls
# the algorithm 7 "other", prints a warning of UCX with glibc, and cannot run 3 ranks.
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
*"UCX_TLS=self,posix "*"--peer ucc"*) ratios="1.5 1.5 1.5" ;;
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
# MPICH's fake launcher: its times of Tutti are 100 times as long, and MPICH's times are 1.25 times
# Tutti's.
cat >"$files/mpiexec.hydra" <<'END'
#!/bin/sh
for last; do :; done
case "$*" in
*--version*)
    printf '%s\n' "HYDRA build details:" "    Version:    4.0"
    exit
    ;;
esac
cat >"$last" <<CSV
program,bytes,contestant,median_us,ratio
p,8,Tutti,200,
p,8,MPI,250,1.25
CSV
END
cat >"$files/ompi_info" <<'END'
#!/bin/sh
for name in allreduce_algorithm:enumerator:value:0:ignore bcast_algorithm:enumerator:value:1:wrong \
    allreduce_algorithm:enumerator:value:7:other; do
    echo "mca:coll:tuned:param:coll_tuned_$name"
done
END
# Made-up programs: with UCC, without UCC, and of a build with MPICH.
mkdir -p "$files/ucc" "$files/plain" "$files/mpich/bench"
echo '#!/bin/sh' | tee "$files/ucc/tutti_allreduce" >"$files/mpich/bench/tutti_allreduce"
printf '%s\n' '#!/bin/sh' 'exit 1' >"$files/plain/tutti_allreduce"
chmod +x "$files/mpirun" "$files/mpiexec.hydra" "$files/ompi_info" "$files"/*/tutti_allreduce \
    "$files/mpich/bench/tutti_allreduce"

# made_up ARGUMENT...: runs peers.sh with the fake launcher.
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

ran env MPIRUN="$files/mpirun" TUTTI_JOB_SECRET=hunter2 TUTTI_JOB_SECRET_FILE=/f "$peers" \
    --settings default
has "# Environment: TUTTI_JOB_SECRET_FILE=/f"
! grep -q hunter2 "$log" || wrong "the job's secret is printed"

made_up --settings ucx-posix
[ "$status" -eq 1 ] && grep -q 'no setting ran' "$log" || wrong "no setting ran: status $status"
made_up --settings default -n 3
has "# Left out: default: MPI_ERR_NOT_NOW: not now"
made_up --program tutti_barrier --settings default
has "# default: $files/mpirun --oversubscribe -np 2 bench/tutti_barrier --peer mpi"
made_up --program "$files/plain/tutti_allreduce" --list
[ "$(cat "$log")" = "default other ucx-cma ucx-posix glibc yield" ] || wrong "--list"
made_up --program "$files/ucc/tutti_allreduce" --list
ucc="ucc ucc-posix ucc-knomial ucc-sra_knomial"
[ "$(cat "$log")" = "default other ucx-cma ucx-posix glibc yield $ucc glibc+ucc" ] ||
    wrong "--list with UCC"

# Peers beside Open MPI: UCC in the same program, and MPICH in another program.
theirs="--mpich $files/mpich"
both()
{
    ran env MPIRUN="$files/mpirun" MPICHRUN="$files/mpiexec.hydra" "$peers" \
        --program "$files/ucc/tutti_allreduce" "$@"
}
both --settings mpich-glibc,ucc-posix,yield+ucc-knomial,mpich --sizes 8:8 $theirs
rows 2 '^(8 +2\.00 +1\.25 +1\.50 +0\.90 +1\.25 |16 )' "UCC and MPICH"
grep -qE '^8 .* 0\.90  yield\+ucc-knomial$' "$log" || wrong "the best of UCC and MPICH"
run="$files/mpirun --oversubscribe -np 2"
flags="-m 8:8"
has "# ucc-posix: $run -x UCX_TLS=self,posix $files/ucc/tutti_allreduce --peer ucc $flags"
knomial="-x UCX_TLS=self,posix,cma -x UCC_TL_UCP_TUNE=allreduce:@knomial:inf"
has "# yield+ucc-knomial: $run --mca mpi_yield_when_idle 1 $knomial $files/ucc/tutti_allreduce\
 --peer ucc $flags"
run="$files/mpiexec.hydra -n 2"
has "# mpich: $run $files/mpich/bench/tutti_allreduce --peer mpi $flags"
glibc="-genv MALLOC_TOP_PAD_ 1073741824 -genv MALLOC_MMAP_THRESHOLD_ 1073741824"
has "# mpich-glibc: $run $glibc $files/mpich/bench/tutti_allreduce --peer mpi $flags"
has "# MPI: MPICH 4.0"
has "# MPI: mpirun (Open MPI) 4.1"
both --settings mpich $theirs
rows 1 '^8 +200\.00 +1\.25 ' "MPICH alone"

# Now the program is of a build with MPICH.
ran env MPIRUN="$files/mpiexec.hydra" "$peers" --program "$files/plain/tutti_allreduce" --list
theirs_alone="default recursive_doubling reduce_scatter_allgather ucx-cma glibc"
[ "$(cat "$log")" = "$theirs_alone" ] || wrong "--list with MPICH"
ran env MPIRUN="$files/mpiexec.hydra" "$peers" --settings default,ucx-cma --sizes 8:8
rows 1 '^8 +200\.00 +1\.25 +1\.25 ' "MPICH's launcher"
ucx="-genv MPIR_CVAR_NOLOCAL 1 -genv UCX_TLS self,posix,cma"
has "# ucx-cma: $run $ucx bench/tutti_allreduce --peer mpi -m 8:8"

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
refuses_peers "no setting 'ucc'" --settings ucc --program "$files/plain/tutti_allreduce"
refuses_peers "no setting 'mpich'" --settings mpich
refuses_peers "there is no $files/plain/bench" --mpich "$files/plain"
refuses "glibc+mpich: not in one run" env MPIRUN="$files/mpirun" \
    MPICHRUN="$files/mpiexec.hydra" "$peers" --settings glibc+mpich --mpich "$files/mpich"
refuses "set MPICHRUN" env MPIRUN="$files/mpirun" MPICHRUN="$files/mpirun" "$peers" \
    --mpich "$files/mpich"
refuses "neither Open MPI's nor MPICH's" env MPIRUN=/nowhere/mpirun "$peers"

# Tutti and the peer yield, because the processors may be busy.
case $mpirun in
*--oversubscribe*)
    ran env MPIRUN="${MPIRUN:-mpirun}" "$peers" -n 2 --settings yield,yield+glibc --sizes 8:16 \
        --passes 2 -- -i 2 -x 0 --rounds 2
    rows 2 "^(8|16) +$number +$number +$number +$number  yield" "the real launcher"
    [ "$(grep -cE '^# yield(\+glibc)?: ' "$log")" -eq 2 ] || wrong "the real launcher's settings"
    ;;
esac

if ! bench/tutti_allreduce --peer ucc --version >"$log" 2>&1; then
    misuse '--peer ucc: built without UCC' bench/tutti_allreduce --peer ucc
elif [ -n "$mpirun" ]; then
    # There are few calls, because on busy processors each call of UCC takes milliseconds. If the
    # elements cannot be divided evenly, reduce_scatter uses another call of UCC.
    for run in allgather allreduce "allreduce -l" "allreduce -T bfloat16" alltoall broadcast \
        reduce reduce_scatter "reduce_scatter -l"; do
        ran $mpirun -np 2 bench/tutti_$run --peer ucc -c -m 4:16 -i 1 -x 0 --rounds 1
        rows 3 '^[0-9]+ .* Pass .*[0-9]$' "UCC: $run"
    done
    ran $mpirun -np 2 bench/tutti_barrier --peer ucc -i 1 -x 0 --rounds 1
    rows 1 "^ ( *[0-9.-]+)+\$" "UCC: barrier"
    refuses 'ucc_collective_init: ' $mpirun -np 2 bench/tutti_alltoall --peer ucc -l -m 8:8
fi
finish
