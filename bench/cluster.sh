#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Tutti next to Open MPI between hosts, which are namespaces of this machine: tests/hosts/cluster.sh.
# Needs root. Start it in the build folder.
#
# usage: cluster.sh [OPTION...] [-- FLAG...]
#
#     --places LIST     1,1/2,2: two hosts with one rank each, two with two; with slashes
#     --rates LIST      none/1gbit: rates of each host's link, in tc's units; none: no limit
#     --delay TIME      none; from host to host, such as 1ms
#     --settings LIST   tcp,ucx: Open MPI's own TCP, and UCX over TCP
#     --sizes MIN:MAX   8:16M
#     --program NAME    tutti_allreduce; or a path
#     --passes N        9; all clusters and settings once in each, in an order drawn anew
#     --shared          all hosts' ranks share the processors; by default each host has its own
#     --quick           the same as --passes 1 -- -i 20 -x 5
#     -h                this
#
# FLAGs go to the program. For each cluster it prints a table with the median of each contestant in
# microseconds, and the best of Tutti's divided by the best of MPI's.
set -u

here=$(cd "$(dirname "$0")" && pwd)
places=1,1/2,2
rates=none/1gbit
delay=
settings=tcp,ucx
sizes=8:16M
program=tutti_allreduce
passes=9
pin=--pin
few=

fail() {
    echo "cluster.sh: $1" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    case $1 in
    --places | --rates | --delay | --settings | --sizes | --program | --passes)
        [ $# -ge 2 ] || fail "$1: a value is missing"
        case $1 in
        --places) places=$2 ;;
        --rates) rates=$2 ;;
        --delay) delay="--delay $2" ;;
        --settings) settings=$2 ;;
        --sizes) sizes=$2 ;;
        --program) program=$2 ;;
        --passes) passes=$2 ;;
        esac
        shift 2
        ;;
    --shared)
        pin=
        shift
        ;;
    --quick)
        passes=1
        few="-i 20 -x 5"
        shift
        ;;
    -h | --help)
        sed -n '4,22s/^# \{0,1\}//p' "$0"
        exit
        ;;
    --)
        shift
        break
        ;;
    *) fail "$1: not known" ;;
    esac
done
case $program in
*/*) ;;
*) program=bench/$program ;;
esac
[ -x "$program" ] || fail "--program: there is no $program here"
"$here/../tests/hosts/cluster.sh" check $delay || exit
range="-m $sizes"
[ "${program##*/}" != tutti_barrier ] || range= # it has no sizes

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# flags_of SETTING: prints mpirun's flags. Without pml_ucx_tls, Open MPI refuses UCX on a machine
# without InfiniBand.
flags_of() {
    case $1 in
    tcp) echo "--mca pml ob1" ;;
    ucx) echo "--mca pml ucx --mca pml_ucx_tls any" ;;
    *) fail "$1: no such setting" ;;
    esac
}

# why: prints the line of the log that best explains a failure.
why() {
    for text in "$program: " rror '[a-z]'; do
        grep -m 1 -e "$text" "$work/log" && return
    done
}

# run PLACES RATE SETTING PASS FLAG...: writes $work/PLACES_RATE_SETTING.PASS. A setting that fails
# in one pass is left out of the table: its median would be one of fewer passes.
run() {
    name=$1_$2_$3
    [ ! -e "$work/$name.failed" ] || return
    csv=$work/$name.$4
    rate=
    [ "$2" = none ] || rate="--rate $2"
    flags=$(flags_of "$3") || exit
    set -- --per-host "$1" $rate $delay $pin --mpirun "$flags" -- \
        "$program" --peer mpi $range $few $(shift 4 && echo "$@")
    echo "# cluster.sh run $*" >"$work/$name.command"
    "$here/../tests/hosts/cluster.sh" run "$@" --csv "$csv" >"$work/log" 2>&1 && return
    echo "# Left out: $name: $(why)"
    rm -f "$work/$name".[0-9]* "$work/$name.command"
    : >"$work/$name.failed"
}

for pass in $(seq "$passes"); do
    for place in $(echo "$places" | tr / ' '); do
        for rate in $(echo "$rates" | tr / ' '); do
            for setting in $(echo "$settings" | tr , ' '); do
                echo "$place $rate $setting"
            done
        done
    done | awk 'BEGIN { srand() } { print rand(), $0 }' | sort -n | cut -d ' ' -f 2- >"$work/order"
    while read -r place rate setting; do
        echo "pass $pass of $passes: $place, $rate, $setting" >&2
        run "$place" "$rate" "$setting" "$pass" "$@" </dev/null
    done <"$work/order"
done

# table NAME: prints the table of one cluster, from $work/NAME_SETTING.PASS
table() {
    names=
    for setting in $(echo "$settings" | tr , ' '); do
        for file in "$work/$1_$setting".[0-9]*; do
            [ ! -e "$file" ] || names="$names setting=$setting $file"
        done
    done
    [ -n "$names" ] || return
    : >"$work/ran"
    awk -F, -v settings="$settings" '
        function median(key, i, j, x, n) {
            n = count[key]
            for (i = 1; i <= n; i++) {
                x = value[key, i]
                for (j = i - 1; j >= 1 && sorted[j] > x; j--)
                    sorted[j + 1] = sorted[j]
                sorted[j + 1] = x
            }
            return n == 0 ? 0 : (sorted[int((n + 1) / 2)] + sorted[int(n / 2) + 1]) / 2
        }
        function least(a, b) { return a == 0 || b > 0 && b < a ? b : a }
        function shown(x) { return x > 0 ? sprintf("%.2f", x) : "-" }
        /^program,/ { for (i = 1; i <= NF; i++) column[$i] = i; next }
        /^#/ { next }
        $column["contestant"] == "Tutti" || $column["contestant"] == "MPI" {
            bytes = $column["bytes"]
            if (!(bytes in seen))
                size[++sizes] = bytes
            seen[bytes]
            key = bytes SUBSEP setting SUBSEP ($column["contestant"] == "Tutti")
            value[key, ++count[key]] = $column["median_us"]
        }
        END {
            n = split(settings, name, ",")
            printf "%-10s", "# Size"
            for (i = 1; i <= n; i++)
                printf " %12s %12s", "Tutti:" name[i], "MPI:" name[i]
            printf " %10s\n", "Tutti/MPI"
            for (s = 1; s <= sizes; s++) {
                printf "%-10s", size[s]
                ours = theirs = 0
                for (i = 1; i <= n; i++) {
                    tutti = median(size[s] SUBSEP name[i] SUBSEP 1)
                    mpi = median(size[s] SUBSEP name[i] SUBSEP 0)
                    printf " %12s %12s", shown(tutti), shown(mpi)
                    ours = least(ours, tutti)
                    theirs = least(theirs, mpi)
                }
                printf " %10s\n", shown(theirs == 0 ? 0 : ours / theirs)
            }
        }' $names
    cat "$work/$1"_*.command
    sed -n '/^# Host:/p' "$(echo "$names" | awk '{ print $2 }')"
}

for place in $(echo "$places" | tr / ' '); do
    for rate in $(echo "$rates" | tr / ' '); do
        echo "# Hosts with $place, link $rate: medians of $passes"
        table "${place}_$rate"
        echo
    done
done
if [ ! -e "$work/ran" ]; then
    echo "cluster.sh: nothing ran" >&2
    exit 1
fi
