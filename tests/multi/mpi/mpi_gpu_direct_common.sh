# SPDX-License-Identifier: BSD-3-Clause
#
# Jobs over a real MPI that accepts the pretend device's memory with a shim (mpi_gpu_direct_shim.c).
# Sourced by tests that have set srcdir.
. "$srcdir/tests/multi/bench/bench_common.sh"

unset TUTTI_DEVICE TUTTI_DEVICE_ID TUTTI_GPU_DIRECT TUTTI_ALGORITHM
program=tests/multi/device/gpu_direct
shim=$PWD/tests/multi/mpi/.libs/mpi_gpu_direct_shim.so
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
# The shim is loaded first, before the sanitizer's library.
ASAN_OPTIONS="$ASAN_OPTIONS:verify_asan_link_order=0"
TUTTI_TEST_PRETEND=$files/nccl
export TUTTI_TEST_PRETEND
export TUTTI_DEVICE=pretend TUTTI_TRANSPORT=mpi TUTTI_TIMEOUT=60 TUTTI_LOG=info
export TUTTI_STAGE_BYTES=64K TUTTI_DEVICE_CHUNK_BYTES=8K TUTTI_FUSION_BYTES=64K

cat >"$files/host" <<'END'
#!/bin/sh
TUTTI_HOST_ID=host$(echo "$HOSTS" | cut -c $((OMPI_COMM_WORLD_RANK + 1)))
export TUTTI_HOST_ID
[ -z "$SHIM" ] || export LD_PRELOAD="$SHIM"
exec "$@"
END
chmod +x "$files/host"

# afresh COMMAND...: runs the command without files of an earlier job.
afresh()
{
    rm -f "$TUTTI_TEST_PRETEND"*
    "$@"
}

# job HOSTS SHIM ARGUMENT...: a letter per rank names its host.
job()
{
    HOSTS=$1 SHIM=$2
    export HOSTS SHIM
    shift 2
    ran afresh timeout --kill-after=5 250 $mpirun ${recovers:-} -np ${#HOSTS} "$files/host" $program "$@"
}

# works HOSTS SHIM direct|staged WORDS [N]: the results must be correct, the data must go this way,
# and a line of the log must have WORDS.
works()
{
    job "$1" "$2" works "$3" ${5:-}
    [ $status -eq 0 ] && [ "$(grep -c '^rank .* messages' "$log")" -eq ${#1} ] ||
        wrong "hosts $1, $3: status $status"
    [ "$(grep -c "device memory to other hosts: $4" "$log")" -eq 1 ] || wrong "hosts $1: no '$4'"
}

