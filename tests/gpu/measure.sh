#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Measures Tutti on this machine's GPUs, in less than 8 minutes, and prints tables:
#
#     pack      packing and unpacking gradients next to the device's own copies
#     direct    allreduce of 8 B to 64 MiB next to NCCL, blocking and in a stream
#     hosts     two and four pretended hosts, with a GPU each if there are enough GPUs
#     ways      two pretended hosts of two or more GPUs each, if there are enough: small allreduces
#               by NCCL and in host memory, next to the estimates of lib/coll/device_cost.c
#     lists     all gradients of three networks, next to NCCL
#     train     the trainer's accuracy and speed, next to two processors
#
# usage: measure.sh [--quick] BUILD [PART...]. It builds nothing and needs no launcher. BUILD is a
# folder in which `make all-programs` was run. --quick: small sizes, as a check. If a step fails,
# the other steps still run, and the script ends with 1.
set -u

here=$(cd "$(dirname "$0")" && pwd)
quick=
if [ "${1:-}" = --quick ]; then
    quick=1
    shift
fi
if [ $# -lt 1 ]; then
    sed -n '4,16s/^# \{0,1\}//p' "$0"
    exit 2
fi
cd "$1" || exit 2
shift
parts=${*:-pack direct hosts ways lists train}
spread=1 # a GPU runs the processes that share it alternately, and this must not be measured
export TUTTI_MODULE_DIR="${TUTTI_MODULE_DIR:-$PWD/tutti/.libs}" TUTTI_TUNED=none
. "$here/common.sh"
need_device

most=64M
small=64K
ways_most=4M
blocks=67108864
lists=all
times=
long_list=
length="--epochs 1"
began=$(date +%s)
peers="--peer nccl"
alone=
if [ "$nccl" = 0 ]; then
    echo "# no NCCL"
    peers=--stats
    alone=--alone
fi
if [ -n "$quick" ]; then
    most=64
    small=64
    ways_most=512K
    blocks="64 2"
    times="-i 4 -x 1 --rounds 2"
    lists=resnet50
    long_list="--scale 1000"
    length="--steps 5 --epochs 1"
fi

# in_time SECONDS WHAT: sets limit to SECONDS, or to the rest of 8 minutes if this is less; fails if
# no time is left. A check (--quick) may run beside much other work, so its limit is four times as
# long.
in_time()
{
    left=$((470 - $(date +%s) + began))
    limit=$1
    [ -z "$quick" ] || limit=$((4 * limit))
    [ $left -ge "$limit" ] || limit=$left
    [ $left -gt 0 ] || wrong "no time left for $2"
    [ $left -gt 0 ]
}

# step SECONDS N HOSTS COMMAND...: runs the command on N ranks (see ranks), each with a time limit.
step()
{
    limit=$1
    many=$2
    where=$3
    shift 3
    in_time "$limit" "$*" || return 0
    echo
    echo "## $many rank(s), $where host: ${NCCL_COMM_BLOCKING:+NCCL_COMM_BLOCKING=1 }$*"
    ranks "$many" "$where" timeout --kill-after=5 $limit "$@" || wrong "$*: status $?"
}

pack()
{
    for type in float32 bfloat16; do
        for model in resnet50 bert-large; do
            step 60 1 one bench/tutti_pack -d "$device" --model $model -T $type -c $long_list \
                ${quick:+--rounds 1 -i 1}
        done
    done
}

# direct_of N: measures N ranks with a GPU each. Small calls also run with blocking communicators,
# for which NCCL starts no threads.
direct_of()
{
    step 60 "$1" one bench/tutti_allreduce -d "$device" -c -m 8:$most $peers $times
    step 60 "$1" one env TUTTI_DEVICE="$device" tests/gpu/stream measure $blocks
    [ "$nccl" = 1 ] || return 0
    export NCCL_COMM_BLOCKING=1
    step 30 "$1" one bench/tutti_allreduce -d "$device" -c -m 8:$small $peers $times
    step 30 "$1" one env TUTTI_DEVICE="$device" tests/gpu/stream measure 8 ${quick:+2}
    unset NCCL_COMM_BLOCKING
}

direct()
{
    direct_of 1
    [ "$gpus" -lt 2 ] || direct_of "$gpus"
}

hosts()
{
    for many in 2 4; do
        hosts_most=$most
        if [ "$gpus" -lt $many ]; then
            echo "# $many hosts take turns on $gpus GPU(s): right, but slow"
            hosts_most=$ways_most
        fi
        step 60 $many apart bench/tutti_allreduce -d "$device" -c -m "8:$hosts_most" -i 50 \
            --peer async $times
    done
}

# way EACH STAGED FILE: measures an allreduce on two hosts of EACH ranks, with
# TUTTI_DEVICE_STAGED_BYTES=STAGED; rank 0's output goes to FILE.
way()
{
    each=$1
    in_time 40 "ways $2" || return 0
    # Each rank expands the variables of its command.
    # shellcheck disable=SC2016
    ranks $((2 * each)) one env EACH="$each" TUTTI_DEVICE_STAGED_BYTES="$2" TUTTI_LOG=info \
        timeout --kill-after=5 $limit sh -c 'TUTTI_HOST_ID=host$((TUTTI_RANK / EACH)) exec "$@"' sh \
        bench/tutti_allreduce -d "$device" -c -m "8:$ways_most" $times >"$3" 2>&1 && return
    cat "$3"
    wrong "ways of $each, $2: status $?"
}

# Measures with forced values of TUTTI_DEVICE_STAGED_BYTES, and finally with the library's own
# choice.
ways_of()
{
    for staged in 0 16G auto; do
        way "$1" $staged "$work/ways.$staged"
    done
    echo
    echo "## 2 hosts of $1 rank(s), us"
    printf '# %-10s %12s %12s %12s  %s\n' Size Device Staged Chosen Cheaper
    awk '
        FNR == 1 { file++ }
        /^[0-9]+ / {
            us[file, $1] = $2
            if (file == 1)
                size[n++] = $1
        }
        END {
            for (i = 0; i < n; i++) {
                s = size[i]
                printf "%-12d %12s %12s %12s  %s\n", s, us[1, s], us[2, s], us[3, s],
                    us[1, s] <= us[2, s] ? "device" : "staged"
            }
        }
    ' "$work/ways.0" "$work/ways.16G" "$work/ways.auto"
    sed -n 's/.*info: \(allreduce of .*by cost: \)/# \1/p' "$work/ways.auto"
}

ways()
{
    if [ "$gpus" -lt 4 ] || [ "$nccl" = 0 ]; then
        echo "# NCCL, and a GPU for each rank of two hosts, are not here"
        return
    fi
    ways_of 2
    [ "$gpus" -lt 6 ] || ways_of $((gpus / 2))
}

lists()
{
    flags="-d $device --model $lists -c $long_list --rounds 5"
    step 100 1 one bench/tutti_gradients $flags $alone
    [ "$gpus" -lt 2 ] || step 100 "$gpus" one bench/tutti_gradients $flags $alone
    step 100 2 apart bench/tutti_gradients $flags --alone
}

# trained N MODEL LABEL COMMAND...: runs the trainer, and prints its row of the table.
trained()
{
    many=$1
    model=$2
    label=$3
    shift 3
    in_time 90 "$model $label" || return 0
    if ! ranks "$many" one timeout --kill-after=5 $limit "$@" --model $model $length \
        ${TUTTI_TEST_DATA:+--data "$TUTTI_TEST_DATA"} >"$work/train" 2>&1; then
        cat "$work/train"
        wrong "$model $label $many: $*"
        return
    fi
    awk -v model="$model" -v label="$label" -v many="$many" '
        / images\/s / {
            for (i = 2; i <= NF; i++) {
                if ($i == "images/s")
                    speed = $(i - 1)
            }
        }
        /^test accuracy / { accuracy = $3 }
        END { printf "%-6s %-12s %6d %10s %10s\n", model, label, many, accuracy, speed }
    ' "$work/train"
}

train()
{
    trainer=${EXAMPLE_TRAIN:-examples/example_train}
    pin=
    if taskset -c 0,1 true 2>/dev/null; then
        pin="taskset -c 0,1"
    fi
    echo
    echo "## $trainer $length"
    printf '# %-4s %-12s %6s %10s %10s\n' Model Computes Ranks Accuracy Images/s
    for model in mlp cnn; do
        trained 2 $model "2 cores" $pin "$trainer"
        [ "$device" != pretend ] || continue
        for precision in fp32 bf16 fp16; do
            for many in 1 $([ "$gpus" -lt 2 ] || echo "$gpus"); do
                trained "$many" $model "$device $precision" "$trainer" --device cuda \
                    --precision $precision
            done
        done
    done
}

echo "# $(uname -n), $(nproc) processors; $(sed -n 's/^model name.*: //p;T;q' /proc/cpuinfo)"
nvidia-smi --query-gpu=index,name,memory.total,driver_version --format=csv,noheader 2>/dev/null |
    sed 's/^/# GPU /'
for part in $parts; do
    echo
    echo "==== $part"
    case $part in
    pack | direct | hosts | ways | lists | train) $part ;;
    *) wrong "there is no part $part" ;;
    esac
done
echo
echo "# $(($(date +%s) - began)) s, $errors steps failed"
finish
