#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Messages between pretended hosts from and to device memory, over a real MPI that is made to take
# the pretend device's (mpi_direct_shim.c): each algorithm between hosts, hosts of equal and unequal
# numbers of ranks; TUTTI_GPU_DIRECT=0, one rank whose MPI says no, and an MPI that says nothing: as
# ever; and a rank that dies.
set -u
. "$srcdir/tests/multi/bench_common.sh"

unset TUTTI_DEVICE TUTTI_DEVICE_ID TUTTI_GPU_DIRECT TUTTI_ALGORITHM
program=tests/multi/mpi_direct
shim=$PWD/tests/multi/.libs/mpi_direct_shim.so
case $mpirun in
*oversubscribe*) ;;
*)
    echo "no mpirun of Open MPI"
    exit 77
    ;;
esac
if ! test -e "$shim"; then
    echo "no shim: $shim"
    exit 77
fi
# The shim comes first, and is no sanitizer.
ASAN_OPTIONS="$ASAN_OPTIONS:verify_asan_link_order=0"
TUTTI_TEST_PRETEND=$files/nccl
export TUTTI_TEST_PRETEND
export TUTTI_DEVICE=pretend TUTTI_XPORT=mpi TUTTI_TIMEOUT=30 TUTTI_LOG=info
export TUTTI_STAGE_BYTES=64K TUTTI_DEVICE_CHUNK_BYTES=8K TUTTI_FUSION_BYTES=64K

cat >"$files/host" <<'END'
#!/bin/sh
TUTTI_HOST_ID=host$(echo "$HOSTS" | cut -c $((OMPI_COMM_WORLD_RANK + 1)))
export TUTTI_HOST_ID
[ -z "$SHIM" ] || export LD_PRELOAD="$SHIM"
exec "$@"
END
chmod +x "$files/host"

# job HOSTS SHIM ARGUMENT...: a letter per rank names its host.
job()
{
    HOSTS=$1 SHIM=$2
    export HOSTS SHIM
    shift 2
    rm -f "$TUTTI_TEST_PRETEND"
    # Beside 20 busy processes, with AddressSanitizer, a job took longer than 60 s.
    ran timeout --kill-after=5 250 $mpirun ${recovers:-} -np ${#HOSTS} "$files/host" $program "$@"
}

# works HOSTS SHIM direct|staged WORDS [N]: right results, one way or the other, and a log line about it.
works()
{
    job "$1" "$2" works "$3" ${5:-}
    [ $status -eq 0 ] && [ "$(grep -c '^rank .* messages' "$log")" -eq ${#1} ] ||
        wrong "hosts $1, $3: status $status"
    [ "$(grep -c "device memory to other hosts: $4" "$log")" -eq 1 ] || wrong "hosts $1: no '$4'"
}

places="aabb abc aaabb aabcc"
waits="aabb aaabb aaabbb"
if ! is_long "three of four placings, two of three with an MPI that waits"; then
    places=aaabb
    waits=aaabbb
fi
for sub in recursive_doubling halving_doubling ring; do
    TUTTI_ALGORITHM=allreduce:hierarchical/$sub
    export TUTTI_ALGORITHM
    for hosts in $places; do
        works $hosts "$shim" direct direct
    done
done
# By turns, so that ends get other slots.
TUTTI_ALGORITHM=allreduce:0-4k:hierarchical/ring,allreduce:4k-100M:hierarchical/halving_doubling
works abc "$shim" direct direct
works aabbcd "$shim" direct direct
unset TUTTI_ALGORITHM
works abcd "$shim" direct direct
TUTTI_GPU_DIRECT=0 works aabb "$shim" staged "through the host's: TUTTI_GPU_DIRECT is 0"
TUTTI_TEST_REFUSES=2 works aabb "$shim" staged "through the host's: rank 2 has no transport"
works aabb '' staged "through the host's: the transport 'mpi' to rank 2 does not say that it takes"

# An MPI that waits for the device whenever it meets its memory, while NCCL's work is there that
# waits for other ranks. It comes to that, and all ends well: what waits for a device waits for
# launches that all its ranks have come to, before the first that some rank still has to make. Would
# NCCL be called before all ranks of the host have come, three on each of two hosts hang: one waits
# in MPI, in a lane's message, for another lane's launch; that launch, on a neighbour, for a message
# of a rank that waits in MPI in the same way.
export TUTTI_TEST_WAITS=1
for hosts in $waits; do
    TUTTI_ALGORITHM=allreduce:hierarchical/recursive_doubling TUTTI_FUSION_BYTES=1K \
        TUTTI_TIMEOUT=10 works $hosts "$shim" direct direct 60
    grep -q '^rank .* [1-9][0-9]* waits' "$log" || wrong "hosts $hosts: MPI met no work of NCCL"
done
unset TUTTI_TEST_WAITS

# Rank 1 is killed; receives that are abandoned may come later.
recovers=--enable-recovery
export TUTTI_COMPARE=0 # else that is where they hear of it
for cancels in yes no; do
    [ $cancels = yes ] || export TUTTI_TEST_NO_CANCEL=1
    job abc "$shim" dies
    [ "$(grep -c '^rank [02]: [0-9]* late' "$log")" -eq 2 ] || wrong "dies: status $status"
    [ $cancels = yes ] || grep -q '^rank [02]: [1-9][0-9]* late' "$log" || wrong "nothing is late"
done
job abc "$shim" left
[ "$(grep -c '^rank [02]: [1-9][0-9]* late' "$log")" -eq 2 ] || wrong "left: status $status"

finish
