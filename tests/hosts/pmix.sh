#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Ranks that mpirun starts meet through its PMIx, without MPI. The reason is TUTTI_BOOT=pmix, or
# that no module for MPI fits and the ranks are on several hosts. Skipped without PMIx's library.
set -u
. "$(dirname "$0")/common.sh"
cluster=$(dirname "$0")/cluster.sh
[ $mpi = openmpi ] || skip "no mpirun of Open MPI, which has PMIx"
program=tests/hosts/hosts_check
export TUTTI_LOG=info

what="told to"
launch -np 3 env TUTTI_BOOT=pmix $program twice
! grep -q "PMIx cannot be used" "$log" || skip "$(grep -m 1 "PMIx cannot be used" "$log")"
passed 3 "of 3 on 1 hosts: twice passed$"
[ "$(grep -c "3 ranks meet by PMIx$" "$log")" -eq 2 ] || wrong "$what: the way is not named twice"

what="forked children"
launch -np 2 env TUTTI_BOOT=pmix $program forked
passed 2 "of 2 on 1 hosts: forked passed$"

# The hosts are pretended, so mpirun's variables must not report that all ranks are on one host.
what="no module"
none="env TUTTI_MODULE_DIR=/nonexistent OMPI_COMM_WORLD_LOCAL_SIZE=1"
launch -np 1 $none TUTTI_HOST_ID=a $program data : -np 1 $none TUTTI_HOST_ID=b $program data
passed 2 "of 2 on 2 hosts: data passed$"
grep -q "2 ranks meet by PMIx$" "$log" || wrong "$what: the way is not named"

what="a place that is named"
port=$((20000 + $$ % 10000))
launch -np 2 $none MASTER_ADDR=127.0.0.1 MASTER_PORT=$port $program data
passed 2 "of 2 on 1 hosts: data passed$"
grep -q "listens at 127.0.0.1:$port, by mpirun's variables" "$log" || wrong "$what: PMIx was used"

# mpirun reports the end of these ranks as a crash, so its status is not checked.
what="a rank that does not come"
launch -np 2 env TUTTI_BOOT=pmix TUTTI_TIMEOUT=1 $program refused : -np 1 sleep 60
status=0
passed 2 "^refused: .*not all ranks have called tutti_init within TUTTI_TIMEOUT"

# The variables belong to another job, inside which this job runs.
what="a contradiction"
launch -np 1 $none OMPI_COMM_WORLD_SIZE=2 $program refused
passed 1 "^refused: .*PMIx tells of 1 ranks, mpirun's variables of 2"

what="another process manager"
launch -np 2 env TUTTI_BOOT=pmi2 $program refused
passed 2 "^refused: .*TUTTI_BOOT=pmi2, but the launcher has not set PMI_FD"

# Rank 0 cannot listen, and all ranks report its reason.
what="no network"
launch -np 1 env TUTTI_BOOT=pmix TUTTI_INTERFACE=none9 $program refused : \
    -np 1 env TUTTI_BOOT=pmix $program refused
passed 2 "^refused: .*rank 0: .*none9"

if is_long "hosts made of namespaces" && "$cluster" check && [ -e "$TUTTI_MODULE_DIR/ucx.so" ]; then
    what="two hosts"
    folder=$(mktemp -d) || exit 1
    ln -s "$TUTTI_MODULE_DIR/ucx.so" "$folder"
    TUTTI_MODULE_DIR=$folder timeout --kill-after=5 100 "$cluster" run -np 4 --per-host 2 \
        --mpirun "-x TUTTI_MODULE_DIR -x TUTTI_LOG" $program data >"$log" 2>&1
    status=$?
    rm -r "$folder"
    passed 4 "of 4 on 2 hosts: data passed$"
    grep -q "4 ranks meet by PMIx$" "$log" || wrong "$what: the way is not named"
fi
exit $((errors != 0))
