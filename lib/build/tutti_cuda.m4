# SPDX-License-Identifier: BSD-3-Clause
#
# What the CUDA module is built with: nvcc for the kernels, headers of CUDA and NCCL for the rest.
# It links neither, and no GPU is needed to build it.

# TUTTI_CUDA_TRY: is all there? Sets tutti_cuda_missing to the first that is not.
AC_DEFUN([TUTTI_CUDA_TRY],
    [tutti_cuda_missing=
    tutti_saved_CPPFLAGS=$CPPFLAGS
    CPPFLAGS="$CPPFLAGS $CUDA_CFLAGS"
    AC_MSG_CHECKING([for headers of CUDA 12 and NCCL 2.18 or later])
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#include <cuda.h>
#include <cuda_runtime_api.h>
#if CUDA_VERSION < 12000
#error "too old"
#endif
        ]])], [], [tutti_cuda_missing="headers of CUDA 12"])
    AS_IF([test -z "$tutti_cuda_missing"],
        [AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#include <nccl.h>
#if NCCL_VERSION_CODE < 21800
#error "too old"
#endif
            ]])], [], [tutti_cuda_missing="nccl.h of NCCL 2.18"])])
    CPPFLAGS=$tutti_saved_CPPFLAGS
    AC_MSG_RESULT([${tutti_cuda_missing:+no: no }${tutti_cuda_missing:-yes}])])

# TUTTI_CUDA_FIND_ARCHS: code for each of $with_cuda_archs that this nvcc knows, and PTX of the last,
# which the driver compiles for later ones.
AC_DEFUN([TUTTI_CUDA_FIND_ARCHS],
    [tutti_cuda_known=" $("$NVCC" --list-gpu-arch 2>/dev/null | tr '\n' ' ')"
    CUDA_ARCHS=
    NVCC_ARCHS=
    for tutti_arch in $with_cuda_archs
    do
        AS_CASE([$tutti_cuda_known], [*" compute_$tutti_arch "*],
            [AS_VAR_APPEND([CUDA_ARCHS], ["${CUDA_ARCHS:+ }$tutti_arch"])
            AS_VAR_APPEND([NVCC_ARCHS],
                [" -gencode arch=compute_$tutti_arch,code=sm_$tutti_arch"])
            tutti_last_arch=$tutti_arch])
    done
    AS_IF([test -n "$CUDA_ARCHS"],
        [AS_VAR_APPEND([NVCC_ARCHS],
            [" -gencode arch=compute_$tutti_last_arch,code=compute_$tutti_last_arch"])],
        [tutti_cuda_missing="architecture of $with_cuda_archs that $NVCC knows"])])

# The headers are taken as a system's: warnings in there are not ours.
AC_DEFUN([TUTTI_CUDA],
    [AC_ARG_WITH([cuda],
        [AS_HELP_STRING([--with-cuda=DIR],
            [auto, yes, no, or where CUDA is installed @<:@auto@:>@])],
        [], [with_cuda=auto])
    AC_ARG_WITH([cuda-archs],
        [AS_HELP_STRING([--with-cuda-archs=LIST],
            [the GPUs to compile for, as compute capabilities without the dot; newer ones compile
            when they start @<:@70,75,80,86,89,90@:>@])],
        [], [with_cuda_archs=70,75,80,86,89,90])
    with_cuda_archs=$(echo "$with_cuda_archs" | tr , ' ')
    AC_ARG_VAR([NVCC], [compiler of the kernels for GPUs])
    AC_ARG_VAR([NVCCFLAGS], [its flags])
    tutti_cuda_missing=
    AS_CASE([$with_cuda],
        [no], [tutti_cuda_missing="wish for it"],
        [auto|yes], [AC_PATH_PROG([NVCC], [nvcc])],
        [AC_PATH_PROG([NVCC], [nvcc], [], [$with_cuda/bin])])
    AS_IF([test -z "$tutti_cuda_missing" && test -z "$NVCC"], [tutti_cuda_missing=nvcc])
    AS_IF([test -z "$tutti_cuda_missing"],
        [AS_CASE([$with_cuda],
            [auto|yes], [tutti_cuda_dir=$(cd "$(dirname "$(readlink -f "$NVCC")")/.." && pwd)],
            [tutti_cuda_dir=$with_cuda])
        CUDA_CFLAGS="-isystem $tutti_cuda_dir/include"
        TUTTI_CUDA_TRY])
    AS_IF([test -z "$tutti_cuda_missing"], [TUTTI_CUDA_FIND_ARCHS])
    AS_CASE([$with_cuda:$tutti_cuda_missing],
        [auto:*|no:*|*:], [],
        [AC_MSG_ERROR([--with-cuda=$with_cuda: there is no $tutti_cuda_missing])])
    AS_IF([test -z "$tutti_cuda_missing"],
        [tutti_cuda_summary="module tutti/cuda.so, by $NVCC for sm $CUDA_ARCHS"],
        [tutti_cuda_summary="no: no $tutti_cuda_missing"
        CUDA_CFLAGS=])
    AC_SUBST([CUDA_CFLAGS])
    AC_SUBST([NVCC_ARCHS])
    AC_SUBST([CUDA_ARCHS])
    AM_CONDITIONAL([HAVE_CUDA], [test -z "$tutti_cuda_missing"])])
