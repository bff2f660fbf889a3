#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Files written by bench programs: --csv, --json, --plot; and --compare with old files.
set -u
. "$srcdir/tests/multi/bench/bench_common.sh"

bench=bench/tutti_allreduce
few="-m 64:256 -i 20 -x 2 --rounds 10"

ran $bench $few --csv "$files/a.csv" -z50
rows 3 "^[0-9]+ $number" "a table beside --csv"
[ "$(grep -c '^tutti_allreduce,[0-9]*,Tutti,20,' "$files/a.csv")" -eq 3 ] || wrong "--csv"
if [ "$(grep -v '^#' "$files/a.csv" | awk -F, '{ print NF }' | sort -u)" -ne 20 ]; then
    cp "$files/a.csv" "$log"
    wrong "--csv: not all lines have 20 fields"
fi
$bench $few --csv - >"$log" 2>&1
grep -q '^program,bytes,' "$log" && ! grep -q '^# Size' "$log" || wrong "--csv -"
misuse "--json -: stdout is --csv's" $bench $few --csv - --json -
# full FLAG: if the results cannot be written, the program must fail.
full()
{
    status=0
    $bench $few "$1" - 2>"$log" >/dev/full || status=$?
    [ "$status" -eq 1 ] && grep -q "^tutti_allreduce: $1 -: " "$log" ||
        wrong "$1 - on a full disk: status $status"
}
full --csv

# early WHAT FLAG...: the program must refuse the flags with WHAT, before the table.
early()
{
    what=$1
    shift
    refuses "^tutti_allreduce: $what" $bench $few "$@"
    ! grep -q '^# Size' "$log" || wrong "$*: refused after measuring"
}

early '--csv /nowhere/a: No such file' --csv /nowhere/a
early '--plot /nowhere/a.svg: No such file' --plot /nowhere/a.svg
misuse '^tutti_allreduce: --barrier mpi: MPI does not run' $bench $few --barrier mpi
misuse '--plot .*/a.pdf: must end in .svg or .png' $bench --plot "$files/a.pdf"
misuse '--plot svg: must end in .svg or .png' $bench --plot svg
misuse '--plot: Barrier has no data' bench/tutti_barrier --plot "$files/a.svg"

# If gnuplot is missing, the program prints a line, and makes no drawing.
ran env PATH=/nowhere $bench $few --plot "$files/none.svg"
rows 3 "^[0-9]+ $number" "without gnuplot"
grep -q '^tutti_allreduce: --plot .*/none.svg: will not be drawn, .*gnuplot-nox' "$log" &&
    [ ! -e "$files/none.svg" ] || wrong "without gnuplot"

# fake_gnuplot COMMANDS: makes a gnuplot that runs the commands. It also writes its input into
# $files/script.
fake_gnuplot()
{
    printf '#!/bin/sh\n%s\n' "$1" >"$files/bin/gnuplot"
    chmod +x "$files/bin/gnuplot"
}

# The end of the file's name selects the format. gnuplot's own output must not be in the program's
# output.
mkdir "$files/bin"
fake_gnuplot "echo noise; cat >'$files/script'"
for kind in svg png PNG; do
    ran env PATH="$files/bin:$PATH" $bench $few --plot "$files/a.$kind"
    case $kind in
    svg) terminal=svg ;;
    *) terminal=pngcairo ;;
    esac
    [ "$status" -eq 0 ] && ! grep -q noise "$log" && [ ! -e "$files/a.$kind" ] &&
        grep -q "^set terminal $terminal " "$files/script" &&
        grep -q "^set output '$files/a.$kind'\$" "$files/script" || wrong "--plot a.$kind: $status"
done
fake_gnuplot 'exit 3'
refuses '^tutti_allreduce: --plot .*/a.svg: gnuplot failed' \
    env PATH="$files/bin:$PATH" $bench $few --plot "$files/a.svg"
if command -v gnuplot >/dev/null 2>&1; then
    ran $bench $few --peer async --plot "$files/it's.svg"
    [ "$status" -eq 0 ] && grep -q '<svg' "$files/it's.svg" && grep -q Async "$files/it's.svg" &&
        ! grep -qi warning "$log" || wrong "--plot: status $status"
fi

if $bench -m 4 -i 1 --json - 2>&1 | grep -q 'built without jansson'; then
    misuse '--compare: built without jansson' $bench --compare "$files/a.json"
    finish
fi

full --json

# scale WHO FACTOR OLD NEW: multiplies the round medians of the contestant WHO; if WHO is "", of all
# contestants. jansson writes each median on a line of its own.
scale()
{
    awk -v who="$1" -v factor="$2" '
        /"name":/ { mine = who == "" || index($0, "\"" who "\"") }
        mine && /^ *[0-9.e+-]+,?$/ { sub(/[0-9.e+-]+/, $0 * factor) }
        { print }' "$3" >"$4"
}

# Tutti and async are about equally fast, with or without mpirun.
ran $bench $few --peer async --json "$files/now.json"
rows 3 "^[0-9]+ $number" "a table beside --json"
if command -v python3 >/dev/null 2>&1 && python3 -c 'import json' 2>/dev/null; then
    python3 -c '
import json, sys
a = json.load(open(sys.argv[1]))
assert a["setting"]["program"] == "tutti_allreduce" and a["setting"]["ranks"] == 1
assert [r["bytes"] for r in a["results"]] == [64, 128, 256]
assert [c["name"] for c in a["results"][0]["contestants"]] == ["Tutti", "Async"]
assert len(a["results"][0]["contestants"][1]["round_medians_us"]) == 10
assert a["results"][0]["contestants"][1]["ratio"]["low"] > 0
for member in "command", "commit", "host", "cpu", "kernel", "mpi", "environment":
    assert member in a["conditions"], member
' "$files/now.json" >"$log" 2>&1 || wrong "--json"
fi
$bench $few --json - 2>/dev/null | sed -n 1p | grep -q '^{$' || wrong "--json -"

# The file is published, so the job's secret is not in it.
ran env TUTTI_JOB_SECRET=hunter2 TUTTI_JOB_SECRET_FILE= \
    $bench -m 64:64 -i 1 --json "$files/secret.json"
cp "$files/secret.json" "$log"
grep -q '"TUTTI_JOB_SECRET_FILE": ""' "$log" && ! grep -q hunter2 "$log" || wrong "--json: a secret"

# --compare uses Tutti's medians, or with a peer the ratio peer/Tutti. By both measures Tutti is now
# much slower than in faster.json, and much faster than in slower.json. In alike.json all
# contestants have changed by the same factor, so the ratio is unchanged. Async does not count as a
# peer, because it is Tutti itself. The factor is so large that other load on this machine does not
# matter.
scale Tutti 1e-9 "$files/now.json" "$files/faster.json"
scale Tutti 1e9 "$files/now.json" "$files/slower.json"
scale "" 1e-9 "$files/now.json" "$files/alike.json"
for peer in "" "--peer async"; do
    refuses '# 3 of 3 compared' $bench $few $peer --compare "$files/faster.json" --fail-above 100000%
    ran $bench $few $peer --compare "$files/slower.json" --fail-above 100000%
    [ "$status" -eq 0 ] && grep -q '# 0 of 3 compared' "$log" || wrong "$peer: slower.json"
done
# Compare with the previous run, and keep the results of this run for the next run.
cp "$files/faster.json" "$files/both.json"
refuses '# 3 of 3 compared' $bench $few --json "$files/both.json" --compare "$files/both.json" \
    --fail-above 100000%
! cmp -s "$files/faster.json" "$files/both.json" || wrong "--json and --compare: not written"
for peer in "" "--peer async"; do
    refuses 'Median(us)' $bench $few $peer --compare "$files/alike.json" --fail-above 100000%
    grep -q '# 3 of 3 compared' "$log" || wrong "$peer: alike.json"
done

refuses 'type was "float32" and is "int32"' $bench -T int32 $few --compare "$files/now.json"
early '--compare .*/now.json: no size in common' -m 1K:4K --compare "$files/now.json"
early '--compare /nowhere: No such file or directory$' --compare /nowhere
echo '{ "format": 2 }' >"$files/other.json"
refuses 'not written by --json' $bench $few --compare "$files/other.json"
echo '{ "format": ' >"$files/broken.json"
refuses 'broken.json: line [0-9]' $bench $few --compare "$files/broken.json"
early '--json /nowhere/a: No such file' --json /nowhere/a

if [ -n "$mpirun" ]; then
    refuses 'ranks was 1 and is 2' $mpirun -np 2 $bench $few --compare "$files/now.json"
    ran $mpirun -np 2 $bench $few -c --peer mpi,naive --json "$files/two.json"
    rows 3 "^[0-9]+ .* Pass" "two ranks, --json"
    scale Tutti 1e-9 "$files/two.json" "$files/faster.json"
    refuses '# 3 of 3 compared' $mpirun -np 2 $bench $few --peer mpi \
        --compare "$files/faster.json" --fail-above 100000%
    scale "" 1e-9 "$files/two.json" "$files/alike.json"
    refuses 'MPI/Tutti' $mpirun -np 2 $bench $few --peer async,mpi \
        --compare "$files/faster.json" --fail-above 100000%
    ran $mpirun -np 2 $bench $few --peer async,mpi --compare "$files/alike.json" --fail-above 100000%
    [ "$status" -eq 0 ] || wrong "all contestants changed alike: the peer must cancel it"
fi
finish
