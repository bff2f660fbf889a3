#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Tests cluster.sh itself: hosts are distinct, options have their effects, and nothing remains of a
# cluster, in whatever way it ends. Sanitizers would find no errors here.
set -u

cluster=$(dirname "$0")/cluster.sh
wire=tests/hosts/cluster_wire
errors=0
work=$(mktemp -d) || exit 1
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT

"$cluster" check --launcher env --rate 1gbit --delay 1ms || exit

# wrong WHAT [FILE...]: counts an error and shows the files
wrong()
{
    echo "FAILED: $1"
    shift
    [ $# -eq 0 ] || cat "$@"
    errors=$((errors + 1))
}

# with OPTION... COMMAND...: runs a cluster with the launcher env; sets $status
with()
{
    timeout --kill-after=5 60 "$cluster" run --launcher env --counters "$work/counters" "$@" \
        >"$work/out" 2>&1 </dev/null
    status=$?
}

# is_status WANTED WHAT: $status must be WANTED
is_status()
{
    [ "$status" -eq "$1" ] || wrong "$2: status $status, not $1" "$work/out"
}

# ---- what is missing is named, and skips tests ----

mkdir "$work/bin"
for tool in id dirname seq sh; do
    ln -s "$(command -v $tool)" "$work/bin/$tool"
done
PATH=$work/bin "$cluster" check >"$work/out" 2>&1
status=$?
is_status 77 "without tools"
grep -q "missing: .*ip of iproute2.*, Open MPI's mpirun" "$work/out" ||
    wrong "missing tools are not named" "$work/out"
cp "$cluster" "$work/cluster.sh"
setpriv --reuid=65534 --clear-groups "$work/cluster.sh" run true >"$work/out" 2>&1
status=$?
is_status 77 "without root"
grep -q "missing: root" "$work/out" || wrong "root is not named" "$work/out"

# ---- hosts are distinct ----

# Prints for each rank: its settings, host name, namespaces, the namespace of its /proc, the device
# of its /dev/shm, and its links.
facts='echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT \
    $(cat /proc/sys/kernel/hostname) $(readlink /proc/self/ns/net /proc/self/ns/uts \
    /proc/self/ns/ipc /proc/self/ns/mnt /proc/self/ns/pid) $(readlink /proc/1/ns/pid) \
    $(stat -c %d /dev/shm) $(ls -m /sys/class/net) $(ls /dev/shm | wc -l) $(pwd)'
with --per-host 2,1 -- sh -c "$facts"
is_status 0 "distinct hosts"
for want in "0/3 0/2 node1:29500 node1" "1/3 1/2 node1:29500 node1" "2/3 0/1 node1:29500 node2"; do
    grep -q "^$want .* eth0, lo 0 $PWD$" "$work/out" || wrong "no rank $want" "$work/out"
done
here=$(sh -c "$facts" 2>/dev/null)
sort "$work/out" | awk -v here="$here" '
    { for (i = 5; i <= 11; i++) is[NR, i] = $i }
    $9 != $10 { print "rank " NR - 1 " has a foreign /proc"; bad = 1 }
    END {
        split(here, machine, " ")
        for (i = 5; i <= 11; i++) {
            if (is[1, i] != is[2, i]) { print "not shared on a host: " is[1, i]; bad = 1 }
            if (is[1, i] == is[3, i]) { print "shared by hosts: " is[1, i]; bad = 1 }
        }
        exit bad
    }' || wrong "hosts are not distinct" "$work/out"
for space in net uts ipc mnt pid; do
    ! grep -q "$(readlink "/proc/self/ns/$space")" "$work/out" ||
        wrong "a host shares the machine's $space" "$work/out"
done

with -np 3 --hosts 2 --per-host 2 -- sh -c 'echo $LOCAL_RANK/$LOCAL_WORLD_SIZE'
[ "$(sort "$work/out" | tr '\n' ' ')" = "0/1 0/2 1/2 " ] || wrong "3 ranks on 2 hosts" "$work/out"
"$cluster" run -np 5 --per-host 2,1 true 2>"$work/out"
status=$?
is_status 2 "5 ranks on 3 places"

# ---- links ----

# carried BYTES MOST: node2 must have sent at least BYTES, and at most MOST
carried()
{
    is_status 0 "sending $1 bytes"
    sent=$(sed -n 's/^node2 sent \([0-9]*\) received.*/\1/p' "$work/counters")
    if [ "${sent:-0}" -lt "$1" ] || [ "$sent" -gt "$2" ]; then
        wrong "node2 sent ${sent:-?} bytes, not $1 to $2" "$work/out"
    fi
}

# value PATTERN: prints the number that cluster_wire has printed after PATTERN
value()
{
    sed -n "s/.*$1 \([0-9]*\) us.*/\1/p" "$work/out"
}

# The first 256 KiB may pass at once. All other bytes must not be faster than the rate, 2.5 MB/s.
# They may be slower: that depends on the machine.
with --rate 20mbit --per-host 1,1 $wire 1000000
carried 1000000 1200000
us=$(value in)
[ "${us:-0}" -ge $(((1000000 - 262144) * 2 / 5)) ] || wrong "too fast for 20 Mbit/s" "$work/out"
with --delay 5ms --rate 100mbit --per-host 1,1 $wire 300000
carried 300000 360000
us=$(value trip)
[ "${us:-0}" -ge 10000 ] || wrong "a round trip took less than two delays" "$work/out"

# pinned: two hosts print the processors that they may use
pinned()
{
    with --pin --per-host 1,1 sh -c 'grep Cpus_allowed_list /proc/self/status'
    is_status 0 "pinned"
}

# --pin must work with OpenMP's variables, and with any numbers of this process's processors.
allowed=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
last=${allowed##*[,-]}
if [ "$last" != "$allowed" ]; then
    export OMP_NUM_THREADS=1
    pinned
    unset OMP_NUM_THREADS
    [ "$(sort -u "$work/out" | grep -c Cpus)" -eq 2 ] || wrong "hosts share processors" "$work/out"
    taskset -c -p "$last" $$ >/dev/null
    pinned
    taskset -c -p "$allowed" $$ >/dev/null
    [ "$(grep -c "Cpus_allowed_list:[[:space:]]*$last\$" "$work/out")" -eq 2 ] ||
        wrong "not the only processor, $last" "$work/out"
else
    pinned
fi

# Two clusters run at the same time.
timeout 60 "$cluster" run --launcher env --counters "$work/other" --per-host 1,1 $wire 100000 \
    >"$work/other.out" 2>&1 &
with --per-host 1,1 $wire 400000
carried 400000 480000
wait $! || wrong "the other cluster" "$work/other.out"
awk '/node2/ { exit $3 < 100000 || $3 > 120000 }' "$work/other" ||
    wrong "two clusters share links" "$work/other"

# ---- nothing remains ----

mark=CLUSTER_CHECK_MARK=$$
left()
{
    grep -lsz "^$mark$" /proc/[0-9]*/environ
}

# gone WHAT: no process of the cluster may exist, and this machine may have no other trace of the
# cluster
gone()
{
    # Only after SIGKILL of cluster.sh, the kernel may still be ending the processes.
    tries=0
    while [ -n "$(left)" ] && [ "$1" = SIGKILL ] && [ $tries -lt 600 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    [ -z "$(left)" ] || wrong "after $1 there are processes: $(left)"
    ! ip -o link | grep -E '[: ](port|host)1[@:]' || wrong "after $1 there are links"
    ! grep '^cluster ' /proc/mounts || wrong "after $1 there are mounts"
    for file in node1 started hosts hostfile; do
        [ ! -e /dev/shm/$file ] || wrong "after $1 there is /dev/shm/$file"
    done
}

# ends STATUS SCRIPT [OPTION...]: runs SCRIPT as both ranks; the cluster must end with STATUS
ends()
{
    wanted=$1
    script=$2
    shift 2
    with "$@" --per-host 1,1 env "$mark" sh -c "$script"
    is_status "$wanted" "$script"
    gone "$script"
}

ends 0 'sleep 1000 & [ -n "$RANK" ]'
ends 3 'sleep 1000 & [ $RANK = 0 ] || exit 3' --delay 1ms
ends 137 '[ $RANK = 0 ] || kill -KILL $$'

# interrupt SIGNAL STATUS LAUNCHER: sends cluster.sh a signal while its ranks run; it must end with
# STATUS
interrupt()
{
    rm -f "$work"/came.*
    # Shells start background commands with SIGINT ignored.
    env --default-signal=INT "$mark" "$cluster" run --launcher "$3" --per-host 1,1 --delay 1ms -- \
        sh -c ": >$work/came.\$(cat /proc/sys/kernel/hostname); sleep 1000" >"$work/out" 2>&1 &
    pid=$!
    tries=0
    until [ -e "$work/came.node1" ] && [ -e "$work/came.node2" ]; do
        sleep 0.1
        tries=$((tries + 1))
        [ $tries -lt 600 ] || break
    done
    [ -n "$(left)" ] || wrong "no process has the mark"
    kill -"$1" $pid
    wait $pid
    status=$?
    is_status "$2" "SIG$1 with $3"
    gone "SIG$1"
}

interrupt INT 130 env
interrupt TERM 143 env
interrupt KILL 137 env
if MPIRUN=${MPIRUN:-mpirun} "$cluster" check >/dev/null; then
    interrupt INT 130 mpirun
    with --launcher mpirun --per-host 1,1 env "$mark" \
        sh -c '[ $OMPI_COMM_WORLD_RANK = 0 ] || kill -KILL $$; sleep 1000'
    is_status 137 "SIGKILL of a rank of mpirun"
    gone "SIGKILL of a rank of mpirun"
fi

test $errors -eq 0
