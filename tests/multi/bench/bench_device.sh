#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# The programs of bench/ on device memory, here the pretend device's (tests/pretend/module.c):
# correct results from Tutti, its asynchronous calls and NCCL, in place and out of place, on one
# host and on several; and clear refusals. gpu/bench.sh runs this script on TUTTI_TEST_DEVICE.
set -u
. "$srcdir/tests/multi/bench/bench_on_device.sh"

# measure PROGRAM FLAG...: the table must have 12 sizes, all correct.
measure()
{
    measured=$1
    shift
    job $launch "bench/tutti_$measured" -d $device -c -m 4:8K -i 4 -x 1 --rounds 2 "$@"
    rows 12 "^[0-9]+ $number +Pass( $number){5} $limit +(Yes|-)( $number)*\$" \
        "$ranks ranks: $measured $*"
    grep -q "^# Buffers $device" "$log" || wrong "$measured: not on the device"
}

counts="1 2 3"
apart="allreduce allgather reduce_scatter"
long=yes
start="$mpirun -np"
if ! is_long "1 and 3 ranks, and mpirun in most jobs; in place and between hosts all but allreduce"; then
    [ $device != pretend ] || by_hand
    start=${by_hand:-$start}
    long=no
    counts=2
    apart=allreduce
    [ -n "$mpirun" ] && [ $devices -gt 1 ] || counts=1
fi
launch=
for ranks in $counts; do
    limit="$number $number"
    if [ -n "$mpirun" ]; then
        launch="$start $ranks"
    elif [ $ranks -gt 1 ]; then
        break
    fi
    [ $ranks -le $devices ] || break
    for program in allgather allreduce broadcast reduce reduce_scatter; do
        measure $program --peer async,nccl
        case $long,$program in
        *,broadcast | no,allgather | no,reduce*) ;;
        *) measure $program --peer async,nccl -l ;;
        esac
    done
    measure alltoall --peer async,nccl
    [ $long = no ] || measure alltoall --peer async -l
    measure allreduce_async --peer direct,nccl
    job $launch bench/tutti_barrier -d $device --peer async,nccl -i 4 -x 1 --rounds 2
    rows 1 "^ ( *[0-9.-]+)+\$" "$ranks ranks: barrier"
    grep -q '^# NCCL: NCCL has no barrier: an allreduce' "$log" &&
        grep -q ' NCCL Med(us) ' "$log" || wrong "barrier: does not say what NCCL's is"
    measure allreduce --peer async,nccl -T bfloat16 --buffers rotate -M 1M --back-to-back
    spoiled 'DATA VALIDATION ERROR on message size 64' \
        $launch bench/tutti_allreduce -d $device -c --spoil -m 64:128 -i 1
    grep -q '^64 .* Fail$' "$log" || wrong "no row that says Fail"
done

# Each rank is on its own host, so the columns of the limit are empty. If each rank has a device,
# NCCL still has a communicator of all ranks.
if [ -n "$mpirun" ]; then
    limit='+- +-'
    ranks=3
    peers=async
    [ $ranks -gt $devices ] || peers=async,nccl
    cat >"$files/apart" <<END
#!/bin/sh
rank=\${OMPI_COMM_WORLD_RANK:-\$PMI_RANK}
TUTTI_DEVICE_ID=\$((rank % $devices)) TUTTI_HOST_ID=host\$rank exec "\$@"
END
    chmod +x "$files/apart"
    launch="$mpirun -np $ranks $files/apart"
    for program in $apart; do
        measure $program --peer $peers
    done
fi

bench=bench/tutti_allreduce
misuse '--buffers shared: that is host memory' $bench -d $device --buffers shared
misuse '--peer nccl: only with -d' $bench --peer nccl
misuse '--peer nccl: has no alltoall in place' bench/tutti_alltoall -d $device --peer nccl -l
misuse '-d: Barrier has no buffers' bench/tutti_barrier -d $device
misuse '--peer nccl: only with -d' bench/tutti_barrier --peer nccl
ran bench/tutti_barrier --help
grep -q -e '--peer .* nccl (NCCL has no barrier: an allreduce of one' "$log" ||
    wrong "barrier --help: does not say what NCCL's is"
refuses "-d $device: but TUTTI_DEVICE is none" env TUTTI_DEVICE=none $bench -d $device
misuse '--buffers shared: that is host memory' bench/tutti_gradients -d $device --buffers shared
misuse "-d ../x: want a module's name" bench/tutti_gradients -d ../x
if [ -n "$mpirun" ]; then
    misuse '--peer naive: takes host memory only' $bench -d $device --peer naive
    [ "$device" != pretend ] ||
        refuses '--peer mpi: this MPI does not report that it takes pretend memory' \
            $launch $bench -d $device --peer mpi
fi
finish
