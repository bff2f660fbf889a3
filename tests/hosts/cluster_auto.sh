#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# TUTTI_TRANSPORT=auto under mpirun on the hosts of a cluster: UCX and MPI are compared when the
# world is made, and all ranks take the same one. If a rank lacks UCX, or UCX does not reach a host,
# all ranks take MPI; this is not an error.
set -u
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/cluster_common.sh"

program=tests/hosts/hosts_check
export TUTTI_LOG=info TUTTI_INTERFACE=eth0
work=$(mktemp -d)
trap 'rm -rf "$log" "$counters" "$work"' EXIT

# said N WORDS: exactly N lines of the output must have these words
said()
{
    [ "$(grep -c -e "$2" "$log")" -eq "$1" ] || wrong "$what: not $1 lines with '$2'"
}

# agreed TRANSPORT: all ranks must have taken this transport
agreed()
{
    passed $ranks "passed"
    said $ranks "messages between hosts: $1\$"
    said 1 "transport auto: $1[;,]"
}

# compared PLACES COMMAND...: as on(). In the comparison of UCX and MPI, each host's first message
# over UCX must arrive within a second. On a busy machine, a leader that was late makes the ranks
# take MPI; then the job is repeated.
compared()
{
    for try in 1 2 3 4 5; do
        rm -f "$work/nccl"
        on "$@"
        grep -q "transport auto: .*\(did not pass in time\| of 0 round trips\)" "$log" || break
        echo "$what: $(grep -m 1 "transport auto: " "$log"), try $try"
    done
}

# prepared SCRIPT: runs the program on two hosts. On each, SCRIPT prepares the environment first; in
# it, $n is the host's number.
prepared()
{
    on 1,1 sh -c "read -r name </proc/sys/kernel/hostname; n=\${name#node}; $1; exec \"\$@\"" sh \
        $program data
}

if ! have_ucx; then
    on 1,1 $program data
    agreed mpi
    said 1 "transport auto: mpi, because ucx cannot be used: rank 0: "
    test $errors -eq 0
    exit
fi

for places in 1,1 2,1,2; do
    compared $places $program groups 2
    chosen=$(sed -n 's/.*transport auto: \([a-z]*\).*/\1/p' "$log")
    agreed "$chosen"
    said 1 "transport auto: .* of [1-8] round trips .* us over ucx, .* us over mpi"
    grep "transport auto" "$log"
done

# Without the module for UCX on one host.
mkdir "$work/modules"
cp "$TUTTI_MODULE_DIR/mpi_$mpi.so" "$work/modules"
prepared "[ \$n = 1 ] || export TUTTI_MODULE_DIR=$work/modules"
agreed mpi
said 1 "transport auto: mpi, because ucx cannot be used: rank 1: "

# UCX of host 2 can use only a separate network. First there is no route to this network. Then there
# is a route, but no answer, as behind a firewall.
network="ip link add net1 type veth peer name net2 && ip addr add 10.77.9.\$n/24 dev net1 &&
    ip link set net1 up && ip link set net2 up"
prepared "[ \$n = 1 ] || { $network && export UCX_NET_DEVICES=net1; }"
agreed mpi
said 1 "transport auto: mpi, because a message over ucx did not pass"
prepared "$network && { [ \$n = 1 ] || export UCX_NET_DEVICES=net1; }"
agreed mpi
said 1 "transport auto: mpi, because a message over ucx did not pass"

# An imitated MPI that accepts device memory; then also an imitated UCX that accepts it. A
# sanitizer's library must be loaded before them.
shim=$PWD/tests/multi/mpi/.libs/mpi_gpu_direct_shim.so
if test -e "$shim" && [ "${SANITIZER:-no}" = no ]; then
    export TUTTI_TEST_PRETEND=$work/nccl
    on 1,1 env LD_PRELOAD="$shim" TUTTI_DEVICE=pretend $program data
    agreed mpi
    said 1 "transport auto: mpi, because only mpi takes device memory"
    compared 1,1 env LD_PRELOAD="$shim $PWD/tests/multi/ucx/.libs/ucx_gpu_direct_shim.so" \
        TUTTI_DEVICE=pretend $program data
    passed $ranks "passed"
    said 1 "transport auto: .* of [1-8] round trips .* us over ucx, .* us over mpi"
    unset TUTTI_TEST_PRETEND
fi

# Another setting decides without a comparison.
over mpi on 1,1 $program data
passed 2 "data passed"
said 0 "transport auto"
said 2 "messages between hosts: mpi"

test $errors -eq 0
