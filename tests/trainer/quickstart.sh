#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# examples/quickstart.sh installs what its arguments need: gnuplot for --plot, if it is missing. The
# test imitates a machine without packages, on which apt-get only records its requests. It also
# checks that quickstart.sh builds the programs which the documents start from its build folder.
set -u

. "${0%/*}/common.sh"

tree=$work/tree
tools=$work/tools
mkdir -p "$tree/examples" "$tree/lib/build" "$tools"
cp "$srcdir/examples/quickstart.sh" "$tree/examples"
cp "$srcdir/lib/build/setup.sh" "$tree/lib/build"
for tool in sh cat dirname env find flock grep head mkdir nproc sort tail touch wc; do
    ln -s "$(command -v $tool)" "$tools/$tool"
done
printf '#!/bin/sh\necho 0\n' >"$tools/id"
printf '#!/bin/sh\nexit 1\n' >"$tools/dpkg-query"
printf '#!/bin/sh\necho "$@" >>%s\nexit 1\n' "$work/asked" >"$tools/apt-get"
chmod +x "$tools/id" "$tools/dpkg-query" "$tools/apt-get"

# installs WANTED ARGUMENT...: gnuplot-nox must be requested WANTED times
installs() {
    wanted=$1
    shift
    : >"$work/asked"
    (unset TUTTI_PACKAGES && PATH=$tools "$tree/examples/quickstart.sh" "$@") >"$work/out" 2>&1 &&
        wrong 'apt-get fails unnoticed' "$work/out"
    [ "$(grep -c ' libopenblas-dev .*gnuplot-nox' "$work/asked")" -eq "$wanted" ] &&
        grep -q ' libopenblas-dev ' "$work/asked" ||
        wrong "quickstart.sh $*" "$work/out" "$work/asked"
}

installs 0
installs 0 --model cnn --epochs 8
installs 1 --model cnn --epochs 8 --plot cnn.svg
installs 1 --plot=cnn.png
ln -s "$(command -v sh)" "$tools/gnuplot"
installs 0 --plot cnn.svg

# With TUTTI_PACKAGES=as-is nothing is installed. The trainer must not get this variable, because
# the library would warn about it. The build and mpirun are pretended.
mkdir "$tree/m4"
printf '#!/bin/sh\n' >"$tree/configure"
: >"$tree/m4/generated"
cp "$tree/configure" "$tools/lscpu"
cp "$tree/configure" "$tools/make"
printf '#!/bin/sh\nenv >%s\n' "$work/environment" >"$tools/mpirun"
chmod +x "$tree/configure" "$tools/lscpu" "$tools/make" "$tools/mpirun"
: >"$work/asked"
TUTTI_PACKAGES=as-is TUTTI_TIMEOUT=77 PATH=$tools "$tree/examples/quickstart.sh" \
    >"$work/out" 2>&1 || wrong 'TUTTI_PACKAGES=as-is' "$work/out"
[ ! -s "$work/asked" ] || wrong 'TUTTI_PACKAGES=as-is installs' "$work/asked"
if ! grep -q '^TUTTI_TIMEOUT=77$' "$work/environment" ||
    grep -q '^TUTTI_PACKAGES=' "$work/environment"; then
    wrong 'the environment of mpirun' "$work/environment"
fi

# README.md has its own call of make, which builds the programs that README.md starts afterwards.
# These programs are not checked.
sed '/^    make -C build\/quickstart/,/^$/d' "$srcdir/README.md" >"$work/readme"
for program in $(cat "$work/readme" "$srcdir"/docs/*.md |
    grep -oE 'build/quickstart/[a-z]+/[a-z_]+' | sort -u); do
    grep -qE "(^|[ \\])${program#build/quickstart/}( |\$)" "$srcdir/examples/quickstart.sh" ||
        wrong "quickstart.sh does not build $program"
done

[ "$errors" -eq 0 ]
