#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# bench/tutti_sched: it proves what it prints; broken schedules are refused with the reason. All
# programs without ranks refuse wrong options with the same texts.
set -u

tool=bench/tutti_sched
errors=0
log=$(mktemp) || exit 1
text=$(mktemp) || exit 1
trap 'rm -f "$log" "$text"' EXIT

# expect STATUS WHAT ARGUMENT...: this exit status, and WHAT in the output.
expect()
{
    want=$1 what=$2
    shift 2
    $tool "$@" >"$log" 2>&1
    status=$?
    if [ $status -ne "$want" ] || ! grep -q -e "$what" "$log"; then
        echo "$tool $*: status $status, no '$what':"
        cat "$log"
        errors=$((errors + 1))
    fi
}

expect 0 '^usage: ' --help
expect 0 '^allreduce:hierarchical .*/recursive_doubling' --list
expect 0 '^allreduce:hierarchical .*/recursive_doubling' list
expect 2 '^usage: '
expect 2 'but not: dance$' dance -n 2
expect 2 '^tutti_sched: --dance: unknown option; see --help$' --dance
expect 2 '^tutti_sched: -q: unknown option; see --help$' -q
expect 2 '^tutti_sched: -n: wants a value; see --help$' print allreduce:ring -n
expect 2 '^usage: ' list everything
expect 2 '^usage: ' print -n 2
expect 2 '^tutti_sched: -n must say how many ranks' print allreduce:ring
expect 2 '--ranks is "0", but must be a number from 1 to 4096' print allreduce:ring -n 0
expect 2 '--ranks is "x", but must be' print allreduce:ring -n x
expect 2 '--radix is "1", but must be a number from 2' print allreduce:knomial -n 4 --radix 1
expect 2 '--credits is "0", but must be a number from 1 to 64' check x allreduce -n 4 --credits 0
expect 2 'allreduce has no algorithm called "pigeon"; there are node, ' print allreduce:pigeon -n 2
expect 2 '"allreduce" is not of the form collective:algorithm' print allreduce -n 2
expect 2 'after the "/" of hierarchical may come' print allreduce:hierarchical/pigeon -n 2
expect 2 'allreduce:ring has no radix' print 'allreduce:ring(4)' -n 2
expect 2 'print wants one COLLECTIVE:ALGORITHM' print allreduce:0-4k:ring -n 2
expect 2 '--radix is for algorithms that have one, see list: ' print allreduce:ring -n 2 --radix 2
expect 2 '--root is for collectives that have one' print allreduce:ring -n 2 --root 1
expect 2 '--credits are for check, not for print' print allreduce:ring -n 2 --credits 2
expect 2 '--radix are for print, not for check' check x allreduce -n 2 --radix 2
expect 2 'does not make -n ranks: 2,2' print allreduce:ring -n 3 --hosts 2,2
expect 2 '--root is not below -n' print broadcast:binomial -n 3 --root 3
expect 2 '--rank is not below -n' print broadcast:binomial -n 3 --rank 3
expect 2 'one host only' print allreduce:node -n 4 --hosts 2,2
expect 0 'note: all ranks are on one host, so that nothing goes between' print allreduce:hierarchical -n 2
expect 0 '^ring: rank 1 of 3, blocks 3' print allreduce:ring -n 3
expect 0 'stream 1' print allreduce:hierarchical/ring -n 4 --hosts 2,2
expect 0 '^node: rank 2 of 3' print allgather:node -n 3 --rank 2
[ "$(grep -c rank "$log")" -eq 1 ] || { echo "--rank prints others"; errors=$((errors + 1)); }

for tool in bench/tutti_exec bench/tutti_kernels bench/tutti_pack bench/tutti_report; do
    name=${tool#bench/}
    expect 2 "^$name: --dance: unknown option; see --help\$" --dance
    expect 2 "^$name: -q: unknown option; see --help\$" -q
done
tool=bench/tutti_kernels
expect 2 '^tutti_kernels: -T foo: not known; there are int8 .*float32 .* all$' -T foo
expect 2 '^tutti_kernels: --isa foo: not known; there are scalar' -I foo
expect 2 '^tutti_kernels: --align 3 makes no sense' --align 3
for option in -T -o --isa -m --align; do
    expect 2 "^tutti_kernels: $option  makes no sense" $option ""
    expect 2 "^tutti_kernels: $option , makes no sense" $option ,
done
few="-T float32 -I scalar -m 4K -r 1 -b 1"
expect 0 '^# Ranks: none, one process$' $few
expect 0 '^float32  *sum  *4096 scalar@4096+16 ' $few --align 4096,4096+16
tool="timeout 20 bench/raw_stream" # with valid options it waits for a peer
expect 2 '^Usage: raw_stream' -i 20x
tool=bench/tutti_report
expect 2 '^tutti_report: --trace: wants a value; see --help$' --trace
expect 2 '^tutti_report: --json=3: takes no value; see --help$' --json=3
# If the user forgets the name of the trace, the existing part files must not be overwritten.
echo precious >"$text.0.part"
expect 2 '^tutti_report: --trace .*.0.part: this is a part; ' --trace "$text.0.part" "$text.1.part"
[ "$(cat "$text.0.part")" = precious ] || { echo "--trace: a part is lost"; errors=$((errors + 1)); }
rm "$text.0.part"
# Rank 2, which waits longest, waits for rank 0; ranks 0 and 1 wait for each other.
{
    echo '{"what":"dump","reason":"asked","time_ns":9000}'
    for who in "0,3000,1" "1,2000,0" "2,1000,0"; do
        since=${who#*,}
        echo '{"what":"comm","comm":"world","rank":'"${who%%,*}"',"size":3}'
        echo '{"what":"direct","since_ns":'"${since%,*}"',"call":"recv","peer":'"${who##*,}"'}'
    done
    echo '{"what":"end"}'
} >"$text"
expect 0 '"verdict":"direct",.*"culprits":\[0,1\]' --json "$text"
tool=bench/tutti_sched

# print and check agree
for call in "allreduce:ring -n 5" "allreduce:ring -n 5 --in-place" \
    "allreduce:hierarchical/ring -n 5 --hosts 3,2" "broadcast:binomial -n 7 --root 3" \
    "allreduce:knomial(3) -n 9" "allgather:ring -n 4" "barrier:dissemination -n 6"; do
    collective=${call%%:*}
    options=${call#* }
    $tool print $call >"$text" || errors=$((errors + 1))
    expect 0 '^proved$' check "$text" "$collective" $options
    $tool print $call | $tool check - "$collective" $options >/dev/null || errors=$((errors + 1))
done

$tool print allreduce:ring -n 3 >"$text"
expect 1 '^not proved, with 1 credit and 1 trip: rank 1 stream 0 operation 2' check "$text" allgather -n 3
expect 1 "line 1: 3 ranks, but there are 4" check "$text" allreduce -n 4
expect 1 'not the order of ranks' check "$text" allreduce -n 3 --ordered
expect 2 'no such collective' check "$text" gossip -n 3
expect 2 'cannot read /nowhere: No such file' check /nowhere allreduce -n 3
expect 2 'cannot read /: Is a directory' check / allreduce -n 3
expect 0 '^proved$' check "$text" allreduce -n 3 --credits 4
sed 's/RECV_REDUCE\(.*\)IN\[2\]/RECV_REDUCE\1IN[1]/' "$text" >"$text.2"
expect 1 'line [0-9]*: .*source and destination may have different sizes' check "$text.2" allreduce -n 3
sed '/RECV from rank 1: OUT/d' "$text" >"$text.2"
expect 1 'not proved' check "$text.2" allreduce -n 3
sed '7s/.*/    SEND everything to everyone/' "$text" >"$text.2"
expect 1 'line 7: expected IN, OUT, SCRATCH or STAGE, found "everything"' \
    check "$text.2" allreduce -n 3
sed 's/to rank 2/to rank 7/' "$text" >"$text.2"
expect 1 'line [0-9]*: there is no rank 7 of 3' check "$text.2" allreduce -n 3

# Printed schedules run, in one process.
tool=bench/tutti_exec
expect 0 "^shm .*allreduce:@$text  *3 " -a "allreduce:@$text" -t shm -r 3 -b 100
expect 2 "allreduce:@$text is for 3 ranks, but -p says 4" -a "allreduce:@$text" -p 4
expect 1 "line [0-9]*: there is no rank 7 of 3" -a "allreduce:@$text.2"
expect 1 "not proved: " -a "alltoall:@$text"
expect 1 "cannot read /nowhere: No such file" -a allreduce:@/nowhere
expect 2 'allreduce has no algorithm called "pigeon"' -a allreduce:pigeon
expect 2 '^tutti_exec: --ranks is "1", but must be a number from 2 to 4096' -p 1
expect 2 '^tutti_exec: --transport is "udp", but must be null, shm or both' -t udp
expect 0 '^# left out: allreduce:ring of 65 ranks over shm: it takes 64' -a allreduce:ring -p 65 -t shm
expect 0 '^# left out: allreduce:node of 2 ranks over null: .*node operations' -a allreduce:node -p 2 -t null
expect 0 '^shm  *allreduce:node  *2  *2 ' -a allreduce:node -p 2 -r 3 -b 100
expect 0 '^# left out: alltoall:recursive_doubling of 3 ranks: ' -a alltoall:recursive_doubling -p 3
expect 0 "^# Tutti $(sed -n 's/^Version: //p' lib/tutti.pc), executor" -a allreduce:ring -p 2 -r 3 -b 1
rm -f "$text.2"
test $errors -eq 0
