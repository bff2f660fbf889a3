#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# bench/tutti_tune --gradients: refusals name file and line; a search on a small list ends with a
# file that the library uses; settings that do not win together are not used; several hosts.
set -u
. "$srcdir/tests/multi/bench/bench_common.sh"

bench=bench/tutti_tune
list=$files/list
out=$files/tuned
unset TUTTI_TUNED TUTTI_FUSION_BYTES TUTTI_NODE_CHUNK_BYTES TUTTI_CHUNK_BYTES TUTTI_ALGORITHM
cat >"$list" <<'END'
# the backward pass of a small network
4096
layer2/weight 20000       # name and count
300 float64
layer1/weight 5000 bfloat16

layer1/bias 7 int8
END

launch=
ran $bench -h
[ $status -eq 0 ] && grep -q -e '--gradients FILE' "$log" || wrong help
misuse '--gradients: want the name' $bench --gradients ''
refuses 'wants two ranks or more: mpirun' $bench --gradients "$list"

[ -n "$mpirun" ] || finish
launch="$mpirun -np 2"

# bad LINE WHAT: LINE is the third line of a list. Only rank 0 must print WHAT, and no file may be
# written.
bad()
{
    printf '# bad\n10\n%b\n20\n' "$1" >"$files/bad"
    refuses "^tutti_tune: $files/bad: line 3: $2" $launch $bench --gradients "$files/bad" -o "$out"
    [ "$(grep -c '^tutti_tune:' "$log")" -eq 1 ] || wrong "$1: more than one line"
    [ ! -e "$out" ] || wrong "$1: there is a file"
}

bad 'weight' 'weight is no count'
whole=
if is_long "six of seven bad lines; several hosts"; then
    whole=yes
    bad 'a 0' '0 is no count'
    bad 'a -5' '-5 is no count'
    bad 'a 99999999999999999999' '99999999999999999999 is no count'
    bad 'a 5 float31' 'float31 is no type'
    bad 'a 5 float32 b' 'more than name, count and type'
    bad 'a 5\0b' 'not a text file'
    bad "$(printf '%300s 5' a | tr ' ' b | sed 's/b5/ 5/')" 'b*\.\.\.: the name is longer'
    printf 'a 5\nb 6\na 7\n' >"$files/bad"
    refuses "$files/bad: line 3: a stands in an earlier line" $launch $bench --gradients "$files/bad"
    printf '# nothing\n' >"$files/bad"
    refuses "$files/bad: no gradient in it" $launch $bench --gradients "$files/bad"
fi
refuses "$files/none: No such file" $launch $bench --gradients "$files/none"

# value NAME: prints the last run's choice for this setting
value()
{
    sed -n "s/^# $1, [0-9]* rounds: \([^ ]*\) takes .*/\1/p" "$log"
}

# search ARGUMENT...: runs one round, in which candidates are faster than the default
search()
{
    ran $launch $bench --gradients "$list" --quick --rounds 1 --spoil --seed 5 -o "$out" "$@"
    [ $status -eq 0 ] || wrong "$*: status $status"
}

# holds TEXT WHAT: the file's lines, without comments, must be TEXT
holds()
{
    sed 's/ *#.*//; /^$/d' "$out" >"$files/held"
    [ "$(cat "$files/held")" = "$1" ] || { cat "$out"; wrong "$2"; }
}

# The file has the winners, and the other settings of the previous file. The library uses the file.
printf 'tutti_tuned 1\nTUTTI_ONESHOT_BYTES 8K\nTUTTI_FUSION_BYTES 3M\n' >"$out"
search
fusion=$(value TUTTI_FUSION_BYTES)
chunk=$(value TUTTI_NODE_CHUNK_BYTES)
[ -n "$fusion" ] && [ -n "$chunk" ] && [ -n "$(value TUTTI_ALGORITHM)" ] || wrong 'nothing wins'
[ "$(grep -cE "^all settings +(default|again|file|all) " "$log")" -eq 4 ] || wrong 'the last turns'
holds "tutti_tuned 1
TUTTI_FUSION_BYTES $fusion
TUTTI_NODE_CHUNK_BYTES $chunk
TUTTI_ONESHOT_BYTES 8K" 'the file'
# An algorithm is printed if all settings together were the fastest.
if [ "$(value 'all settings')" = all ]; then
    grep -q "^export TUTTI_ALGORITHM=$(value TUTTI_ALGORITHM)\$" "$log" || wrong 'no export'
else
    ! grep -q '^export' "$log" || wrong 'an export'
fi
ran env TUTTI_LOG=info TUTTI_TUNED="$out" $launch bench/tutti_allreduce -m 4:64 -i 1 -x 0
[ $status -eq 0 ] &&
    grep -q "tuned settings of $out: TUTTI_FUSION_BYTES=$fusion, TUTTI_NODE_CHUNK_BYTES=$chunk" \
        "$log" || wrong 'the library does not use the file'

# If all winners together are not faster, the defaults stay.
search --spoil-end
[ -n "$(value TUTTI_FUSION_BYTES)" ] && [ -z "$(value 'all settings')" ] &&
    ! grep -q '^export' "$log" || wrong 'slow winners'
holds 'tutti_tuned 1
TUTTI_ONESHOT_BYTES 8K' 'slow winners are in the file'

[ -n "$whole" ] || finish
# On several hosts the file can have other settings. If the file has a setting that only jobs on one
# host read, this setting stays in the file.
printf 'tutti_tuned 1\nTUTTI_CHUNK_BYTES 1M\nTUTTI_FUSION_BYTES 3M\n' >"$out"
launch="$mpirun -np 1 env TUTTI_HOST_ID=a $bench --gradients $list --quick --rounds 1 --spoil -o $out
    : -np 1 env TUTTI_HOST_ID=b"
search
sed -i '/^TUTTI_LINK_/d' "$out"
holds "tutti_tuned 1
TUTTI_CHUNK_BYTES $(value TUTTI_CHUNK_BYTES)
TUTTI_FUSION_BYTES 3M" 'the file of several hosts'
[ -n "$(value TUTTI_FUSION_BYTES)" ] && [ -z "$(value TUTTI_NODE_CHUNK_BYTES)" ] ||
    wrong 'other settings on several hosts'
finish
