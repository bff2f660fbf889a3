#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# bench/tutti_tune on several hosts: the file has the figures of the link. If rank 0 of a job reads
# the file, all ranks expect the times that follow from these figures. If calls are slower with the
# figures, the tuner does not use them.
set -u
. "$srcdir/tests/multi/bench/bench_common.sh"

bench=bench/tutti_tune
out=$files/tuned
unset TUTTI_LINK_NS TUTTI_LINK_MBPS
if [ -z "$mpirun" ]; then
    echo "no mpirun"
    exit 77
fi
long=
is_long "figures that are not used; a link with a known speed" && long=yes

# hosts COMMAND...: runs a rank on each of two pretended hosts, a and b. Host b's rank has
# TUTTI_TUNED=none.
hosts()
{
    ran $mpirun -np 1 env TUTTI_HOST_ID=a "$@" : -np 1 env TUTTI_HOST_ID=b TUTTI_TUNED=none "$@"
}

# figure NAME: prints the number in the file's line of this name
figure()
{
    sed -n "s/^$1 \([0-9]*\) # .*/\1/p" "$out"
}

printf 'tutti_tuned 1\nTUTTI_LINK_NS 1\nTUTTI_LINK_MBPS 1\nTUTTI_CHUNK_BYTES 64K\n' >"$out"
hosts $bench --quick --rounds 1 --spoil -o "$out"
ns=$(figure TUTTI_LINK_NS)
mbps=$(figure TUTTI_LINK_MBPS)
[ $status -eq 0 ] && grep -q '^# 2 hosts: only the link is measured' "$log" &&
    [ "$(sed 's/ *#.*//; /^$/d' "$out" | sed 's/[0-9]*$//')" = 'tutti_tuned 
TUTTI_LINK_NS 
TUTTI_LINK_MBPS 
TUTTI_CHUNK_BYTES 64K' ] || { cat "$out"; wrong "the file: status $status"; }
# A message between processes takes more than 100 ns. No link here has more than 1 s, less than 1
# Mbit/s, or more than 10 Tbit/s.
[ "${ns:-0}" -ge 100 ] && [ "$ns" -lt 1000000000 ] && [ "${mbps:-0}" -gt 1 ] &&
    [ "$mbps" -lt 10000000 ] || wrong "not plausible: $ns ns, $mbps Mbit/s"
shown=$(awk -v ns="$ns" -v mbps="$mbps" 'BEGIN { printf "%.1f us, %d Mbit/s", ns / 1000, mbps }')
grep -q "^# Link between ranks 0 and 1: $shown\$" "$log" || wrong "no line with $shown"

# The formulas of docs/algorithms.md for two ranks, with the speed rounded down to a power of two.
# If there are several streams, each further piece costs a part of the latency. hierarchical has at
# most 3 streams.
export TUTTI_TUNED="$out" TUTTI_LOG=debug
hosts bench/tutti_allreduce -m 256K:256K -i 1 -x 0
unset TUTTI_TUNED TUTTI_LOG
what='allreduce of 262144 bytes: hierarchical/'
grep -q "tuned settings of $out: TUTTI_LINK_NS=$ns, TUTTI_LINK_MBPS=$mbps, " "$log" ||
    wrong "the library does not use the file"
sed -n "s|.*$what\([a-z_]*\), .*expected \([0-9.]*\) us.*|\1 \2|p" "$log" >"$files/expected"
awk -v ns="$ns" -v mbps="$mbps" '
    {
        for (class = 1; class <= mbps / 2; class *= 2) {}
        n = 262144; b = int(8000000 / class) / 1000; g = 0.1
        streams = 1 + int(2 * ns / (65536 * b) + 0.5)
        if (streams > 3) streams = 3
        pieces = n / 65536 / streams
        want = $1 == "recursive_doubling" ? ns * (1 + pieces) + n * (b + g) \
                                          : 2 * ns * (1 + pieces / 2) + n * (b + g / 2)
        want /= 1000
        if ($2 < 0.99 * want || $2 > 1.01 * want) { print "not", $0, "but", want; wrong = 1 }
    }
    END { exit wrong || NR != 2 }' "$files/expected" || wrong "the expected time, on two ranks"

[ -n "$long" ] || finish
hosts $bench --quick --rounds 1 --spoil --spoil-end -o "$out"
[ $status -eq 0 ] && grep -q '^# TUTTI_LINK_NS, TUTTI_LINK_MBPS: the defaults stay$' "$out" &&
    ! grep -q '^TUTTI_LINK' "$out" || { cat "$out"; wrong "slow figures: status $status"; }

"$srcdir/tests/hosts/cluster.sh" check --rate 1gbit || finish
ran "$srcdir/tests/hosts/cluster.sh" run --per-host 2,1 --rate 1gbit \
    $bench --quick --rounds 1 --spoil -o "$out"
mbps=$(figure TUTTI_LINK_MBPS)
# On a busy machine the link is slower. The link's burst, a part of each message, passes at once.
[ $status -eq 0 ] && grep -q '^# Link between ranks 0 and 2: ' "$log" && [ "${mbps:-0}" -gt 0 ] &&
    [ "$mbps" -lt 2000 ] || wrong "a link of 1 Gbit/s: status $status, $mbps Mbit/s"
finish
