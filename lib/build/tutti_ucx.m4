# SPDX-License-Identifier: BSD-3-Clause
#
# UCX, for a module of its own: messages between hosts without MPI. Needs ucp_mem_map's handles in
# requests, which are in UCX 1.13 and later.

AC_DEFUN([TUTTI_UCX],
    [AC_ARG_WITH([ucx],
        [AS_HELP_STRING([--with-ucx=DIR], [auto, yes, no, or where UCX is installed @<:@auto@:>@])],
        [], [with_ucx=auto])
    UCX_CFLAGS=
    UCX_LIBS=
    AS_CASE([$with_ucx],
        [no], [],
        [auto|yes], [UCX_LIBS="-lucp -lucs"],
        [UCX_CFLAGS="-I$with_ucx/include"
        UCX_LIBS="-L$with_ucx/lib -Wl,-rpath,$with_ucx/lib -lucp -lucs"])
    tutti_ucx_summary="no"
    AS_IF([test -n "$UCX_LIBS"],
        [tutti_saved_CPPFLAGS=$CPPFLAGS
        tutti_saved_LIBS=$LIBS
        CPPFLAGS="$CPPFLAGS $UCX_CFLAGS"
        LIBS="$UCX_LIBS $LIBS"
        AC_MSG_CHECKING([for UCX 1.13 or later])
        AC_LINK_IFELSE([AC_LANG_PROGRAM([[
#include <ucp/api/ucp.h>
#if UCP_API_VERSION < UCP_VERSION(1, 13)
#error "too old"
#endif
            ]], [[return ucp_get_version_string()[0] + ucs_status_string(UCS_OK)[0];]])],
            [], [UCX_LIBS=])
        CPPFLAGS=$tutti_saved_CPPFLAGS
        LIBS=$tutti_saved_LIBS
        AC_MSG_RESULT([${UCX_LIBS:-no}])
        AS_CASE([$with_ucx:$UCX_LIBS],
            [auto:*|*:?*], [],
            [AC_MSG_ERROR([--with-ucx=$with_ucx: there is no UCX 1.13 (Debian: libucx-dev)])])])
    AS_IF([test -n "$UCX_LIBS"], [tutti_ucx_summary="module tutti/ucx.so, $UCX_LIBS"])
    AC_SUBST([UCX_CFLAGS])
    AC_SUBST([UCX_LIBS])
    AM_CONDITIONAL([HAVE_UCX], [test -n "$UCX_LIBS"])])
