#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# No two files of lib/ have the same name, so a name in a comment or a log is unique. The
# implementations of a table (the folders below xport/ and node/) may have names in common. Then
# checks that a second file with the same name is detected.
set -eu

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# twice: prints each name that several files have, with these files
twice() {
    find lib -type f -name '*.*' ! -name local.mk ! -name '*.md' ! -name rooms.txt | sort |
        awk -F/ '
            {
                implements = NF == 4 && ($2 == "xport" || $2 == "node")
                if ($NF in all && !(implements && only[$NF]))
                    wrong[$NF]
                only[$NF] = ($NF in all ? only[$NF] : 1) && implements
                all[$NF] = all[$NF] " " $0
            }
            END {
                for (name in wrong)
                    print name ":" all[name]
            }' | sort
}

cd "$srcdir"
twice >"$work/wrong"
cat "$work/wrong"
[ ! -s "$work/wrong" ] || exit 1

# plant FILE WANT: with this file, the copy must have exactly these violations
plant() {
    mkdir -p "${1%/*}"
    : >"$1"
    seen=$(twice)
    [ "$seen" = "$2" ] && return
    echo "wanted '$2' with $1, seen '$seen'"
    exit 1
}
cd "$work"
plant lib/base/one.c ''
plant lib/xport/shm/shm.c ''
plant lib/node/shm/shm.c ''
plant lib/base/local.mk ''
plant lib/coll/local.mk ''
plant lib/coll/one.c 'one.c: lib/base/one.c lib/coll/one.c'
rm lib/coll/one.c
plant lib/node/nccl/one.c 'one.c: lib/base/one.c lib/node/nccl/one.c'
rm lib/node/nccl/one.c
plant lib/node/shm.c 'shm.c: lib/node/shm.c lib/node/shm/shm.c lib/xport/shm/shm.c'
rm lib/node/shm.c
