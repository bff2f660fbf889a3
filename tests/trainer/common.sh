# SPDX-License-Identifier: BSD-3-Clause
#
# For the trainer's shell tests, which run in the build folder: the trainer's path, functions that
# start ranks, and small data. If a requirement is missing, the test is skipped.

. "$srcdir/tests/long.sh"
. "$srcdir/tests/repeat.sh"

trainer=${EXAMPLE_TRAIN:-./examples/example_train}
fashion=/usr/share/datasets/fashion-mnist
errors=0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

need_trainer() {
    if ! test -x "$trainer"; then
        echo "no $trainer: OpenBLAS or zlib is missing"
        exit 77
    fi
}

# After this call leaks are ignored. Open MPI leaks memory in modules that it unloads, so
# suppressions cannot name these leaks. Tests without a launcher check for leaks.
need_mpirun() {
    if ! command -v "${MPIRUN:-mpirun}" >/dev/null 2>&1; then
        echo "no mpirun"
        exit 77
    fi
    export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
    mpirun=${MPIRUN:-mpirun}
    case $($mpirun --version 2>&1) in
    *"Open MPI"* | *OpenRTE*) mpirun="$mpirun --oversubscribe --mca mpi_yield_when_idle 1" ;;
    esac
}

need_fashion() {
    if ! test -e "$fashion/train-images-idx3-ubyte.gz"; then
        echo "no data: Debian package dataset-fashion-mnist"
        exit 77
    fi
}

# wrong WHAT [FILE...]: counts an error and shows the files
wrong() {
    echo "wrong: $1"
    shift
    for shown; do
        sed "s/^/    ${shown##*/}: /" "$shown"
    done
    errors=$((errors + 1))
}

# fake_gnuplot COMMANDS: makes $work/bin/gnuplot from shell commands
fake_gnuplot() {
    mkdir -p "$work/bin"
    printf '#!/bin/sh\n%s\n' "$1" >"$work/bin/gnuplot"
    chmod +x "$work/bin/gnuplot"
}

# byte VALUE; bytes COUNT VALUE: COUNT equal bytes
byte() {
    printf "\\$(printf %03o "$1")"
}

bytes() {
    head -c "$1" /dev/zero | tr '\0' "\\$(printf %03o "$2")"
}

# images_head COUNT SIDE, labels_head COUNT: the head of an IDX file; all numbers must be below
# 65536
images_head() {
    printf '\0\0\010\003'
    number "$1"
    number "$2"
    number "$2"
}

labels_head() {
    printf '\0\0\010\001'
    number "$1"
}

number() {
    printf '\0\0'
    byte $(($1 / 256))
    byte $(($1 % 256))
}

# images COUNT SIDE, labels COUNT VALUE: an IDX file on stdout
images() {
    images_head "$1" "$2"
    bytes $(($1 * $2 * $2)) 85
}

labels() {
    labels_head "$1"
    bytes "$1" "$2"
}

# small FOLDER: makes data of 20 and 7 images with 4 x 4 pixels, two of the files gzipped
small() {
    mkdir -p "$1"
    images 20 4 >"$1/train-images-idx3-ubyte"
    labels 20 3 | gzip >"$1/train-labels-idx1-ubyte.gz"
    images 7 4 | gzip >"$1/t10k-images-idx3-ubyte.gz"
    labels 7 3 >"$1/t10k-labels-idx1-ubyte"
}

# varied FOLDER [COUNT]: makes data of COUNT (45) and 11 images with 8 x 8 pixels. All images
# differ, and each call makes the same images
varied() {
    mkdir -p "$1"
    set -- "$1" "${2:-45}"
    { images_head "$2" 8; noise $(($2 * 64)) 1; } >"$1/train-images-idx3-ubyte"
    { labels_head "$2"; noise "$2" 2 10; } >"$1/train-labels-idx1-ubyte"
    { images_head 11 8; noise 704 3; } >"$1/t10k-images-idx3-ubyte"
    { labels_head 11; noise 11 4 10; } >"$1/t10k-labels-idx1-ubyte"
}

# noise COUNT SEED [LIMIT]: bytes from a linear congruential generator, below LIMIT
noise() {
    printf "$(awk -v count="$1" -v x="$2" -v limit="${3:-256}" 'BEGIN {
        for (i = 0; i < count; i++) {
            x = (x * 16807 + 12345) % 2147483647
            printf "\\%03o", int(x / 2147483647 * limit)
        }
    }')"
}

# epochs_of FILE: prints the number of epochs in a checkpoint, or 0 if there is no checkpoint
epochs_of() {
    if [ -e "$1" ]; then
        od -A n -t u8 -j 32 -N 8 "$1" | tr -d ' '
    else
        echo 0
    fi
}
