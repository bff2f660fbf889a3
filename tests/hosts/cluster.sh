#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# A cluster of several hosts on one machine, made of Linux namespaces.
#
# usage: cluster.sh run [OPTION...] [--] COMMAND [ARGUMENT...]
#        cluster.sh check [OPTION...]     can a cluster with these options be made here?
#
#     -np N             number of ranks; by default as many as the hosts have room for
#     --hosts K         number of hosts; by default as many as the ranks need
#     --per-host P      ranks on each host, 1 by default; "3,1": on host 1 and host 2
#     --rate RATE       of each host's link in each direction, in the form of tc: 1gbit. By default
#                       the link is as fast as the machine
#     --delay TIME      from one host to another, in each direction: 1ms, 500us
#     --launcher mpirun Open MPI starts the ranks (the default)
#     --launcher env    the ranks are started with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
#                       MASTER_ADDR and MASTER_PORT, as torchrun does
#     --mpirun OPTIONS  more options of mpirun
#     --pin             hosts do not share processors, if there are enough of them
#     --counters FILE   at the end, a line for each host: "node1 sent BYTES received BYTES"
#
# The exit status is the command's. With --launcher env it is the status of the first rank that
# failed, in rank order; the other ranks run to their end. If a cluster cannot be made here, the
# status is 77, and a line names the reason. A cluster needs root, and Debian's packages iproute2
# and util-linux.
#
#     machine     cluster.sh
#     cluster     PID 1: cluster.sh inside     mpirun     relay         10.77.0.254 on the bridge
#                    |                                                        |
#                 port1 (tbf)                     port2 (tbf)               br0
#                    |                               |
#     hosts       eth0 (tbf) 10.77.0.1            eth0 (tbf) 10.77.0.2
#                 node1: PID 1, ranks             node2: PID 1, ranks
#
# Each host has its own network, host name, loopback, /dev/shm, /proc, /sys, System V memory and
# process numbers. If hosts shared one of these, UCX would use it instead of the link. The cluster
# has its own namespaces as well, and they contain the namespaces of its hosts. So nothing of a
# cluster is visible on the machine, and clusters do not disturb each other. When the cluster's PID
# 1 ends, the kernel ends its processes. It then removes namespaces, mounts and links, which only
# these processes held. PID 1 is killed when cluster.sh ends, even by SIGKILL.
#
# The hosts use TCP's congestion control reno, whatever the machine uses: a network namespace may
# choose only reno, or keep the machine's. With BBR, which delays packets by a measured rate, Open
# MPI's large messages took twice as long as with reno, and times varied by up to 3.
#
# mpirun runs beside the hosts, as on a login node: a process can enter only PID namespaces that are
# inside its own. If a link has a delay, it is a pair of TAP devices with cluster_relay.c between
# them, because not all kernels have netem.
set -u

self=$(cd "$(dirname "$0")" && pwd)/${0##*/}
relay=${CLUSTER_RELAY:-tests/hosts/cluster_relay}
mpirun=${MPIRUN:-mpirun}
shm=/dev/shm # used in the cluster, for its files

usage()
{
    [ $# -eq 0 ] || echo "cluster.sh: $*" >&2
    sed -n '4,/^#$/p; /^#     -np/,/^#$/p' "$self" | sed 's/^# \{0,1\}//' >&2
    exit 2
}

cannot()
{
    echo "cluster.sh: $*"
    exit 77
}

# ---- options ----

ranks= hosts= per_host=1 rate= delay= launcher=mpirun pin=no counters= options=

# Sets $shift to the number of arguments that are options.
parse()
{
    shift=$#
    while [ $# -gt 0 ]; do
        case $1 in
        --pin)
            pin=yes
            shift
            continue
            ;;
        -np | --hosts | --per-host | --rate | --delay | --launcher | --counters | --mpirun) ;;
        --)
            shift
            break
            ;;
        -*) usage "unknown option $1" ;;
        *) break ;;
        esac
        [ $# -ge 2 ] || usage "$1 needs a value"
        case $1 in
        -np) ranks=$2 ;;
        --hosts) hosts=$2 ;;
        --per-host) per_host=$2 ;;
        --rate) rate=$2 ;;
        --delay) delay=$2 ;;
        --launcher) launcher=$2 ;;
        --counters) counters=$2 ;;
        --mpirun) options=$2 ;;
        esac
        shift 2
    done
    shift=$((shift - $#))
    case $launcher in
    mpirun | env) ;;
    *) usage "unknown launcher $launcher" ;;
    esac
    case $ranks$hosts in
    *[!0-9]* | 0*) usage "not a number: $ranks $hosts" ;;
    esac
    delay_us=0
    case $delay in
    "") ;;
    *[0-9]ms) delay_us=$((${delay%ms} * 1000)) ;;
    *[0-9]us) delay_us=${delay%us} ;;
    *) usage "$delay is no delay" ;;
    esac
    place
}

# Sets $places, the ranks of each host, $hosts and $ranks.
place()
{
    case $per_host in
    *,*) places=$(echo "$per_host" | tr , ' ') ;;
    *)
        : "${hosts:=$(((${ranks:-$per_host} + per_host - 1) / per_host))}"
        places=
        for host in $(seq "$hosts"); do
            places="$places $per_host"
        done
        ;;
    esac
    room=0
    count=0
    fitted=
    for place in $places; do
        [ "$place" -ge 0 ] 2>/dev/null || usage "--per-host $per_host"
        count=$((count + 1))
        [ -z "$ranks" ] || [ $((room + place)) -le "$ranks" ] || place=$((ranks - room))
        room=$((room + place))
        fitted="$fitted $place"
    done
    places=$fitted
    : "${hosts:=$count}" "${ranks:=$room}"
    [ "$hosts" -eq "$count" ] || usage "$hosts hosts, --per-host $per_host"
    [ "$room" -eq "$ranks" ] || usage "$ranks ranks do not fit on $hosts hosts"
    [ "$hosts" -le 200 ] || usage "at most 200 hosts"
}

# ---- what it needs ----

check()
{
    missing=
    [ "$(id -u)" -eq 0 ] || missing="$missing, root"
    for tool in ip:iproute2 tc:iproute2 unshare:util-linux nsenter:util-linux setpriv:util-linux; do
        command -v "${tool%:*}" >/dev/null 2>&1 || missing="$missing, ${tool%:*} of ${tool#*:}"
    done
    if [ "$launcher" = mpirun ]; then
        case $($mpirun --version 2>&1) in
        *"Open MPI"* | *OpenRTE*) ;;
        *) missing="$missing, Open MPI's mpirun" ;;
        esac
    fi
    if [ -n "$delay" ]; then
        [ -e /dev/net/tun ] || missing="$missing, /dev/net/tun"
        [ -x "$relay" ] || missing="$missing, $relay"
    fi
    [ -z "$missing" ] || cannot "missing: ${missing#, }"
    try='ip link add br0 type bridge && ip link add port1 type veth peer name eth0'
    $unshare --mount-proc sh -c "$try" >/dev/null 2>&1 ||
        cannot "missing: namespaces with a bridge and veth links, which this kernel or container refuses"
    if [ -n "$rate" ]; then
        $unshare tc qdisc add dev lo root tbf rate "$rate" burst 256kb latency 50ms 2>/dev/null ||
            cannot "missing: tbf of the kernel, with the rate $rate"
    fi
}

unshare="unshare --net --uts --ipc --mount --pid --fork --kill-child"

# ---- on the machine ----

# Ends the cluster. When unshare ends, the kernel kills the cluster's PID 1, and with it all
# processes of the cluster. PID 1 is dead only after all of them are dead. (If PID 1 were killed
# first, unshare would print an error.)
finish()
{
    init=$(cat /proc/[0-9]*/stat 2>/dev/null |
        awk -v parent="$cluster" '{ pid = $1; sub(/.*\) /, "") } $2 == parent { print pid }')
    kill -KILL "$cluster" 2>/dev/null
    wait "$cluster"
    while [ -n "$init" ] && grep -qs '^State:[[:space:]]*[^XZ[:space:]]' "/proc/$init/status"; do
        sleep 0.01
    done
}

run()
{
    [ $# -gt "$shift" ] || usage "no command"
    check
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    setpriv --pdeathsig KILL $unshare --mount-proc "$self" inside "$@" &
    cluster=$!
    trap finish EXIT
    wait "$cluster"
    status=$?
    trap - EXIT
    exit "$status"
}

# ---- in the cluster ----

# The script of a host's PID 1, with the host's name as $0. When the host is complete, the script
# writes this name and its own process id to the pipe 3. It is the process id in the cluster,
# because the cluster's /proc is still mounted when the script reads the id. Then the script reaps
# orphans. The new /sys shows the host's own links. The control groups are mounted there as before.
host_init='
    read -r pid rest </proc/self/stat
    echo "$0" >/proc/sys/kernel/hostname &&
    mount -t proc proc /proc &&
    mount -t tmpfs -o mode=1777 cluster /dev/shm &&
    mkdir /dev/shm/sys && mount -t sysfs sysfs /dev/shm/sys &&
    { [ ! -d /sys/fs/cgroup ] || mount --rbind /sys/fs/cgroup /dev/shm/sys/fs/cgroup; } &&
    mount --move /dev/shm/sys /sys && rmdir /dev/shm/sys &&
    ip link set lo up || exit
    { echo reno >/proc/sys/net/ipv4/tcp_congestion_control; } 2>/dev/null ||
        echo "cluster.sh: $0 keeps the congestion control of the machine" >&2
    echo "$0 $pid" >&3
    exec 3>&-
    while :; do
        sleep infinity &
        wait
    done'

start_hosts()
{
    mkfifo $shm/started && exec 3<>$shm/started
    for host in $(seq "$hosts"); do
        { $unshare sh -c "$host_init" "node$host" || echo "node$host failed" >&3; } &
    done
    for host in $(seq "$hosts"); do
        read -r name pid <&3
        [ "$pid" != failed ] || cannot "the namespaces of $name were refused"
        echo "$pid" >"$shm/$name"
    done
    exec 3>&-
}

# on_net HOST COMMAND...: runs the command in the host's network only
on_net()
{
    pid=$(cat "$shm/$1")
    shift
    nsenter -t "$pid" --net "$@"
}

# Makes the devices of delayed links, and starts the relay, which carries their frames.
start_relay()
{
    mkfifo $shm/ready
    "$relay" "$delay_us" "$hosts" >$shm/ready &
    read -r word <$shm/ready && [ "$word" = ready ]
}

# link HOST: makes the link from the host to the bridge
link()
{
    pid=$(cat "$shm/node$1")
    if [ -n "$delay" ]; then
        ip link set "host$1" netns "$pid" name eth0 || return
    else
        ip link add "port$1" type veth peer name eth0 netns "$pid" || return
    fi
    ip link set "port$1" master br0 up &&
        on_net "node$1" ip addr add "10.77.0.$1/24" dev eth0 &&
        on_net "node$1" ip link set eth0 up || return
    [ -n "$rate" ] || return 0
    tc qdisc add dev "port$1" root tbf rate "$rate" burst 256kb latency 50ms &&
        on_net "node$1" tc qdisc add dev eth0 root tbf rate "$rate" burst 256kb latency 50ms
}

# enter HOST COMMAND...: this process becomes the command, on the host
enter()
{
    host=$1
    shift
    [ ! -e "$shm/$host.processors" ] || set -- taskset -c "$(cat "$shm/$host.processors")" "$@"
    exec nsenter -t "$(cat "$shm/$host")" --net --uts --ipc --mount --pid "$@"
}

# mpirun runs this instead of ssh: agent [OPTION...] HOST COMMAND-LINE
agent()
{
    while [ "${1#-}" != "$1" ]; do
        shift
    done
    host=$1
    shift
    enter "$host" sh -c "$*"
}

# Divides the processors among the hosts, in order. If there are fewer processors than hosts, some
# hosts share one.
pin_hosts()
{
    # nproc cannot be used: it obeys OMP_NUM_THREADS, and does not print the numbers of the
    # processors.
    allowed=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status | tr , '\n' |
        awk -F - '{ for (i = $1; i <= $NF; i++) print i }')
    processors=$(echo "$allowed" | wc -l)
    for host in $(seq "$hosts"); do
        first=$(((host - 1) * processors / hosts))
        last=$((host * processors / hosts - 1))
        [ $last -ge $first ] || last=$first
        echo "$allowed" | sed -n "$((first + 1)),$((last + 1))p" | paste -s -d , - \
            >"$shm/node$host.processors"
    done
}

by_mpirun()
{
    host=0
    for place in $places; do
        host=$((host + 1))
        [ "$place" -eq 0 ] || echo "node$host slots=$place"
    done >$shm/hostfile
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_plm_rsh_agent="$self agent"
    # All hosts share the machine's processors, so MPI must not spin without yielding.
    $mpirun -np "$ranks" --hostfile $shm/hostfile --map-by slot --bind-to none --leave-session-attached \
        --mca plm rsh --mca orte_tmpdir_base $shm \
        --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_tcp_if_include 10.77.0.0/24 \
        --mca mpi_yield_when_idle 1 $options "$@"
}

by_env()
{
    rank=0
    host=0
    pids=
    for place in $places; do
        host=$((host + 1))
        for local in $(seq 0 $((place - 1))); do
            "$self" enter "node$host" env RANK=$rank WORLD_SIZE="$ranks" LOCAL_RANK="$local" \
                LOCAL_WORLD_SIZE="$place" MASTER_ADDR=node1 MASTER_PORT=29500 \
                sh -c 'cd "$0" && exec "$@"' "$PWD" "$@" &
            pids="$pids $!"
            rank=$((rank + 1))
        done
    done
    first=0
    for pid in $pids; do
        wait "$pid"
        status=$?
        [ $first -ne 0 ] || first=$status
    done
    return $first
}

inside()
{
    shift "$shift"
    mount -t tmpfs -o mode=1777 cluster $shm && echo head >/proc/sys/kernel/hostname && ip link set lo up &&
        ip link add br0 type bridge && ip addr add 10.77.0.254/24 dev br0 &&
        ip link set br0 up || cannot "the cluster's network or files were refused"
    {
        echo "127.0.0.1 localhost"
        for host in $(seq "$hosts"); do
            echo "10.77.0.$host node$host"
        done
    } >$shm/hosts
    mount --bind $shm/hosts /etc/hosts || cannot "/etc/hosts could not be replaced"
    start_hosts
    [ -z "$delay" ] || start_relay || cannot "TAP devices were refused"
    for host in $(seq "$hosts"); do
        link "$host" || cannot "the link of node$host was refused"
    done
    [ $pin = no ] || pin_hosts
    "by_$launcher" "$@"
    status=$?
    # The port of a host receives the bytes that the host sends.
    [ -z "$counters" ] || sed -n 's/^ *port\([0-9]*\):/\1 /p' /proc/net/dev |
        awk '{ print "node" $1, "sent", $2, "received", $10 }' | sort -V >"$counters"
    exit $status
}

verb=${1:-}
[ $# -eq 0 ] || shift
case $verb in
check)
    parse "$@"
    check
    ;;
run | inside)
    parse "$@"
    $verb "$@"
    ;;
enter | agent) $verb "$@" ;;
*) usage ;;
esac
