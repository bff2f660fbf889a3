#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Makes stand-ins for the CUDA libraries that a CUDA build of torch is linked with, so that it can be
# imported on a machine without a GPU: shared objects with the names that the dynamic linker
# searches for, and with the symbols and symbol versions to which torch's own libraries refer. Each
# function returns 100, which is CUDA's "no device"; so torch finds no GPU, and its CPU part works.
#
# usage: standins.sh TORCH-LIBRARIES OUT: the folder torch/lib of an installation, and a folder to
# put the stand-ins into, for LD_LIBRARY_PATH
set -eu

libraries=$1
out=$2
cc=${CC:-cc}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Lines "library version" show from which library each symbol version comes. A library that is
# needed without a version has a line with "-".
for object in "$libraries"/*.so*; do
    objdump -p "$object"
done 2>/dev/null | awk '
    $1 == "NEEDED" { print $2, "-" }
    $1 == "required" && $2 == "from" { library = $3; sub(/:$/, "", library) }
    $1 ~ /^0x/ && NF == 4 { print library, $4 }
' | grep -E '^lib(cu|nv|nccl)' | sort -u >"$work/versions"

# Lines "symbol version" are the symbols that torch does not define itself. Weak references may stay
# undefined.
nm -D -u --with-symbol-versions "$libraries"/*.so* 2>/dev/null |
    awk 'NF == 2 && $1 == "U" { split($2, part, /@+/); print part[1], part[2] == "" ? "-" : part[2] }' |
    sort -u >"$work/wanted"
nm -D --defined-only "$libraries"/*.so* 2>/dev/null | awk 'NF == 3 { sub(/@.*/, "", $3); print $3 }' |
    sort -u >"$work/defined"

# Symbols without a version may be in any library, so all of them are put into the first one.
awk '$2 == "-" { print $1 }' "$work/wanted" | grep -E '^(cu|nccl|nv|__cuda|__nv)' |
    comm -23 - "$work/defined" >"$work/plain"

functions() {
    while read -r symbol; do
        echo "int $symbol(void) { return 100; }"
    done
}

first=yes
for library in $(cut -d ' ' -f 1 "$work/versions" | sort -u); do
    [ ! -e "$libraries/$library" ] || continue
    : >"$work/source.c"
    : >"$work/map"
    for version in $(awk -v library="$library" '$1 == library && $2 != "-" { print $2 }' "$work/versions"); do
        awk -v version="$version" '$2 == version { print $1 }' "$work/wanted" >"$work/own"
        functions <"$work/own" >>"$work/source.c"
        echo "$version { global: $(sed 's/$/;/' "$work/own" | tr '\n' ' ') };" >>"$work/map"
    done
    if [ $first = yes ]; then
        functions <"$work/plain" >>"$work/source.c"
        first=no
    fi
    script=
    [ ! -s "$work/map" ] || script=-Wl,--version-script,$work/map
    # The compiler has built-in functions with some of these names.
    $cc -shared -fPIC -w -fno-builtin -Wl,-soname,"$library" $script -o "$out/$library" "$work/source.c"
done
