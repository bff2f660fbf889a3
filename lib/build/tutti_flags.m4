# SPDX-License-Identifier: BSD-3-Clause
#
# Compiler flags: optimisation, warnings, sanitizers, instruction sets.

# TUTTI_CHECK_CFLAG(FLAG, IF-YES, IF-NO): does the compiler take FLAG without a warning?
AC_DEFUN([TUTTI_CHECK_CFLAG],
    [AS_VAR_PUSHDEF([cache], [tutti_cv_flag_$1])
    AC_CACHE_CHECK([whether $CC takes $1], [cache],
        [tutti_saved_CFLAGS=$CFLAGS
        CFLAGS="$CFLAGS -Werror $1"
        AC_COMPILE_IFELSE([AC_LANG_PROGRAM], [AS_VAR_SET([cache], [yes])],
            [AS_VAR_SET([cache], [no])])
        CFLAGS=$tutti_saved_CFLAGS])
    AS_VAR_IF([cache], [yes], [$2], [$3])
    AS_VAR_POPDEF([cache])])

# Before AC_PROG_CC. The level stays out of CFLAGS, which comes last on the command line, so that
# the kernels can have their own -O3. A user's CFLAGS win over both.
AC_DEFUN([TUTTI_DEFAULT_CFLAGS],
    [AS_IF([test -z "${CFLAGS+set}"],
        [CFLAGS=-g TUTTI_OPT_CFLAGS=-O2 TUTTI_OPT_KERNEL_CFLAGS=-O3])
    AC_SUBST([TUTTI_OPT_CFLAGS])
    AC_SUBST([TUTTI_OPT_KERNEL_CFLAGS])])

AC_DEFUN([TUTTI_FLAGS],
    [AC_ARG_ENABLE([werror],
        [AS_HELP_STRING([--enable-werror], [make warnings errors (for CI)])], [],
        [enable_werror=no])
    AC_ARG_WITH([sanitizer],
        [AS_HELP_STRING([--with-sanitizer=LIST],
            [build everything with -fsanitize=LIST: address,undefined or thread])], [],
        [with_sanitizer=no])
    AC_ARG_ENABLE([debug],
        [AS_HELP_STRING([--enable-debug],
            [check the library's invariants (assert) @<:@no; yes with a sanitizer@:>@])], [],
        [AS_VAR_IF([with_sanitizer], [no], [enable_debug=no], [enable_debug=yes])])

    tutti_flags="-std=gnu11 -pthread -fvisibility=hidden -ffp-contract=off"
    tutti_flags="$tutti_flags -Wall -Wextra -Wmissing-prototypes -Wshadow -Wvla"
    # GCC fills and copies structures of 128 bytes and more by `rep stos` and `rep movs`. Filling 184
    # bytes so takes 12 to 16 ns. With these flags GCC 12 fills up to 256 bytes by stores (184 bytes:
    # 3.7 ns on a Xeon), and calls memset for more. A small call fills several structures.
    AS_CASE([$host_cpu], [x86_64],
        [TUTTI_CHECK_CFLAG([-mmemset-strategy=libcall:-1:noalign],
            [tutti_flags="$tutti_flags -mmemset-strategy=libcall:-1:noalign"
            tutti_flags="$tutti_flags -mmemcpy-strategy=libcall:-1:noalign"])])
    AS_VAR_IF([enable_werror], [yes], [tutti_flags="$tutti_flags -Werror"])
    AS_VAR_IF([enable_debug], [no], [tutti_flags="$tutti_flags -DNDEBUG"])

    # A sanitized shared library leaves the sanitizer's own functions undefined.
    tutti_sanitizer=$with_sanitizer
    AS_CASE([$with_sanitizer],
        [no], [TUTTI_SHLIB_LDFLAGS=-Wl,-z,defs],
        [yes], [AC_MSG_ERROR([--with-sanitizer needs a list, such as address,undefined])],
        [TUTTI_SHLIB_LDFLAGS=
        TUTTI_SANITIZE="-fsanitize=$with_sanitizer -fno-omit-frame-pointer -fno-sanitize-recover=all"
        AS_CASE([$with_sanitizer], [*thread*],
            [TUTTI_CHECK_CFLAG([-Wno-tsan], [TUTTI_SANITIZE="$TUTTI_SANITIZE -Wno-tsan"])])])
    AC_SUBST([TUTTI_FLAGS], [$tutti_flags])
    AC_SUBST([TUTTI_SANITIZE])
    AC_SUBST([TUTTI_SANITIZER], [$tutti_sanitizer])
    AC_SUBST([TUTTI_SHLIB_LDFLAGS])])

# lib/reduce/kernels.c is compiled once for each instruction set; which one runs is decided at run
# time. -O2 of GCC 12 vectorises only where it is free, hence the cost model for users' -O2. Nobody
# looks at the floating point exceptions of kernels; where they count, a choice between two results
# stays a branch.
AC_DEFUN([TUTTI_KERNELS],
    [TUTTI_KERNEL_CFLAGS=$TUTTI_OPT_KERNEL_CFLAGS
    TUTTI_CHECK_CFLAG([-fvect-cost-model=dynamic],
        [TUTTI_KERNEL_CFLAGS="$TUTTI_KERNEL_CFLAGS -ftree-vectorize -fvect-cost-model=dynamic"])
    TUTTI_KERNEL_CFLAGS="$TUTTI_KERNEL_CFLAGS -fno-trapping-math"
    AC_SUBST([TUTTI_KERNEL_CFLAGS])
    AC_SUBST([TUTTI_SCALAR_CFLAGS], ["-fno-tree-vectorize -fno-tree-slp-vectorize"])
    # Unrolled, sums of 64 MiB in AVX2 run at 0.98 to 1.03 of memcpy instead of 0.89 to 0.95 (GCC 12,
    # Zen 5, three runs each); in the caches, and with other vectors, it makes no difference.
    AC_SUBST([TUTTI_AVX2_CFLAGS], ["-mavx2 -mf16c -funroll-loops"])
    AC_SUBST([TUTTI_AVX512_CFLAGS],
        ["-mavx2 -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq"])
    tutti_kernels=scalar
    AS_CASE([$host_cpu],
        [x86_64],
            [TUTTI_CHECK_CFLAG([-mavx2 -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq],
                [tutti_kernels="scalar sse2 avx2 avx512"
                AC_DEFINE([TUTTI__HAVE_X86_KERNELS], [1],
                    [Define to 1 if the sse2, avx2 and avx512 kernels are built.])])],
        [aarch64],
            [tutti_kernels="scalar neon"
            AC_DEFINE([TUTTI__HAVE_NEON_KERNELS], [1],
                [Define to 1 if the neon kernels are built.])])
    AM_CONDITIONAL([X86_KERNELS], [test "$tutti_kernels" = "scalar sse2 avx2 avx512"])
    AM_CONDITIONAL([NEON_KERNELS], [test "$tutti_kernels" = "scalar neon"])])
