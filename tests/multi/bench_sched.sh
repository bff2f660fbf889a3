#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# bench/tutti_sched: what it prints it proves; what is broken it does not, and says why.
set -u

tool=bench/tutti_sched
errors=0
log=$(mktemp) || exit 1
text=$(mktemp) || exit 1
trap 'rm -f "$log" "$text"' EXIT

# expect STATUS WHAT ARGUMENT...: it ends so, and its output has WHAT.
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
expect 2 '^usage: '
expect 2 '^usage: ' dance -n 2
expect 2 '^usage: ' --dance
expect 2 '-n says' print allreduce:ring
expect 2 'makes no sense: 0' print allreduce:ring -n 0
expect 2 'no such algorithm, see --list: allreduce:pigeon' print allreduce:pigeon -n 2
expect 2 'no such algorithm' print allreduce -n 2
expect 2 'no such algorithm' print allreduce:hierarchical/pigeon -n 2
expect 2 'does not make -n ranks: 2,2' print allreduce:ring -n 3 --hosts 2,2
expect 2 'no such --root' print broadcast:binomial -n 3 --root 3
expect 2 'one host only' print allreduce:node -n 4 --hosts 2,2
expect 0 '^ring: rank 1 of 3, blocks 3' print allreduce:ring -n 3
expect 0 'stream 1' print allreduce:hierarchical/ring -n 4 --hosts 2,2
expect 0 '^node: rank 2 of 3' print allgather:node -n 3 --rank 2
[ "$(grep -c rank "$log")" -eq 1 ] || { echo "--rank prints others"; errors=$((errors + 1)); }

# print and check agree
for call in "allreduce:ring -n 5" "allreduce:ring -n 5 --in-place" \
    "allreduce:hierarchical/ring -n 5 --hosts 3,2" "broadcast:binomial -n 7 --root 3" \
    "allgather:ring -n 4" "barrier:dissemination -n 6 --credits 4"; do
    collective=${call%%:*}
    options=${call#* }
    $tool print $call >"$text" || errors=$((errors + 1))
    expect 0 '^proved$' check "$text" "$collective" $options
    $tool print $call | $tool check - "$collective" $options >/dev/null || errors=$((errors + 1))
done

$tool print allreduce:ring -n 3 >"$text"
expect 1 '^not proved, with 1 credits and 1 trips: rank 1 stream 0 operation 2' check "$text" allgather -n 3
expect 1 "line 1: 3 ranks, but there are 4" check "$text" allreduce -n 4
expect 1 'not the order of ranks' check "$text" allreduce -n 3 --ordered
expect 2 'no such collective' check "$text" gossip -n 3
expect 2 'cannot be read: /nowhere' check /nowhere allreduce -n 3
sed 's/RECV_REDUCE\(.*\)IN\[2\]/RECV_REDUCE\1IN[1]/' "$text" >"$text.2"
expect 1 'source and destination may have different sizes' check "$text.2" allreduce -n 3
sed '/RECV from rank 1: OUT/d' "$text" >"$text.2"
expect 1 'not proved' check "$text.2" allreduce -n 3
sed '7s/.*/    SEND everything to everyone/' "$text" >"$text.2"
expect 1 'line 7: expected IN, OUT, SCRATCH or STAGE, found "everything"' \
    check "$text.2" allreduce -n 3
rm -f "$text.2"
test $errors -eq 0
