#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Bad input soon ends the trainer on all ranks, with exactly one line that names the error. Each
# case runs with two ranks. Some cases run again with bad data on one rank only.
set -u

. "${0%/*}/common.sh"
need_trainer
need_mpirun

out=$work/out
log=$work/log
good=$work/good
bad=$work/bad
small "$good"
varied "$work/varied"

# prints a rank's exit status on a separate line, independent of the launcher
printf '#!/bin/sh\n"$@"\necho "status $?"\n' >"$work/rank"
chmod +x "$work/rank"
rank="$work/rank $trainer"

# judge NAME RANKS PATTERN: checks $out, $log and $status
judge() {
    lines=$(grep -c '^example_train: ' "$log")
    failed=$(grep -c '^status 1$' "$out")
    if [ "$status" -ne 0 ]; then
        wrong "$1: the launcher ended with $status" "$out" "$log"
    elif [ "$lines" -ne 1 ] || ! grep -q "^example_train: $3" "$log"; then
        wrong "$1: not one line '$3'" "$log"
    elif [ "$failed" -ne "$2" ] || grep -q accuracy "$out"; then
        wrong "$1: $failed of $2 ranks ended with status 1" "$out" "$log"
    fi
}

# reject PATTERN ARGUMENT...: runs two ranks with these arguments. There is no launcher, because it
# would take longer than the ranks themselves
reject() {
    pattern=$1
    shift
    export TUTTI_BOOT="local:bad-${work##*/}" TUTTI_SIZE=2
    TUTTI_RANK=1 timeout --kill-after=5 60 $rank "$@" >"$out.1" 2>"$log.1" &
    TUTTI_RANK=0 timeout --kill-after=5 60 $rank "$@" >"$out" 2>"$log"
    status=$?
    wait $! || status=$?
    unset TUTTI_BOOT TUTTI_SIZE
    cat "$out.1" >>"$out"
    cat "$log.1" >>"$log"
    judge "$*" 2 "$pattern"
}

# spoil NAME: makes a new copy of the good data without the file NAME, which the caller then makes
spoil() {
    rm -rf "$bad"
    cp -r "$good" "$bad"
    rm -f "$bad/$1" "$bad/$1.gz"
}

# options
reject '--batch 0: must be from 1' --batch 0
reject '--batch -3: must be from 1' --batch -3
reject '--batch x: not a whole number' --batch x
reject '--batch 12x: not a whole number' --batch=12x
reject '--batch 1.5: not a whole number' --batch 1.5
reject '--batch 99999999999999999999: must be' --batch 99999999999999999999
reject '--epochs 0: must be from 1' --epochs 0
reject '--lr nan: not a finite number' --lr nan
reject '--lr inf: not a finite number' --lr inf
reject '--lr 0.1y: not a finite number' --lr 0.1y
reject '--lr 0: must be from' --lr 0
reject '--momentum 1: must be from 0' --momentum 1
reject '--warmup -1: must be from 0' --warmup -1
reject '--hidden 8,,8: must be whole numbers' --hidden 8,,8
reject '--hidden 8,0: must be from 1' --hidden 8,0
reject '--schedule fast: must be cosine|step|constant' --schedule fast
reject '--model tree: must be mlp|cnn' --model tree
reject '--optimizer adam: must be sgd|adamw|lars|lamb' --optimizer adam
reject '--lr-scaling cube: must be linear|sqrt' --lr-scaling cube
reject '--channels 16,0: must be from 1' --channels 16,0
reject '--clip -1: must be from 0' --clip -1
reject '--accumulate 0: must be from 1' --accumulate 0
reject '--beta1 1: must be from 0' --beta1 1
reject '--decay 2: must be from 0 to 1' --decay 2
reject '--resume needs --checkpoint FILE' --resume
reject '--overwrite needs --checkpoint FILE' --overwrite
reject '--resume and --overwrite exclude each other' --overwrite --resume --checkpoint x
reject '--plot x.jpg: must end in .svg or .png' --data "$good" --batch 20 --plot x.jpg
reject '--seed  *1: not a whole number' --seed ' 1'
reject '--batch needs a value' --batch
reject '--data: is empty' --data ''
reject '--digest takes no value' --digest=1
reject '--channels needs --model cnn' --channels 2,2
reject '--trust needs --optimizer lars' --trust 0.1 --optimizer sgd
reject '--device gpu: must be cpu|cuda|auto' --device gpu
reject '--precision fp8: must be fp32|bf16|fp16' --precision fp8 --device cuda
reject '--precision needs --device cuda|auto' --precision fp32
reject 'unknown option --bach' --bach 3
reject 'unexpected argument 3' 3

# files
file=train-images-idx3-ubyte
reject "$work/nowhere/$file, .*: No such file .*Debian package dataset-fashion-mnist.* --data" \
    --data "$work/nowhere"
spoil $file
reject "$bad/$file, with or without .gz: No such file" --data "$bad"
spoil $file
mkdir "$bad/$file"
reject "$bad/$file: Is a directory" --data "$bad"
spoil $file
: >"$bad/$file"
reject "$bad/$file: truncated: ends after 0 of 16 bytes" --data "$bad"
spoil $file
images 20 4 | head -c 200 >"$bad/$file"
reject "$bad/$file: truncated: ends after 184 of 320 bytes" --data "$bad"
spoil $file
images 20 4 | gzip | head -c 24 >"$bad/$file.gz"
reject "$bad/$file.gz: truncated: ends after" --data "$bad"
spoil $file
{ images 20 4; echo; } >"$bad/$file"
reject "$bad/$file: goes on after the 320 bytes" --data "$bad"
spoil $file
{ images 20 4 | gzip | head -c -8; bytes 8 1; } >"$bad/$file.gz"
reject "$bad/$file.gz: incorrect data check" --data "$bad"
spoil $file
labels 20 3 >"$bad/$file"
reject "$bad/$file: magic number 0x00000801 instead of 0x00000803" --data "$bad"
spoil $file
images 0 4 >"$bad/$file"
reject "$bad/$file: is empty" --data "$bad"
spoil $file
images 20 4 | tail -c +9 | { printf '\0\0\010\003\377\377\377\377'; cat; } >"$bad/$file"
reject "$bad/$file: truncated: ends after 320 of 68719476720 bytes" --data "$bad"
spoil $file
images 20 4 | tail -c +13 | { printf '\0\0\010\003\0\0\0\001\377\377\377\377'; cat; } >"$bad/$file"
reject "$bad/$file: an image side of 4294967295 pixels" --data "$bad"
spoil $file
images 21 4 >"$bad/$file"
reject "$bad/train-labels-idx1-ubyte.gz: 20 labels, but there are 21 images" --data "$bad"

file=t10k-labels-idx1-ubyte
spoil $file
labels 7 10 >"$bad/$file"
reject "$bad/$file: label 0 is 10, outside 0 to 9" --data "$bad"
spoil $file
images 7 1 >"$bad/$file"
reject "$bad/$file: magic number 0x00000803 instead of 0x00000801" --data "$bad"
spoil $file
labels 7 3 | head -c 6 >"$bad/$file"
reject "$bad/$file: truncated: ends after 6 of 8 bytes" --data "$bad"

file=t10k-images-idx3-ubyte
spoil $file
images 7 5 >"$bad/$file"
reject "$bad: test images have 5x5 pixels, training images 4x4" --data "$bad"

# output files
for option in --metrics --log-steps --plot; do
    reject "rank 0: $option $work/nowhere/file.svg: No such file" --data "$good" --batch 20 \
        $option "$work/nowhere/file.svg"
done
reject "rank 0: --checkpoint $work/nowhere/file: No such file" --data "$good" --batch 20 \
    --checkpoint "$work/nowhere/file"
reject "rank 0: --checkpoint $work: not a file" --data "$good" --batch 20 --checkpoint "$work"

# options that do not suit the data
reject '--batch 21: there are only 20 training images' --data "$good" --batch 21
reject '--accumulate 3: with --batch 10 it needs 30 training images, there are 20' \
    --data "$good" --batch 10 --accumulate 3
reject 'images of 4x4 pixels are too small for 3 convolutions' --data "$good" --batch 20 \
    --model cnn --channels 1,1,1

# checkpoints
tiny="--data $work/varied --batch 45 --hidden 4"
by_mpirun "$out" "$out" $mpirun -np 2 "$trainer" $tiny --epochs 2 --checkpoint "$work/saved" \
    --overwrite
[ $status -eq 0 ] || wrong 'no checkpoint' "$out"

# resume PATTERN ARGUMENT...: a run that resumes from $work/saved must fail with this error
resume() {
    pattern=$1
    shift
    reject "rank 0: --resume $work/saved: $pattern" $tiny --epochs 2 --checkpoint "$work/saved" --resume "$@"
}

# some options must be given again, others must not be given; the error quotes both command lines
reject "rank 0: --resume $work/saved: made with '--hidden 4', which this run was not given" \
    --data "$work/varied" --batch 45 --epochs 2 --checkpoint "$work/saved" --resume
reject "rank 0: --resume $work/saved: made with '--epochs 2', which this run was not given: a cosine" \
    $tiny --checkpoint "$work/saved" --resume
resume "made with '--model mlp', but this run has '--model cnn'" --model cnn --channels 2,2
resume "made with '--optimizer sgd', but this run has '--optimizer lamb'" --optimizer lamb
resume "made with '--batch 45', but this run has '--batch 44'" --batch 44
resume "made with '--seed 1', but this run has '--seed 2'" --seed 2
resume "made with '--schedule cosine', but this run has '--schedule step'" --schedule step
resume "made with '--epochs 2', but this run has '--epochs 3': .* can be trained longer" --epochs 3
labels 11 3 >"$work/varied/t10k-labels-idx1-ubyte"
resume "made with other data: their checksum is [0-9a-f]*, this run's is [0-9a-f]*$"
varied "$work/varied"
timeout --kill-after=5 60 "$trainer" $tiny --epochs 2 --checkpoint "$work/saved" --resume \
    >"$out" 2>"$log" && wrong 'one rank takes the checkpoint of two' "$out"
grep -q "^example_train: --resume $work/saved: made by 2 ranks, but this run has 1\$" "$log" ||
    wrong 'ranks' "$log"
cp "$work/saved" "$work/whole"
head -c 700 "$work/whole" >"$work/saved"
resume 'truncated: 700 of [0-9]* bytes'
{ head -c 1000 "$work/whole"; printf '\252'; tail -c +1002 "$work/whole"; } >"$work/saved"
resume 'damaged: its checksum is wrong'
cp "$good/train-labels-idx1-ubyte.gz" "$work/saved"
resume 'not a checkpoint of example_train'
: >"$work/saved"
resume 'truncated: 0 of 72 bytes'
rm "$work/saved"
resume 'No such file'

# an existing file is not written to, unless the user requests it
cp "$work/whole" "$work/saved"
kept() {
    cmp -s "$1" "$work/saved" || wrong "not kept: $2"
}
reject "rank 0: --checkpoint $work/saved: holds a run after step 2, in epoch 2; --resume goes on" \
    $tiny --epochs 1 --checkpoint "$work/saved"
kept "$work/whole" 'a longer run'
head -c 50 "$work/whole" >"$work/half"
cp "$work/half" "$work/saved"
reject "rank 0: --checkpoint $work/saved: holds .* half of one; --overwrite replaces it" \
    $tiny --epochs 1 --checkpoint "$work/saved"
kept "$work/half" 'half a checkpoint'
echo text >"$work/text"
cp "$work/text" "$work/saved"
for overwrite in '' --overwrite; do
    reject "rank 0: --checkpoint $work/saved: holds something else; remove it first" \
        $tiny --epochs 1 --checkpoint "$work/saved" $overwrite
    kept "$work/text" 'another file'
done

# parameters that grow to infinity
reject 'the loss of step [0-9]* is [-naif]*; try a smaller --lr' \
    --data "$good" --batch 1 --reference-batch 1 --lr 1000 --weight-decay 1

# the last update makes the parameters so large that the test overflows: the checkpoint is not
# replaced
deep="--data $work/varied --batch 20 --hidden 64,64,64,64,64,64,64,64,64,64,64,64,64,64,64,64"
rm "$work/saved"
deep="$deep --steps 1 --warmup 0 --reference-batch 16 --checkpoint $work/saved --overwrite"
by_mpirun "$out" "$out" $mpirun -np 2 "$trainer" $deep --lr 0.01
[ $status -eq 0 ] || wrong 'no checkpoint' "$out"
cp "$work/saved" "$work/whole"
reject 'the test loss of epoch 1 is [-naif]*; try a smaller --lr' $deep --lr 1000
kept "$work/whole" 'a checkpoint of finite parameters'

# apart NAME PATTERN ARGUMENT...: runs rank 0 with good data, and rank 1 with these arguments; both
# have the same --batch
apart() {
    name=$1
    pattern=$2
    shift 2
    timeout --kill-after=5 60 $mpirun -np 1 $rank --data "$good" --batch 20 : \
        -np 1 $rank --batch 20 "$@" \
        >"$out" 2>"$log"
    status=$?
    judge "$name" 2 "$pattern"
}

apart 'data on one rank only' "rank 1: $work/nowhere/train-images" --data "$work/nowhere"
apart 'an option on one rank only' 'rank 1: unknown option --bach' --bach

# nothing is trained, so the results of an earlier run stay
for file in metrics steps; do
    echo old >"$work/$file"
done
timeout --kill-after=5 60 $mpirun -np 1 $rank --data "$good" --batch 20 \
    --metrics "$work/metrics" --log-steps "$work/steps" : \
    -np 1 $rank --batch 20 --data "$work/nowhere" >"$out" 2>"$log"
status=$?
judge 'data on one rank only, with old results' 2 "rank 1: $work/nowhere/train-images"
for file in metrics steps; do
    [ "$(cat "$work/$file")" = old ] || wrong "$file: the old results are lost" "$work/$file"
done

other="rank 1 has other options than rank 0:"
apart 'other options' "$other --seed 7 instead of --seed 1" --data "$good" --seed 7
apart 'another optimizer' "$other --optimizer adamw instead of --optimizer sgd" --data "$good" \
    --optimizer adamw
apart 'a digest on one rank only' "$other with --digest instead of without --digest" \
    --data "$good" --digest
spoil t10k-labels-idx1-ubyte
labels 7 4 >"$bad/t10k-labels-idx1-ubyte"
apart 'a checkpoint on one rank only' "$other with --checkpoint instead of without" --data "$good" \
    --checkpoint "$work/one"
apart 'other data' 'rank 1 has other data than rank 0' --data "$bad"

[ "$errors" -eq 0 ]
