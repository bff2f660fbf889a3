#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Tutti next to Open MPI under each of its settings: how many times Tutti's time does MPI take, and
# which setting comes nearest? Start it in the build folder, where bench/ has the programs.
#
# usage: peers.sh [OPTION...] [-- FLAG...]
#
#     -n RANKS          2
#     --settings LIST   with commas; a+b is both at once; all that there are
#     --sizes MIN:MAX   8:64M
#     --program NAME    tutti_allreduce; or a path
#     --passes N        3; all settings once in each, in an order drawn anew
#     --quick           the same as -- -i 50 -x 5
#     --list            the settings' names, and nothing is run
#     -h                this
#
# FLAGs go to the program. MPIRUN is the mpirun to use, with options of its own.
set -u

ranks=2
settings=
sizes=8:64M
program=tutti_allreduce
passes=3
few=
list=
mpirun=${MPIRUN:-mpirun}

fail() {
    echo "peers.sh: $1" >&2
    exit 2
}

# number FLAG VALUE: refuses all but a whole number above 0.
number() {
    case $2 in
    '' | 0* | *[!0-9]*) fail "$1 $2: not a number above 0" ;;
    esac
}

while [ $# -gt 0 ]; do
    case $1 in
    -n | --settings | --sizes | --program | --passes)
        [ $# -ge 2 ] || fail "$1: a value is missing"
        case $1 in
        -n) number "$1" "$2" && ranks=$2 ;;
        --settings) settings=$(echo "$2" | tr ',' ' ') ;;
        --sizes) sizes=$2 ;;
        --program) program=$2 ;;
        --passes) number "$1" "$2" && passes=$2 ;;
        esac
        shift 2
        ;;
    --quick)
        few="-i 50 -x 5"
        shift
        ;;
    --list)
        list=yes
        shift
        ;;
    -h | --help)
        sed -n '4,19s/^# \{0,1\}//p' "$0"
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
case $($mpirun --version 2>&1) in
*"Open MPI"* | *OpenRTE*) ;;
*) fail "$mpirun: the settings are Open MPI's, and this is another, or none" ;;
esac

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# What chooses among the algorithms of the collective that this program measures.
case ${program##*/} in
tutti_allreduce_async) parameter=coll_libnbc_iallreduce_algorithm ;;
tutti_broadcast) parameter=coll_tuned_bcast_algorithm ;;
*) parameter=coll_tuned_$(echo "${program##*/}" | sed 's/^tutti_//')_algorithm ;;
esac
dynamic=
case $parameter in
coll_tuned_*) dynamic="--mca coll_tuned_use_dynamic_rules 1 " ;;
esac

info=ompi_info
case ${mpirun%% *} in
*/*) info=${mpirun%% *} && info=${info%/*}/ompi_info ;;
esac

# "NUMBER:NAME" of each. The library is asked, since they differ from version to version; 0 is its
# own choice.
algorithms=$("$info" --parsable --param coll all --level 9 2>/dev/null |
    sed -n "s/.*:param:$parameter:enumerator:value:\([1-9][0-9]*:.*\)/\1/p" | sort -nu)
offered="default $(echo "$algorithms" | sed 's/.*://' | tr '\n' ' ') ucx-cma ucx-posix glibc yield"

# Without pml_ucx_tls, UCX is refused where there is no InfiniBand.
ucx="--mca pml ucx --mca pml_ucx_tls any -x UCX_TLS=self,posix"

# flags_of PART: of mpirun.
flags_of() {
    case $1 in
    default) ;;
    ucx-cma) echo "$ucx,cma" ;;
    ucx-posix) echo "$ucx" ;;
    # Temporary buffers stay mapped, instead of new pages in each call.
    glibc) echo "-x MALLOC_TOP_PAD_=1073741824 -x MALLOC_MMAP_THRESHOLD_=1073741824" ;;
    yield) echo "--mca mpi_yield_when_idle 1" ;;
    *) echo "$dynamic--mca $parameter $(echo "$algorithms" | sed -n "s/:$1\$//p")" ;;
    esac
}

if [ -z "$settings" ]; then
    settings=$offered
    for name in segmented_ring rabenseifner; do
        case $offered in
        *" $name "*) settings="$settings glibc+$name" ;;
        esac
    done
fi
for setting in $settings; do
    flags="--oversubscribe -np $ranks"
    for part in $(echo "$setting" | tr '+' ' '); do
        case " $(echo $offered) " in
        *" $part "*) flags="$flags $(flags_of "$part")" ;;
        *) fail "no setting '$part' for ${program##*/}; there are: $(echo $offered)" ;;
        esac
    done
    echo "$flags" | sed 's/ *$//' >"$work/$setting.flags"
done
if [ -n "$list" ]; then
    echo $settings
    exit
fi

# run SETTING PASS FLAG...: writes $work/SETTING.PASS. Fails if the setting did not run, or not as
# it says: without a transport that it asks for, UCX takes another.
run() {
    setting=$1
    pass=$2
    shift 2
    $mpirun $(cat "$work/$setting.flags") "$program" --peer mpi -m "$sizes" $few "$@" \
        --csv "$work/$setting.$pass" >"$work/log" 2>&1 </dev/null &&
        ! grep -q 'is not available' "$work/log"
}

# The line that says most of why.
why() {
    for text in 'is not available' 'MPI_ERR_[A-Z_]*:' 'cannot be' 'was not found' 'rror' '[a-z]'; do
        grep -m 1 -e "$text" "$work/log" && return
    done
    echo "it ended without a word"
}

left=$(echo "$settings" | tr ' ' '\n' | sed '/^$/d' | awk '!seen[$0]++')
pass=0
while [ $pass -lt "$passes" ]; do
    pass=$((pass + 1))
    order=$(echo "$left" | awk 'BEGIN { srand() } { print rand(), $0 }' | sort -n | sed 's/.* //')
    for setting in $order; do
        echo "pass $pass of $passes: $setting" >&2
        if ! run "$setting" $pass "$@"; then
            echo "# Left out: $setting: $(why)" >>"$work/out"
            left=$(echo "$left" | grep -vxF -e "$setting")
        fi
    done
done
[ -n "$algorithms" ] ||
    echo "# Left out: the algorithms: $info does not tell those of $parameter" >>"$work/out"

arguments=
first=
for setting in $left; do
    arguments="$arguments setting=$setting"
    for file in "$work/$setting".[0-9]*; do
        : "${first:=$file}"
        arguments="$arguments $file"
    done
done
if [ -z "$first" ]; then
    cat "$work/out" >&2
    fail "no setting ran"
fi

echo "# MPI/Tutti by MPI's setting: median of $passes; above 1, Tutti is faster"
sed -n '/^# Host:/s/; seed.*//p' "$first"
$mpirun --version 2>&1 | sed -n '1s/^/# MPI: /p'
awk -F, '
    function median(count, i, j, x) {
        for (i = 2; i <= count; i++) {
            x = value[i]
            for (j = i - 1; j >= 1 && value[j] > x; j--)
                value[j + 1] = value[j]
            value[j + 1] = x
        }
        return (value[int((count + 1) / 2)] + value[int(count / 2) + 1]) / 2
    }
    function ratio(at, of, i) {
        for (i = 1; i <= runs[at, of]; i++)
            value[i] = ratios[at, of, i]
        return median(runs[at, of])
    }
    FNR == 1 && !(setting in known) { known[setting]; names[++nnames] = setting }
    /^program,/ { for (i = 1; i <= NF; i++) column[$i] = i; next }
    /^#/ { next }
    $column["contestant"] == "Tutti" {
        bytes = $column["bytes"]
        if (!(bytes in times))
            sizes[++nsizes] = bytes
        tutti[bytes, ++times[bytes]] = $column["median_us"]
    }
    $column["contestant"] == "MPI" {
        ratios[bytes, setting, ++runs[bytes, setting]] = $column["ratio"]
    }
    END {
        printf "%-10s %11s", "# Size", "Tutti(us)"
        for (n = 1; n <= nnames; n++)
            printf " %*s", (wide[n] = length(names[n]) > 7 ? length(names[n]) : 7), names[n]
        printf " %7s  %s\n", "Best", "Setting"
        for (s = 1; s <= nsizes; s++) {
            bytes = sizes[s]
            for (i = 1; i <= times[bytes]; i++)
                value[i] = tutti[bytes, i]
            printf "%-10s %11.2f", bytes, median(times[bytes])
            best = 0
            for (n = 1; n <= nnames; n++) {
                x = ratio(bytes, names[n])
                printf " %*.2f", wide[n], x
                if (best == 0 || x < least) {
                    least = x
                    best = n
                }
            }
            printf " %7.2f  %s\n", least, names[best]
        }
    }' $arguments
for setting in $left; do
    echo "# $setting: $mpirun $(cat "$work/$setting.flags") $program --peer mpi -m $sizes" $few "$@"
done
cat "$work/out" 2>/dev/null
env | sort | sed -nE 's/^(OMPI_MCA_|UCX_|MALLOC_|TUTTI_)/# Environment: \1/p'
