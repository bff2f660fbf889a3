#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Slurm itself starts the ranks, on two hosts made of namespaces (cluster.sh). Each host runs its
# own munged and slurmd, and the first host runs slurmctld. The test needs root and Debian's
# packages slurmctld, slurmd, slurm-client and munge; otherwise it is skipped.
#
#     slurm.sh            the test: makes the cluster, which runs `slurm.sh host` on each host
#     slurm.sh host       starts the daemons; on the first host it then runs the cases
#
# With SLURM_COMMAND="..." the first host runs this command instead of the cases.
set -u

PATH=$PATH:/usr/sbin:/sbin
# The library of PMIx is unloaded, so its leaks cannot be distinguished from other leaks.
export ASAN_OPTIONS="detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
self=$(cd "$(dirname "$0")" && pwd)/${0##*/}
cluster=${self%/*}/cluster.sh
hello=${HELLO:-examples/hello_allreduce}
errors=0

# ---- on a host of the cluster; $work is common to the hosts ----

# await WHAT COMMAND...: repeats the command until it succeeds, for at most 60 s
await()
{
    what=$1
    shift
    for try in $(seq 600); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    echo "FAILED: waited for $what"
    for log in "$work"/*.log; do
        echo "$log:"
        tail -n 20 "$log"
    done
    exit 1
}

# /run is mounted for this host only, because munged does not trust a folder that all users may
# write.
daemons()
{
    mount -t tmpfs -o mode=755 run /run &&
        mkdir -p /run/munge /run/slurm/spool /run/slurm/state /run/slurm/pmix &&
        cp "$work/key" /run/munge/key && chmod 600 /run/munge/key || exit
    if ! munged --force --key-file=/run/munge/key --log-file=/run/munge/log \
        --pid-file=/run/munge/pid --seed-file=/run/munge/seed 2>/run/munge/said; then
        cat /run/munge/said
        exit 1
    fi
    [ "$1" -ne 0 ] || slurmctld -c || exit
    slurmd || exit
}

# launch OPTION...: srun starts ranks of hello_allreduce; sets $status. The time limit ends a hang.
launch()
{
    timeout --kill-after=5 100 srun --quiet "$@" "$hello" >"$work/out" 2>&1
    status=$?
}

# expect WHAT N PATTERN: the launch must have succeeded, and N lines must match
expect()
{
    lines=$(grep -c -e "$3" "$work/out")
    [ "$status" -ne 0 ] || [ "$lines" -ne "$2" ] || return 0
    echo "FAILED: $1: status $status, $lines lines instead of $2 have '$3'"
    cat "$work/out"
    errors=$((errors + 1))
}

# has KIND: does Slurm have this plugin for MPI?
has()
{
    srun --mpi=list 2>&1 | grep -qw "$1" && return
    echo "Slurm has no plugin $1: left out"
    return 1
}

# pmi2_opens: is Debian's libpmi2-0 installed?
pmi2_opens()
{
    launch --mpi=pmi2 --nodes=2 --ntasks=2
    ! grep "PMI-2 cannot be used" "$work/out"
}

cases()
{
    export TUTTI_LOG=info TUTTI_TIMEOUT=60
    launch --mpi=none --nodes=1 --ntasks=3
    expect "one host" 3 "of 3: the sum is 6"
    expect "one host" 1 "3 ranks meet on this host, by srun's variables"
    launch --mpi=none --nodes=2 --ntasks=4
    expect "two hosts" 4 "of 4: the sum is 10"
    expect "two hosts" 1 "rank 0 of 4 listens at .*, by srun's variables"
    expect "two hosts" 4 "messages between hosts: ucx"
    if torchrun --help >/dev/null 2>&1; then
        status=0
        timeout --kill-after=5 100 srun --quiet --nodes=2 --ntasks-per-node=1 \
            torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint node1:29400 \
            --rdzv-id 7 --no-python "$hello" >"$work/out" 2>&1 || status=$?
        expect "torchrun in srun" 4 "of 4: the sum is 10"
    else
        echo "no torchrun: left out"
    fi
    # Although there is a module for MPI, the ranks must meet by PMI-2: MPI_Init would end the
    # processes.
    if has pmi2; then
        launch --mpi=pmi2 --nodes=2 --ntasks=3
        expect "PMI-2, with a module for MPI" 3 "of 3: the sum is 6"
    fi
    if [ -e "$TUTTI_MODULE_DIR/mpi_openmpi.so" ] && has pmix; then
        launch --mpi=pmix --nodes=2 --ntasks=3
        expect "MPI" 3 "of 3: the sum is 6"
        expect "MPI" 1 "3 ranks meet by MPI"
    fi
    # There is no module for MPI, and rank 0 is on the second host.
    mkdir "$work/modules" && ln -s "$TUTTI_MODULE_DIR/ucx.so" "$work/modules" || exit
    export TUTTI_MODULE_DIR="$work/modules"
    printf 'node2\nnode1\nnode1\n' >"$work/places"
    export SLURM_HOSTFILE="$work/places"
    if has pmix; then
        launch --mpi=pmix --distribution=arbitrary --ntasks=3
        expect "PMIx" 3 "of 3: the sum is 6"
        expect "PMIx" 1 "3 ranks meet by PMIx"
    fi
    if has pmi2 && pmi2_opens; then
        launch --mpi=pmi2 --distribution=arbitrary --ntasks=3
        expect "PMI-2" 3 "of 3: the sum is 6"
        expect "PMI-2" 1 "3 ranks meet by PMI-2"
    fi
    unset SLURM_HOSTFILE
}

# cluster.sh sets RANK, which is the host's number here. The variables of the ranks must come from
# Slurm.
host()
{
    number=$RANK
    unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
    export SLURM_CONF="$work/slurm.conf"
    daemons "$number"
    if [ "$number" -ne 0 ]; then
        while [ -e "$work" ] && ! [ -e "$work/done" ]; do
            sleep 0.1
        done
        exit 0
    fi
    await "two slurmd" sh -c '[ "$(sinfo --noheader --states=idle --format=%D)" = 2 ]'
    if [ -n "${SLURM_COMMAND:-}" ]; then
        sh -c "$SLURM_COMMAND"
    else
        cases
    fi
    touch "$work/done"
    exit $((errors != 0))
}

if [ "${1:-}" = host ]; then
    work=$2
    host
fi

# ---- the test ----

for tool in slurmctld slurmd srun munged; do
    if ! command -v $tool >/dev/null 2>&1; then
        echo "no $tool: Debian's packages slurmctld, slurmd, slurm-client and munge"
        exit 77
    fi
done
"$cluster" check --launcher env || exit
if ! test -e "$TUTTI_MODULE_DIR/ucx.so"; then
    echo "no module for UCX"
    exit 77
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# The nodes may have more tasks than processors.
head -c 128 /dev/urandom >"$work/key"
cat >"$work/slurm.conf" <<END
ClusterName=test
SlurmctldHost=node1
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/linear
SlurmdParameters=config_overrides
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmdSpoolDir=/run/slurm/spool
StateSaveLocation=/run/slurm/state
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd-%n.log
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName=node[1-2] CPUs=4
PartitionName=all Nodes=node[1-2] Default=YES State=UP OverSubscribe=FORCE:4
END
# The hosts share /tmp, where Slurm's plugin would use the same name on both hosts.
echo PMIxCliTmpDirBase=/run/slurm/pmix >"$work/mpi.conf"
timeout --kill-after=5 400 "$cluster" run --launcher env -np 2 "$self" host "$work"
