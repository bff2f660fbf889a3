#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Idle ranks on the hosts of a cluster. Without calls the links carry only the probes of TCP's
# keepalive, for one connection per host. If a rank waits two seconds for a late rank, it hardly
# uses its processor: less than 20 ms on an idle machine, over UCX and over MPI.
set -u
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/cluster_common.sh"

program=tests/hosts/idle_check
# IPv6 is disabled, because the packets by which it finds neighbours and routers would be counted.
only4='echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 && exec "$@"'

# quiet PLACES: ranks that make no calls
quiet()
{
    on "$1" --launcher env sh -c "$only4" sh $program quiet 4
    passed $ranks "quiet passed"
    grep "packets" "$log"
}

# late TRANSPORT PLACES: ranks that wait for a late rank. They may use 60 ms, because they use more
# time if the machine is busy
late()
{
    over $1 on "$2" $program late 60
    what="$what over $1"
    passed $ranks "late passed"
    grep "of a processor" "$log"
}

if have_ucx; then
    quiet 1,1
    quiet 2,1,2
    late ucx 1,1
    late ucx 2,2 # if a host has one processor, messages must wake sleeping ranks
fi
late mpi 1,1
is_long "two ranks on a host over MPI" && late mpi 2,2

test $errors -eq 0
