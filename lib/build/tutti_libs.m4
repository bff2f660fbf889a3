# SPDX-License-Identifier: BSD-3-Clause
#
# Optional libraries of tests, examples and bench. What is missing is skipped.

AC_DEFUN([TUTTI_CMOCKA],
    [PKG_CHECK_MODULES([CMOCKA], [cmocka >= 1.1],
        [tutti_cmocka_summary=$($PKG_CONFIG --modversion cmocka)],
        [tutti_cmocka_summary="no: tests written with it are skipped"])
    AM_CONDITIONAL([HAVE_CMOCKA], [test -n "$CMOCKA_LIBS"])])

AC_DEFUN([TUTTI_JANSSON],
    [PKG_CHECK_MODULES([JANSSON], [jansson >= 2.11],
        [tutti_jansson_summary=$($PKG_CONFIG --modversion jansson)],
        [tutti_jansson_summary="no: bench has neither --json nor --compare"])
    AM_CONDITIONAL([HAVE_JANSSON], [test -n "$JANSSON_LIBS"])])

AC_DEFUN([TUTTI_ZLIB],
    [PKG_CHECK_MODULES([ZLIB], [zlib],
        [tutti_zlib_summary=$($PKG_CONFIG --modversion zlib)],
        [tutti_zlib_summary="no: example_train is skipped"])
    AM_CONDITIONAL([HAVE_ZLIB], [test -n "$ZLIB_LIBS"])])

AC_DEFUN([TUTTI_OPENBLAS],
    [PKG_CHECK_MODULES([OPENBLAS], [openblas],
        [tutti_openblas_summary=$($PKG_CONFIG --modversion openblas)],
        [AC_CHECK_HEADER([cblas.h],
            [AC_CHECK_LIB([openblas], [cblas_sgemm], [OPENBLAS_LIBS=-lopenblas])])
        AS_IF([test -n "$OPENBLAS_LIBS"], [tutti_openblas_summary="yes, -lopenblas"],
            [tutti_openblas_summary="no: example_train is skipped"])])
    AM_CONDITIONAL([HAVE_OPENBLAS], [test -n "$OPENBLAS_LIBS"])])
