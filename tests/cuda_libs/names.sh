# SPDX-License-Identifier: BSD-3-Clause
#
# Sourced in the build folder by scripts that use the pretended libraries of CUDA.

cuda_libs=$PWD/tests/.libs/cuda_libs.so

# has_cuda_libs: were these libraries and the module built?
has_cuda_libs() {
    test -e "$TUTTI_MODULE_DIR/cuda.so" && test -e "$cuda_libs"
}

# use_cuda_libs FOLDER: makes links to the pretended libraries in FOLDER, under their names.
# Programs that start after this use them, even if the real libraries are installed.
use_cuda_libs() {
    for name in libcuda.so.1 libcudart.so.12 libcudart.so.13 libcublas.so.12 libcublas.so.13 \
        libnccl.so.2; do
        ln -s "$cuda_libs" "$1/$name"
    done
    export LD_LIBRARY_PATH="$1${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}
