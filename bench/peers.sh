#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Compares Tutti with Open MPI, MPICH and UCC under each of their settings. Prints the quotient of
# their time and Tutti's, and which setting is the fastest. Start it in the build folder, where
# bench/ has the programs.
#
# usage: peers.sh [OPTION...] [-- FLAG...]
#
#     -n RANKS          2
#     --settings LIST   all; separated by commas, a+b is both at once
#     --sizes MIN:MAX   8:64M
#     --program NAME    tutti_allreduce; or a path
#     --mpich DIR       a build folder with MPICH: its settings too, as mpich and mpich-...
#     --passes N        3; all settings once in each, in an order drawn anew
#     --quick           the same as -- -i 50 -x 5
#     --list            the settings' names, and nothing is run
#     -h                this
#
# FLAGs go to the program. MPIRUN is the launcher, perhaps with options (default mpirun). MPICHRUN
# is the launcher for --mpich (default mpiexec.hydra).
set -u

ranks=2
settings=
sizes=8:64M
program=tutti_allreduce
passes=3
few=
list=
mpich=
mpirun=${MPIRUN:-mpirun}
mpichrun=${MPICHRUN:-mpiexec.hydra}

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
    -n | --settings | --sizes | --program | --mpich | --passes)
        [ $# -ge 2 ] || fail "$1: a value is missing"
        case $1 in
        -n) number "$1" "$2" && ranks=$2 ;;
        --settings) settings=$(echo "$2" | tr ',' ' ') ;;
        --sizes) sizes=$2 ;;
        --program) program=$2 ;;
        --mpich) mpich=$2 ;;
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

# kind_of LAUNCHER: openmpi, mpich, or nothing.
kind_of() {
    case $($1 --version 2>&1) in
    *"Open MPI"* | *OpenRTE*) echo openmpi ;;
    *HYDRA*) echo mpich ;;
    esac
}

kind=$(kind_of "$mpirun")
[ -n "$kind" ] || fail "$mpirun: neither Open MPI's nor MPICH's"
if [ -n "$mpich" ]; then
    mpich_program=$mpich/bench/${program##*/}
    [ -x "$mpich_program" ] || fail "--mpich: there is no $mpich_program"
    [ "$(kind_of "$mpichrun")" = mpich ] || fail "$mpichrun: not MPICH's; set MPICHRUN"
fi

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

collective=$(echo "${program##*/}" | sed 's/^tutti_//')

# A barrier has no sizes.
range="-m $sizes"
[ "$collective" != barrier ] || range=

# Open MPI's parameter that chooses the algorithm of the measured collective.
case $collective in
allreduce_async) parameter=coll_libnbc_iallreduce_algorithm ;;
broadcast) parameter=coll_tuned_bcast_algorithm ;;
*) parameter=coll_tuned_${collective}_algorithm ;;
esac
dynamic=
case $parameter in
coll_tuned_*) dynamic="--mca coll_tuned_use_dynamic_rules 1 " ;;
esac

# "NUMBER:NAME" of each algorithm. The list comes from ompi_info, because it differs between
# versions. 0 is Open MPI's own choice.
info=ompi_info
case ${mpirun%% *} in
*/*) info=${mpirun%% *} && info=${info%/*}/ompi_info ;;
esac
algorithms=
if [ $kind = openmpi ]; then
    algorithms=$("$info" --parsable --param coll all --level 9 2>/dev/null |
        sed -n "s/.*:param:$parameter:enumerator:value:\([1-9][0-9]*:.*\)/\1/p" | sort -nu)
    [ -n "$algorithms" ] ||
        echo "# Left out: the algorithms: $info does not tell those of $parameter" >"$work/out"
fi

# UCC and MPICH have no program that lists their algorithms. The names below are those of UCC 1.3
# and MPICH 4.0.
ucc=
mpichs="default ucx-cma glibc"
case $collective in
allreduce)
    ucc="ucc ucc-posix ucc-knomial ucc-sra_knomial"
    mpichs="default recursive_doubling reduce_scatter_allgather ucx-cma glibc"
    ;;
*) ucc="ucc ucc-posix" ;;
esac
"$program" --peer ucc --version >/dev/null 2>&1 || ucc=

case $kind in
openmpi)
    offered="default $(echo "$algorithms" | sed 's/.*://' | tr '\n' ' ')"
    offered="$offered ucx-cma ucx-posix glibc yield"
    ;;
mpich) offered=$mpichs ;;
esac
offered="$offered $ucc"
[ -z "$mpich" ] || offered="$offered $(echo " $mpichs" | sed 's/ / mpich-/g; s/-default//')"

# with VARIABLE VALUE: prints the flag that sets a variable, for the launcher of $of.
with() {
    case $of in
    openmpi) echo "-x $1=$2" ;;
    mpich) echo "-genv $1 $2" ;;
    esac
}

# flags_of PART: prints the flags for a part of a setting, for the launcher of $of.
flags_of() {
    case $of:$1 in
    *:default) ;;
    # Temporary buffers stay mapped, instead of new pages in each call.
    *:glibc) echo "$(with MALLOC_TOP_PAD_ 1073741824) $(with MALLOC_MMAP_THRESHOLD_ 1073741824)" ;;
    *:ucc) with UCX_TLS self,posix,cma ;;
    *:ucc-posix) with UCX_TLS self,posix ;;
    *:ucc-*)
        echo "$(with UCX_TLS self,posix,cma) $(with UCC_TL_UCP_TUNE "$collective:@${1#ucc-}:inf")"
        ;;
    # Without pml_ucx_tls, Open MPI refuses UCX on a machine without InfiniBand.
    openmpi:ucx-cma) echo "--mca pml ucx --mca pml_ucx_tls any $(with UCX_TLS self,posix,cma)" ;;
    openmpi:ucx-posix) echo "--mca pml ucx --mca pml_ucx_tls any $(with UCX_TLS self,posix)" ;;
    openmpi:yield) echo "--mca mpi_yield_when_idle 1" ;;
    openmpi:*) echo "$dynamic--mca $parameter $(echo "$algorithms" | sed -n "s/:$1\$//p")" ;;
    # MPICH's own shared memory cannot copy directly from process to process.
    mpich:ucx-cma) echo "$(with MPIR_CVAR_NOLOCAL 1) $(with UCX_TLS self,posix,cma)" ;;
    mpich:*) with MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM "$1" ;;
    esac
}

# elsewhere PART: is this a setting of --mpich?
elsewhere() {
    [ -n "$mpich" ] || return
    case $1 in
    mpich | mpich-*) ;;
    *) false ;;
    esac
}

# command_of SETTING: prints the command of a setting whose parts are valid.
command_of() {
    if elsewhere "$1"; then
        of=mpich
        launch="$mpichrun -n $ranks"
        runs=$mpich_program
    else
        of=$kind
        launch="$mpirun --oversubscribe -np $ranks"
        [ $of = openmpi ] || launch="$mpirun -n $ranks"
        runs=$program
    fi
    peer=mpi
    for part in $(echo "$1" | tr '+' ' '); do
        case $part in
        ucc | ucc-*) peer=ucc ;;
        esac
        elsewhere "$part" && part=${part#mpich} && part=${part#-}
        launch="$launch $(flags_of "${part:-default}")"
    done
    echo "$launch $runs --peer $peer" | sed 's/  */ /g'
}

if [ -z "$settings" ]; then
    settings=$offered
    for name in segmented_ring rabenseifner; do
        case $offered in
        *" $name "*) settings="$settings glibc+$name" ;;
        esac
    done
    [ -z "$ucc" ] || settings="$settings glibc+ucc"
fi
for setting in $settings; do
    theirs=
    for part in $(echo "$setting" | tr '+' ' '); do
        case " $(echo $offered) " in
        *" $part "*) ;;
        *) fail "no setting '$part' for ${program##*/}; there are: $(echo $offered)" ;;
        esac
        elsewhere "$part" && theirs="${theirs}m" || theirs="${theirs}o"
    done
    case $theirs in
    *mo* | *om*) fail "$setting: not in one run; with mpich go mpich-..., such as mpich-glibc" ;;
    esac
    command_of "$setting" >"$work/$setting.command"
done
if [ -n "$list" ]; then
    echo $settings
    exit
fi

# run SETTING PASS FLAG...: writes $work/SETTING.PASS. Fails if the setting did not run, or ran with
# another transport: UCX replaces a transport that it does not have.
run() {
    setting=$1
    pass=$2
    shift 2
    $(cat "$work/$setting.command") $range $few "$@" \
        --csv "$work/$setting.$pass" >"$work/log" 2>&1 </dev/null &&
        ! grep -q 'is not available' "$work/log"
}

# why: prints the line of the log that best explains a failure.
why() {
    for text in 'is not available' 'MPI_ERR_[A-Z_]*:' 'cannot be' 'was not found' '--peer' 'rror' \
        '[a-z]'; do
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
    echo "peers.sh: no setting ran" >&2
    exit 1
fi

echo "# Peer/Tutti by the peer's setting: median of $passes; above 1, Tutti is faster"
sed -n '/^# Host:/s/; seed.*//p' "$first"
# version LAUNCHER
version() {
    $1 --version 2>&1 | sed -n '/HYDRA/d; s/^ *Version: */MPICH /; s/^/# MPI: /p; q'
}
version "$mpirun"
[ -z "$mpich" ] || version "$mpichrun"
home=$(for setting in $left; do elsewhere "$setting" || echo "$setting"; done)
awk -F, -v home="$(echo $home)" '
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
    BEGIN {
        for (i = split(home, list, " "); i > 0; i--)
            here[list[i]]
    }
    FNR == 1 && !(setting in known) { known[setting]; names[++nnames] = setting }
    /^program,/ { for (i = 1; i <= NF; i++) column[$i] = i; next }
    /^#/ { next }
    $column["contestant"] == "Tutti" {
        bytes = $column["bytes"]
        if (!(bytes in seen))
            sizes[++nsizes] = bytes
        seen[bytes]
        if (home == "" || setting in here)
            tutti[bytes, ++times[bytes]] = $column["median_us"]
        next
    }
    $column["contestant"] == "MPI" || $column["contestant"] == "UCC" {
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
    echo "# $setting: $(cat "$work/$setting.command")" $range $few "$@"
done
cat "$work/out" 2>/dev/null
env | sort | sed -nE '/^TUTTI_JOB_SECRET=/d; s/^(OMPI_MCA_|MPIR_CVAR_|UCC_|UCX_|MALLOC_|TUTTI_)/# Environment: \1/p'
