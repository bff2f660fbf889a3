#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Checks the files below lib/ against lib/rooms.txt. Then breaks each kind of rule in a copy, and
# checks that this is detected.
set -eu

lint=$(cd "$srcdir/tests/lint" && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

judge() {
    awk -v law=lib/rooms.txt -f "$lint/code.awk" -f "$lint/rooms.awk" "$@"
}

# plant FILE LINE: the rules must not allow LINE in FILE.
plant() {
    mkdir -p "$(dirname "$1")"
    printf '%s\n' "$2" >"$1"
    if judge "$1" >/dev/null; then
        echo "not seen: $2 in $1"
        exit 1
    fi
    rm "$1"
}

cd "$srcdir"
judge $(find lib -name '*.[ch]' -o -name '*.inc' | sort)

mkdir "$copy/lib"
cp lib/rooms.txt "$copy/lib"
cd "$copy"
plant lib/base/planted.c '#include "conf/conf.h"'
plant lib/coll/planted.h '#  include "xport/xport.h"'
plant lib/coll/planted.c '#include "coll.h"'
plant lib/attic/planted.c 'int planted;'
plant lib/xport/mpi/planted.c '#include "xport/shm/shm.h"'
plant lib/engine/planted.c '#include <mpi.h> /* only once */'
plant lib/api/planted.c '#include <tutti/types.h>'
plant lib/api/planted.c '#include "node/nccl/nccl.h"'
plant lib/call/planted.c '#include "node/nccl/nccl.h"'
plant lib/topo/planted.c 'const char *name = getenv("TUTTI_HOST_ID");'
plant lib/topo/planted.c 'extern char **environ;'
