#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Two ranks with all defaults reach an accuracy of 0.87 on Fashion-MNIST.
set -u

. "${0%/*}/common.sh"
need_trainer
need_mpirun
need_fashion

case ${SANITIZER:-no} in
no) ;;
*)
    echo "takes too long with sanitizers"
    exit 77
    ;;
esac

timeout --kill-after=5 110 $mpirun -np 2 "$trainer" >"$work/out" 2>"$work/log"
status=$?
cat "$work/out" "$work/log"
[ "$status" -eq 0 ] &&
    tail -n 1 "$work/out" | awk '/^test accuracy/ { exit !($3 >= 0.87) } { exit 1 }'
