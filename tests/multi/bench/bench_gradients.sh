#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# bench/tutti_gradients: the models' lists as published, correct results with the same bits, clear
# refusals.
set -u
. "$srcdir/tests/multi/bench/bench_common.sh"

bench=bench/tutti_gradients
small="--scale 1000 -c -x 0 --rounds 2 --orders 2"
figures="( $number){4}( +-| $number){3}"

# counts MODEL TENSORS ELEMENTS FIRST LAST: checks the model's list, in the order of backward.
counts()
{
    case $1 in
    [0-9]*) ran $bench --list --tensors "$1" ;;
    *) ran $bench --list --model "$1" ;;
    esac
    head=$(sed -n 1p "$log")
    [ $status -eq 0 ] && [ "$head" = "# $1: $2 gradients, $3 elements, $(($3 * 4)) bytes" ] ||
        wrong "$1: status $status, $head"
    # Names are unique, the sum of elements is correct, and ready times are ascending.
    awk -v n="$2" -v elements="$3" -v first="$4" -v last="$5" '
        /^#/ { next }
        { rows++; sum += $2; twice += seen[$3]++; back += $1 < before; before = $1; name = $3 }
        rows == 1 { start = name }
        END { exit !(rows == n && sum == elements && !twice && !back && before == 1 &&
                     start == first && name == last) }' "$log" || wrong "$1: its list"
}

# row MODEL TENSORS CONTESTANT BITS: the results must be correct, and BITS must be in the last
# column.
row()
{
    grep -qE "^$1 +$2 +[0-9]+ +$3$figures +Pass +$4\$" "$log" || wrong "$1, $3: $command"
}

# all_models FLAG...
all_models()
{
    command="$launch $bench $small --model all $*"
    ran $command
    [ $status -eq 0 ] || wrong "$command: status $status"
    while read -r model tensors; do
        row $model $tensors tutti Yes
        [ -n "$launch" ] || continue
        row $model $tensors mpi-per-tensor "(Yes|No)"
        row $model $tensors mpi-fused "(Yes|No)"
        grep -q "^# $model: Tutti takes [0-9.]* (.*) of the time of mpi-" "$log" ||
            wrong "$model: no word on the better peer"
    done <<END
resnet50 161
bert-large 391
gpt2 148
END
}

# every_contestant MODEL TENSORS FLAG...: the results of all contestants must be correct. Only
# Tutti's results must have the same bits.
every_contestant()
{
    model=$1
    tensors=$2
    shift 2
    command="$launch $bench --peer all -c -x 0 --rounds 2 --orders 2 $*"
    ran $command
    [ $status -eq 0 ] || wrong "$command: status $status"
    row $model $tensors tutti Yes
    row $model $tensors tutti-start Yes
    [ -n "$mpirun" ] || return
    for peer in mpi-per-tensor mpi-fused mpi-cycle; do
        row $model $tensors $peer "(Yes|No)"
    done
}

counts 9x100 9 225 tensor.8 tensor.0
counts resnet50 161 25557032 fc.bias conv1.weight
counts bert-large 391 335141888 pooler.dense.bias embeddings.word_embeddings.weight
counts gpt2 148 124439808 transformer.ln_f.bias transformer.wte.weight
ran $bench --list --model gpt2 --scale 1000000
grep -q ' 1  transformer.ln_f.bias$' "$log" || wrong "--scale: at least one element"

launch=
ran $bench -h
[ $status -eq 0 ] && grep -q -e '--backward MS' "$log" || wrong help
ran $bench $small --alone -T bfloat16 --csv -
[ $status -eq 0 ] && [ "$(grep -c '^resnet50,51190,tutti,2,' "$log")" -eq 1 ] || wrong "--csv -"
misuse '--model vgg: want resnet50' $bench --model vgg
for tensors in 5 x4 0x4 5x 5x0 2Mx4 1x2G 3x4x5 -1x4; do
    misuse "--tensors $tensors: want NxBYTES" $bench --tensors $tensors
done
misuse '--tensors: not with --model' $bench --tensors 10x1K --model all
for cycle in -1 1001 x 1ms nan; do
    misuse "--cycle $cycle: want milliseconds" $bench --cycle $cycle
done
misuse '--peer vgg: not known' $bench --peer vgg
misuse '--peer mpi: not known' $bench --peer mpi
misuse '--peer : not known' $bench --peer tutti-start,
misuse '--peer tutti: not known' $bench --peer tutti
misuse '--peer nccl-fused: only with -d' $bench --peer nccl-fused
misuse '--alone: not with --peer' $bench --peer tutti-start --alone
misuse '--random: not with --backward' $bench --random --backward 1
misuse '--average: only with -T float32 or float64' $bench --average -T int32
misuse '--average: not with -d' $bench --average -d cuda
misuse '--type char: not known' $bench -T char
misuse '--rounds 0: want a number from 1' $bench --rounds 0
misuse '--scale 0: want' $bench --scale 0
misuse '--fusion 4G: want' $bench --fusion 4G
misuse '--backward -1: want' $bench --backward -1
misuse '--backward: wants a value' $bench --backward
misuse '--buffers rotate: want private or shared' $bench --buffers rotate
misuse '--spoil: only with -c' $bench --spoil
misuse '-q: unknown option' $bench -q
misuse '--quick: unknown option' $bench --quick
misuse 'more: unexpected argument' $bench more
for flag in csv json; do
    refuses "tutti_gradients: --$flag.*\(No such file\|without jansson\)" \
        $bench --scale 1000 --alone --$flag /nowhere/a
    ! grep -q '^# Model' "$log" || wrong "--$flag: refused after measuring"
done

if [ -z "$mpirun" ]; then
    every_contestant 100x1K 100 --tensors 100x1K --random
    misuse '--peer mpi-cycle: built without MPI' $bench --peer mpi-cycle
    finish
fi
misuse '--peer mpi-cycle: not with -d' $bench --peer mpi-cycle -d cuda
misuse '--peer mpi-cycle: MPI does not have this type' $bench --peer mpi-cycle -T bfloat16
# A job of one rank exchanges no data.
ran $mpirun -np 1 $bench --tensors 3x24 --rounds 2 --orders 0
[ $status -eq 0 ] && grep -q ' mpi-fused ' "$log" && ! grep -q 'Tutti takes' "$log" ||
    wrong "a share of a peer's time with one rank: status $status"
grep -q '^# Ranks: 1 on 1 host(s)$' "$log" || wrong "the number of ranks"

few="1 2 3"
more="2 3"
is_long "1 and 3 ranks of some jobs, 2 of others" || { few=2 more=3; }
for ranks in $few; do
    launch="$mpirun -np $ranks"
    # 65 tensors need two words of a bit vector. A buffer of 4000 bytes has 3 tensors.
    every_contestant 65x1K 65 --tensors 65x1K --random --fusion 4000 --cycle 0.1
    every_contestant resnet50 161 --scale 1000 --random --average --fusion 8K --spin
done
every_contestant 3x24 3 --tensors 3x24 --average -T float64 --align 8+1 --cycle 0
# Both ranks wait for the next cycle, which begins 0 to 1 s after the submission.
ran $mpirun -np 2 $bench --tensors 1x4 --peer mpi-cycle --cycle 1000 --orders 0 --warm 0 -x 0 \
    --rounds 3
median=$(awk '/^1x4 .* mpi-cycle / { print int($5) }' "$log")
[ "${median:-0}" -ge 10 ] || wrong "--cycle 1000: ${median:-no} ms"

for ranks in $more; do
    launch="$mpirun -np $ranks"
    all_models
    refuses '^DATA VALIDATION ERROR in resnet50' $launch $bench $small --spoil --peer all --average
    for contestant in tutti tutti-start mpi-per-tensor mpi-fused mpi-cycle; do
        grep -qE "^resnet50 .* $contestant .* Fail +No\$" "$log" || wrong "$contestant: --spoil"
    done
    refuses '^DATA VALIDATION ERROR in resnet50' $launch $bench $small --spoil
    grep -qE '^resnet50 .* tutti .* Fail +No$' "$log" || wrong "--spoil is not seen"
done

launch="$mpirun -np 2"
all_models --buffers shared -T float64 --fusion 4K --seed 7
# MPI has no bfloat16, so this run has no peers. No tensor is ready before its time.
ran $launch $bench $small -T bfloat16 --backward 40
[ $status -eq 0 ] && ! grep -q ' mpi-' "$log" || wrong "bfloat16: status $status"
median=$(awk '/^resnet50 / { print int($5) }' "$log")
[ "${median:-0}" -ge 40 ] || wrong "--backward 40: ${median:-no} ms"
finish
