#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# bench/tutti_tune: the library uses the values that it writes; clear refusals.
set -u
. "$srcdir/tests/multi/bench/bench_common.sh"

bench=bench/tutti_tune
settings="TUTTI_ONESHOT_BYTES TUTTI_NODE_CHUNK_BYTES TUTTI_FUSION_BYTES"
export XDG_CONFIG_HOME="$files/config"
own=$XDG_CONFIG_HOME/tutti/tuned
unset TUTTI_TUNED $settings

# value NAME: prints the last run's choice for this setting.
value()
{
    sed -n "s/^# $1, [0-9]* rounds: \([0-9]*[KM]\) takes .*/\1/p" "$log"
}

# uses TEXT WHAT: rank 0 of $launch reports TEXT about the settings that it has read.
uses()
{
    ran env TUTTI_LOG=info $launch bench/tutti_allreduce -m 4:64 -i 1 -x 0
    [ $status -eq 0 ] && [ "$(grep -c "tutti [a-z]*: .*tuned settings" "$log")" -eq 1 ] &&
        grep -qF -- "$1" "$log" || wrong "$2: not '$1'"
}

launch=
ran $bench -h
[ $status -eq 0 ] && grep -q -e '--dry-run' "$log" || wrong help
refuses 'wants two ranks or more' $bench
misuse '--rounds 0: want a number from 1' $bench --rounds 0
misuse '-o: want the name' $bench -o ''
misuse '-o: wants a value' $bench -o
misuse '-q: unknown option' $bench -q
misuse '--slow: unknown option' $bench --slow
misuse 'more: unexpected argument' $bench more

[ -n "$mpirun" ] || finish
start="$mpirun -np"
if is_long "two of three rounds, and mpirun; dry runs, bad files, settings in the environment"; then
    rounds=3
else
    rounds=1
    by_hand
    start=$by_hand
fi
launch="$start 2"
uses 'tutti_tune makes it' 'before there is a file'

# The program refuses this name before it measures, and makes no folder.
refuses "^tutti_tune: $files/none/a: No such file" $launch $bench --quick -o "$files/none/a"
refuses "^tutti_tune: $files: Is a directory" $launch $bench --quick -o "$files"
[ ! -e "$files/none" ] && ! grep -q '^# TUTTI' "$log" || wrong '-o'

# old LINE WHAT: the library does not use an older file with this third line, so the tuner refuses
# it before measuring. The file stays.
old()
{
    printf 'tutti_tuned 1\nTUTTI_STAGE_BYTES 8M\n%s\n' "$1" | tee "$files/kept" >"$files/old"
    refuses "^tutti_tune: the older file has an error; .*: $files/old: line 3: $2" \
        $launch $bench --quick -o "$files/old"
    ! grep -q '^# TUTTI' "$log" && cmp -s "$files/kept" "$files/old" || wrong "an old file: $1"
}
old 'TUTTI_TIMEOUT 60' 'TUTTI_TIMEOUT is not a tunable setting'
old 'TUTTI_CHUNK_BYTES soon' 'TUTTI_CHUNK_BYTES soon makes no sense'
old 'TUTTI_CHUNK_BYTES' 'want NAME VALUE'

# A dry run writes no file. A run without a place for the file writes no file.
if [ $rounds -gt 1 ]; then
    ran $launch $bench --quick -n
    [ $status -eq 0 ] && [ ! -e "$own" ] || wrong '--dry-run'
    refuses '/dev/null/a/b: Not a directory' $launch $bench --quick -o /dev/null/a/b
fi

# The table has a row with figures for each candidate, and two rows for the default; -v adds the
# times of each size.
ran $launch $bench --quick --rounds $rounds -v --spoil --seed 5
[ $status -eq 0 ] && grep -q '^# Ranks: 2$' "$log" || wrong "status $status, or no number of ranks"
for name in $settings; do
    [ "$(grep -cE "^$name +default( +$number)( +-){3}\$" "$log")" -eq 1 ] &&
        [ "$(grep -cE "^$name +again( +$number){4}\$" "$log")" -eq 1 ] &&
        [ "$(grep -cE "^$name +[0-9]+[KM]( +$number){4}\$" "$log")" -ge 5 ] ||
        wrong "$name: its rows"
done
[ "$(grep -cE '^#   us: ' "$log")" -ge 21 ] || wrong '--verbose'
[ "$(grep -c '^# One host: the link between hosts is not measured$' "$log")" -eq 1 ] ||
    wrong 'no line about the link'

# The file must be at the path from which the library reads it, and have the right text. There must
# be no other files.
file=$(sed -n 's/^# written: //p' "$log")
case $file in
"$own"/*-2ranks) ;;
*) wrong "written to '$file'" ;;
esac
[ "$(ls "$own" | wc -l)" -eq 1 ] && [ "$(grep -v '^#' "$file" | head -n 1)" = "tutti_tuned 1" ] ||
    wrong "$(ls "$own" && cat "$file")"
used=
for name in $settings; do
    chosen=$(value $name)
    [ -n "$chosen" ] || wrong "--spoil: nothing is chosen for $name"
    grep -q "^$name $chosen # 0\.[0-9]* (.*) of the default's time\$" "$file" ||
        wrong "$(cat "$file"): no $name $chosen"
    used="$used${used:+, }$name=$chosen"
done

uses "$file: $used" 'the file'
export TUTTI_ONESHOT_BYTES=8K
uses "TUTTI_ONESHOT_BYTES=$(sed -n 's/^TUTTI_ONESHOT_BYTES \([^ ]*\).*/\1/p' "$file") (not used" \
    'a variable and the file'
unset TUTTI_ONESHOT_BYTES
launch="$start 3"
uses 'tutti_tune makes it' 'another number of ranks'
launch="$start 2"

# The library uses a file that is given by name, and refuses a broken file.
cp "$file" "$files/mine"
export TUTTI_TUNED="$files/mine"
uses "$files/mine: $used" TUTTI_TUNED
echo 'TUTTI_ONESHOT_BYTES 1' >>"$files/mine"
uses "not used: $files/mine: line $(wc -l <"$files/mine"): TUTTI_ONESHOT_BYTES stands in line" \
    'a broken file'
unset TUTTI_TUNED

[ $rounds -gt 1 ] || finish
# The environment and an older file do not change the default. If the older file has figures of the
# link, they stay.
printf 'tutti_tuned 1\nTUTTI_LINK_NS 5000\nTUTTI_ONESHOT_BYTES 4K\n' >"$files/b"
ran env TUTTI_ONESHOT_BYTES=nonsense TUTTI_TUNED=/nowhere $launch $bench --quick -o "$files/b"
[ $status -eq 0 ] && ! grep -q nonsense "$log" && grep -q '^tutti_tuned 1$' "$files/b" &&
    grep -q '^TUTTI_LINK_NS 5000 # from the file before$' "$files/b" &&
    ! grep -q '^TUTTI_ONESHOT_BYTES.*from the file before' "$files/b" ||
    wrong "settings in the environment: status $status"
finish
