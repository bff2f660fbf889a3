#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Every header includes what it needs: it compiles alone, and if it is included twice. The public
# headers compile without a warning as C99 and as C++11, and tutti.h includes each of them.
set -eu

top=$(cd "$srcdir" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# compile NAME COMPILER FLAGS...: checks that $work/alone.* compiles
compile() {
    name=$1
    shift
    if ! "$@" -Wall -Wextra -Werror -fsyntax-only; then
        echo "$name does not compile: $*"
        failed=1
    fi
}

for path in "$top"/include/tutti/*.h; do
    name=tutti/${path##*/}
    # Users with a GPU include cuda.h themselves.
    if [ "$name" != tutti/tutti.h ] && [ "$name" != tutti/cuda.h ] &&
        ! grep -q "#include <$name>" "$top/include/tutti/tutti.h"; then
        echo "tutti/tutti.h does not include <$name>"
        failed=1
    fi
    printf '#include <%s>\n#include <%s>\n#include <tutti/tutti.h>\n' "$name" "$name" >"$work/alone.c"
    printf 'int main(void) { return tutti_init(NULL); }\n' >>"$work/alone.c"
    cp "$work/alone.c" "$work/alone.cc"
    # CC and CXX may hold options, such as -std=gnu11.
    compile "$name as C99" $CC -std=c99 -pedantic -I "$top/include" "$work/alone.c"
    if command -v ${CXX%% *} >/dev/null; then
        compile "$name as C++11" $CXX -std=c++11 -pedantic -I "$top/include" "$work/alone.cc"
    fi
done

for path in $(cd "$top/lib" && find . -name '*.h' | sort); do
    name=${path#./}
    needs=
    if grep -q '<mpi.h>\|"xport/mpi/' "$top/lib/$name"; then
        [ -n "$MPI_LIBS" ] || continue
        needs=$MPI_CFLAGS
    elif grep -q '<nccl.h>' "$top/lib/$name"; then
        [ -n "$CUDA_CFLAGS" ] || continue
        needs=$CUDA_CFLAGS
    fi
    printf '#include "%s"\n#include "%s"\nint main(void) { return 0; }\n' "$name" "$name" \
        >"$work/alone.c"
    compile "$name" $CC -std=gnu11 -pthread -I. $LIB_CPPFLAGS $needs "$work/alone.c"
done
exit "$failed"
