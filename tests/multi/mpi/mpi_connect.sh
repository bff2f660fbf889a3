#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# A world over a real MPI, at each thread level, beside a communicator from tutti_comm_connect. The
# ranks' hosts are pretended.
set -u
. "$srcdir/tests/multi/bench/bench_common.sh"

program=tests/multi/mpi/mpi_connect
case $mpirun in
*oversubscribe*) ;;
*)
    echo "no mpirun of Open MPI"
    exit 77
    ;;
esac
unset TUTTI_DEVICE TUTTI_ALGORITHM TUTTI_TRANSPORT TUTTI_BOOT
export TUTTI_TIMEOUT=60

cat >"$files/host" <<'END'
#!/bin/sh
TUTTI_HOST_ID=host$(echo "$HOSTS" | cut -c $((OMPI_COMM_WORLD_RANK + 1)))
export TUTTI_HOST_ID
exec "$@"
END
chmod +x "$files/host"

places="ab aabc"
is_long "four ranks" || places=ab
for hosts in $places; do
    for level in 0 1 2 3; do
        HOSTS=$hosts
        export HOSTS
        ran timeout --kill-after=5 120 $mpirun -np ${#hosts} "$files/host" $program $level
        [ $status -eq 0 ] && [ "$(grep -c '^rank .* level' "$log")" -eq ${#hosts} ] ||
            wrong "hosts $hosts, level $level: status $status"
    done
done

finish
