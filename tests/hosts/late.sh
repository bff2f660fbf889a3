#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# A rank that never calls tutti_init. MPI_Init of the other ranks waits for it without a deadline. A
# warning reports this wait, the missing ranks, and a way to start without MPI. If the rank has
# called MPI_Init itself, tutti_init of the other ranks warns, and ends at its deadline.
set -u
. "$(dirname "$0")/common.sh"

program=tests/hosts/hosts_check
other=tests/hosts/app_mpi
export log program

# await N WORDS: wait until at least N lines of the job's output have WORDS
await()
{
    tries=0
    while [ "$(grep -c -e "$2" "$log")" -lt "$1" ] && [ $tries -lt 1000 ]; do
        tries=$((tries + 1))
        sleep 0.1
    done
    [ $tries -lt 1000 ] || wrong "$what: no $1 lines with '$2'"
}

[ "$mpi" = openmpi ] || skip "only Open MPI is known to wait in MPI_Init"

# The warning comes after TUTTI_STALL_WARNING, or after TUTTI_TIMEOUT if this is shorter.
for settings in "TUTTI_STALL_WARNING=1 TUTTI_TIMEOUT=30" "TUTTI_STALL_WARNING=30 TUTTI_TIMEOUT=1"; do
    what="one of three, $settings"
    : >"$log" # remove the output of the previous job
    timeout 160 $mpirun -np 1 env $settings $program data : -np 1 sleep 150 : \
        -np 1 env $settings $program data >"$log" 2>&1 &
    job=$!
    await 2 'MPI_Init has waited .* the 3 ranks that mpirun started .* rank 1 has not called'
    await 2 'called tutti_init; with TUTTI_BOOT=env the ranks meet without MPI'
    kill $job
    wait $job
done

# If other hosts have ranks as well, the warning names the ranks that have called tutti_init. This
# is so even if the launcher does not report the number of ranks that it has started on this host.
for local in "OMPI_COMM_WORLD_LOCAL_SIZE=2,2 ranks that mpirun started on this host" \
    "-u OMPI_COMM_WORLD_LOCAL_SIZE,3 ranks that mpirun started"; do
    what="two of three, ${local%,*}"
    settings="${local%,*} TUTTI_STALL_WARNING=1"
    : >"$log"
    timeout 160 $mpirun -np 1 env $settings $program data : -np 1 sleep 150 : \
        -np 1 env $settings $program data >"$log" 2>&1 &
    job=$!
    await 2 "MPI_Init has waited .*: of the ${local#*,}, ranks 0 and 2 have called tutti_init"
    kill $job
    wait $job
done

# Rank 1 is killed while it waits in MPI_Init. Its parent process is mpirun's child, and continues
# to wait, so mpirun does not end the job.
what="ended in MPI_Init"
: >"$log"
timeout 160 $mpirun -np 1 env TUTTI_STALL_WARNING=1 $program data : -np 1 sh -c '$program data &
    until grep -q "on this host, rank 2 has not called" "$log"; do sleep 0.1; done
    kill -KILL $!; sleep 150' : -np 1 sleep 150 >"$log" 2>&1 &
job=$!
await 2 'on this host, ranks 1 and 2 have not called tutti_init, or ended in it'
kill $job
wait $job

# Follow the advice of the warning.
what="one of three, without MPI"
launch -np 1 env TUTTI_BOOT=env TUTTI_TIMEOUT=10 $program refused : -np 1 sh -c \
    'until [ "$(grep -c "^refused" "$log")" -eq 2 ]; do sleep 0.1; done' : \
    -np 1 env TUTTI_BOOT=env TUTTI_TIMEOUT=10 $program refused
passed 2 "^refused: .*rank 1 did not connect to rank 0"

# If the rank calls tutti_init late but in time, all calls work.
what="late, but not too late"
launch -np 1 env TUTTI_STALL_WARNING=1 $program data : -np 1 sh -c \
    'until grep -q "rank 1 has not called" "$log"; do sleep 0.1; done; exec $program data'
passed 2 "data passed"

if test -x $other; then
    what="MPI_Init without tutti_init"
    launch -np 1 env TUTTI_STALL_WARNING=0.2 TUTTI_TIMEOUT=3 $program refused : -np 1 $other absent
    grep -q 'refused: .*not all ranks came within' "$log" || wrong "$what: status $status"
    grep -q 'rank 0 has waited .* in tutti_init: .*rank 1 has not called tutti_init' "$log" ||
        wrong "$what: no warning"
fi

test $errors -eq 0
