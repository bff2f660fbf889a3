# SPDX-License-Identifier: BSD-3-Clause
#
# Finds the MPI implementations of this machine. Their ABIs differ, so each one gets a module of its
# own, built from the same sources; the first one found also serves the bench programs' peer.
#
# The wrapper compilers are asked for flags, not used to compile: one compiler builds everything.

# TUTTI_MPI_IS(MACRO, NAME): if a program with MPI links, and mpi.h defines MACRO, it is NAME.
AC_DEFUN([TUTTI_MPI_IS],
    [AC_LINK_IFELSE([AC_LANG_PROGRAM([[
#include <mpi.h>
#ifndef $1
#error "another MPI"
#endif
        ]], [[return MPI_Init(0, 0);]])], [tutti_mpi_name=$2])])

# TUTTI_MPI_TRY(NAME): asks the flags in tutti_mpi_cflags and tutti_mpi_libs which MPI they belong
# to, and takes them for it unless it is known already.
AC_DEFUN([TUTTI_MPI_TRY],
    [tutti_mpi_name=
    tutti_saved_CPPFLAGS=$CPPFLAGS
    tutti_saved_LIBS=$LIBS
    CPPFLAGS="$CPPFLAGS $tutti_mpi_cflags"
    LIBS="$tutti_mpi_libs $LIBS"
    TUTTI_MPI_IS([OPEN_MPI], [openmpi])
    TUTTI_MPI_IS([MPICH], [mpich])
    CPPFLAGS=$tutti_saved_CPPFLAGS
    LIBS=$tutti_saved_LIBS
    AC_MSG_CHECKING([which MPI $1 is])
    AC_MSG_RESULT([${tutti_mpi_name:-none}])
    AS_CASE([$tutti_mpi_name],
        [openmpi], [AS_IF([test -z "$OPENMPI_LIBS"],
            [OPENMPI_CFLAGS=$tutti_mpi_cflags OPENMPI_LIBS=$tutti_mpi_libs tutti_openmpi_from="$1"])],
        [mpich], [AS_IF([test -z "$MPICH_LIBS"],
            [MPICH_CFLAGS=$tutti_mpi_cflags MPICH_LIBS=$tutti_mpi_libs tutti_mpich_from="$1"])])
    AS_IF([test -n "$tutti_mpi_name" && test -z "$MPI_LIBS"],
        [MPI_CFLAGS=$tutti_mpi_cflags MPI_LIBS=$tutti_mpi_libs
        tutti_mpi_summary="yes, with $tutti_mpi_name"])])

# TUTTI_MPI_ASK_WRAPPER: the flags of the wrapper compiler in tutti_mpicc. Open MPI answers
# -showme, MPICH and its kin -show; of what they print, paths, macros and libraries matter.
AC_DEFUN([TUTTI_MPI_ASK_WRAPPER],
    [tutti_mpi_cflags=
    tutti_mpi_libs=
    for tutti_word in $($tutti_mpicc -showme 2>/dev/null || $tutti_mpicc -show 2>/dev/null)
    do
        AS_CASE([$tutti_word],
            [-I*|-D*], [AS_VAR_APPEND([tutti_mpi_cflags], [" $tutti_word"])],
            [-L*|-l*|-Wl,*], [AS_VAR_APPEND([tutti_mpi_libs], [" $tutti_word"])])
    done])

AC_DEFUN([TUTTI_MPI],
    [AC_ARG_WITH([mpi],
        [AS_HELP_STRING([--with-mpi=WHAT],
            [auto, yes, no, or a comma-separated list of wrapper compilers, such as
            mpicc.openmpi,mpicc.mpich; one module is built for each implementation @<:@auto@:>@])],
        [], [with_mpi=auto])
    tutti_mpi_summary="no: MPI is not measured"
    AS_CASE([$with_mpi],
        [no], [tutti_mpiccs=],
        [auto|yes], [tutti_mpiccs="mpicc mpicc.openmpi mpicc.mpich"],
        [tutti_mpiccs=$(echo "$with_mpi" | tr , ' ')])
    for tutti_mpicc in $tutti_mpiccs
    do
        tutti_mpi_name=
        AS_IF([command -v "$tutti_mpicc" >/dev/null 2>&1],
            [TUTTI_MPI_ASK_WRAPPER
            TUTTI_MPI_TRY([$tutti_mpicc])])
        AS_CASE([$with_mpi:$tutti_mpi_name], [auto:*|yes:*|*:?*], [],
            [AC_MSG_ERROR([--with-mpi: $tutti_mpicc is no compiler of Open MPI or MPICH])])
    done
    AS_CASE([$with_mpi], [auto|yes],
        [for tutti_pc in ompi-c mpich
        do
            AS_IF([$PKG_CONFIG --exists $tutti_pc],
                [tutti_mpi_cflags=$($PKG_CONFIG --cflags $tutti_pc)
                tutti_mpi_libs=$($PKG_CONFIG --libs $tutti_pc)
                TUTTI_MPI_TRY([$tutti_pc])])
        done])
    AS_IF([test "$with_mpi" = yes && test -z "$MPI_LIBS"],
        [AC_MSG_ERROR([--with-mpi=yes, but there is no Open MPI or MPICH])])

    tutti_openmpi_summary="no"
    AS_IF([test -n "$OPENMPI_LIBS"],
        [tutti_openmpi_summary="module tutti/mpi_openmpi.so, from $tutti_openmpi_from"])
    tutti_mpich_summary="no"
    AS_IF([test -n "$MPICH_LIBS"],
        [tutti_mpich_summary="module tutti/mpi_mpich.so, from $tutti_mpich_from"])
    AC_SUBST([OPENMPI_CFLAGS])
    AC_SUBST([OPENMPI_LIBS])
    AC_SUBST([MPICH_CFLAGS])
    AC_SUBST([MPICH_LIBS])
    AC_SUBST([MPI_CFLAGS])
    AC_SUBST([MPI_LIBS])
    AM_CONDITIONAL([HAVE_OPENMPI], [test -n "$OPENMPI_LIBS"])
    AM_CONDITIONAL([HAVE_MPICH], [test -n "$MPICH_LIBS"])
    AM_CONDITIONAL([HAVE_MPI], [test -n "$MPI_LIBS"])
    AC_ARG_VAR([MPIRUN], [launcher that the tests use])
    AC_CHECK_PROGS([MPIRUN], [mpirun mpiexec])])
