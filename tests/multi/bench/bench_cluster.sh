#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# bench/cluster.sh: each cluster has a table with all settings, and names the settings that cannot
# run.
set -u
. "$srcdir/tests/multi/bench/bench_common.sh"

if [ -z "$mpirun" ]; then
    echo "no mpirun"
    exit 77
fi
"$srcdir/tests/hosts/cluster.sh" check --rate 1gbit || exit

few="--sizes 8:16 --passes 1 --settings tcp"
ran "$srcdir/bench/cluster.sh" --places 1,1 --rates none/1gbit $few -- -i 2 -x 1 --rounds 2 -c
[ $status -eq 0 ] || wrong "status $status"
[ "$(grep -c "^# Hosts with 1,1, link" "$log")" -eq 2 ] || wrong "not two tables"
[ "$(grep -cE "^(8|16) +$number +$number +$number\$" "$log")" -eq 4 ] || wrong "not two rows in each"

# If a rank prints a text and then fails, mpirun sometimes loses the text.
tries=0
until ran "$srcdir/bench/cluster.sh" --places 1,1 --rates none $few -- --no-such-flag &&
    grep -q "^# Left out: 1,1_none_tcp: .*no-such-flag" "$log"; do
    tries=$((tries + 1))
    [ $tries -lt 5 ] || { wrong "the failure is not named"; break; }
done
# A setting that fails in the second pass is not in the table.
cat >"$files/second" <<END
#!/bin/sh
case "\$*" in
*.2) exit 1 ;;
esac
exec "$PWD/bench/tutti_allreduce" "\$@"
END
chmod +x "$files/second"
ran "$srcdir/bench/cluster.sh" --places 1,1 --rates none --sizes 8:16 --passes 2 --settings tcp \
    --program "$files/second" -- -i 2 -x 1 --rounds 2
[ $status -eq 1 ] && grep -q "^# Left out: 1,1_none_tcp: " "$log" && ! grep -qE "^(8|16) " "$log" ||
    wrong "status $status, or rows of a setting that failed"
ran "$srcdir/bench/cluster.sh" --program /nonexistent
[ $status -eq 2 ] || wrong "status $status without a program"

test $errors -eq 0
