#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# bench/tutti_gradients: lists as published, correct results with the same bits, clear refusals.
set -u
. "$srcdir/tests/multi/bench/bench_common.sh"

bench=bench/tutti_gradients
small="--scale 1000 -c -x 0 --rounds 2 --orders 2"
figures="( $number){4}( +-| $number){3}"

# counts MODEL TENSORS ELEMENTS FIRST LAST: the content of its list, in the order of backward.
counts()
{
    ran $bench --list --model "$1"
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

# row MODEL TENSORS CONTESTANT BITS: all correct, and the bits of its results.
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
refuses '--model vgg: want resnet50' $bench --model vgg
refuses '--type char: not known' $bench -T char
refuses '--rounds 0: want a number from 1' $bench --rounds 0
refuses '--scale 0: want' $bench --scale 0
refuses '--fusion 4G: want' $bench --fusion 4G
refuses '--backward -1: want' $bench --backward -1
refuses '--backward: wants a value' $bench --backward
refuses '--buffers rotate: want private or shared' $bench --buffers rotate
refuses '--spoil: only with -c' $bench --spoil
refuses '-q: unknown option' $bench -q
refuses '--quick: unknown option' $bench --quick
refuses 'more: unexpected argument' $bench more
refuses '--csv /nowhere/a: cannot be written' $bench --scale 1000 --csv /nowhere/a

[ -n "$mpirun" ] || finish
for ranks in 2 3; do
    launch="$mpirun -np $ranks"
    all_models
    refuses '^DATA VALIDATION ERROR in resnet50' $launch $bench $small --spoil
    grep -qE '^resnet50 .* tutti .* Fail +No$' "$log" || wrong "--spoil is not seen"
done

launch="$mpirun -np 2"
all_models --buffers shared -T float64 --fusion 4K --seed 7
# MPI has no bfloat16, so there are no peers; and no tensor is ready before its time.
ran $launch $bench $small -T bfloat16 --backward 40
[ $status -eq 0 ] && ! grep -q ' mpi-' "$log" || wrong "bfloat16: status $status"
median=$(awk '/^resnet50 / { print int($5) }' "$log")
[ "${median:-0}" -ge 40 ] || wrong "--backward 40: ${median:-no} ms"
finish
