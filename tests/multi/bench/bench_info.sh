#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# bench/tutti_info: every section is present, modules' reasons and settings' origins are correct,
# and --json has the same content as the text.
set -u
. "$srcdir/tests/multi/bench/bench_common.sh"

info=bench/tutti_info
export XDG_CONFIG_HOME="$files/config"
export TUTTI_TUNED=none
unset TUTTI_MODULE_DIR TUTTI_CREDITS TUTTI_TIMEOUT TUTTI_ALGORITHM

# has PATTERN: a line of the last report must match.
has()
{
    [ $status -eq 0 ] && grep -qE -- "$1" "$log" || wrong "no line like '$1':"
}

ran $info --help
[ $status -eq 0 ] && grep -q -e '--json' "$log" || wrong help
ran $info --version
has '^[0-9]+\.[0-9]+\.[0-9]+$'
misuse '--slow: unknown option' $info --slow
misuse 'more: unexpected argument' $info more
misuse '--ranks: wants a number from 1' $info --ranks 0
misuse '--ranks: wants a number from 1' $info -n 3x
misuse '-n: wants a value' $info -n
misuse '--hosts: wants the number of hosts' $info --ranks 2 --hosts 3
misuse '--hosts: wants ranks host by host' $info --hosts 2,,2
misuse '--hosts: does not make --ranks' $info --ranks 3 --hosts 2,2

# ---- all sections, alone ----

ran $info
for section in 'Tutti [0-9.]+' 'modules in /.*/tutti' job 'hosts: .*' machine limits kernel \
    'settings: .*' 'TUTTI_\* variables that are no settings' 'tuned file' 'algorithms, .*'; do
    has "^$section\$"
done
has '^  library +/.*libtutti\.so'
has '^  compiler +.+'
has '^  kernels_in_use +(scalar|sse2|neon|avx2|avx512)$'
has '^  tutti_init +works$'
has '^  cores +[1-9][0-9]*$'
has '^  may_use +processors [0-9]'
has '^  locked_memory +'
has '^  /dev/shm +'
has '^  epoll_pwait2 +'
has '^  TUTTI_CREDITS +4 +default$'
has '^  allreduce +any size +node '
has '^  barrier '
[ -z "$(awk 'length > 100 && !/\//' "$log")" ] || wrong "lines longer than 100 columns"

# ---- settings ----

ran env TUTTI_CREDITS=7 TUTTI_CREDIT=3 $info
has '^  TUTTI_CREDITS +7 +environment$'
has '^  TUTTI_CREDIT +is no setting; did you mean TUTTI_CREDITS$'
ran env TUTTI_XPORT=shm $info
has '^  TUTTI_TRANSPORT +shm +environment$'
printf 'tutti_tuned 1\nTUTTI_CHUNK_BYTES 128K\nTUTTI_ONESHOT_BYTES 48K\n' >"$files/tuned"
ran env TUTTI_TUNED="$files/tuned" TUTTI_ONESHOT_BYTES=16K $info
has '^  TUTTI_CHUNK_BYTES +128K +tuned file$'
has '^  TUTTI_ONESHOT_BYTES +16K +environment$'
has '^  use +.*tuned settings of'
ran $info --ranks 5
has '^  place +.*/config/tutti/tuned/.*-5ranks$'
has '^  is_there +No such file'

# If settings are invalid, no job starts, and this reason is reported. All other sections are still
# reported.
ran env TUTTI_TIMEOUT=soon $info
[ $status -eq 1 ] || wrong "TUTTI_TIMEOUT=soon: status $status"
status=0
has '^  tutti_init +TUTTI_TIMEOUT=soon makes no sense'
has '^  TUTTI_TIMEOUT +soon +environment, makes no sense; allowed: seconds'
has '^  barrier '

# ---- algorithms ----

ran env TUTTI_LINK_MBPS=10000 TUTTI_LINK_NS=10000 $info --ranks 64 --hosts 8
has '^algorithms, ranks host by host: 8,8,8,8,8,8,8,8;'
has '^  allreduce +to 20935 +hierarchical/recursive_doubling '
has '^  allreduce +above 3333333 +hierarchical/ring '
ran $info --hosts 3,2
has '^algorithms, ranks host by host: 3,2;'
ran env TUTTI_ALGORITHM=allreduce:5000-6000:ring $info -n 4
has '^  allreduce +to 4999 +node '
has '^  allreduce +to 5999 +ring +TUTTI_ALGORITHM$'
has '^  allreduce +above 5999 +node '
ran env TUTTI_ALGORITHM=allreduce:nothing $info -n 4
status=0
has '^  allreduce +any size +none +.*nothing'

# ---- modules ----

mkdir "$files/empty" "$files/modules"
ran env TUTTI_MODULE_DIR="$files/empty" $info
has "^modules in $files/empty\$"
has '^  mpi_openmpi\.so +(built, but not in the folder|not built)'
echo 'int gone(void); int gone(void) { return 1; }' >"$files/gone.c"
echo 'int gone(void); int tutti_module(void); int tutti_module(void) { return gone(); }' \
    >"$files/module.c"
if $CC -shared -fPIC -o "$files/libgone.so" "$files/gone.c" &&
    $CC -shared -fPIC -o "$files/modules/mpi_openmpi.so" "$files/module.c" -L"$files" -lgone; then
    rm "$files/libgone.so"
    echo 'no library' >"$files/modules/odd.so"
    ran env TUTTI_MODULE_DIR="$files/modules" $info
    tr -s '\n ' ' ' <"$log" >"$files/line" && cp "$files/line" "$log"
    has ' mpi_openmpi\.so does not load: libgone\.so: cannot open shared object file'
    has ' odd\.so does not load: .*(invalid ELF header|file too short)'
else
    wrong "cannot make a module"
fi
echo '#include <stdlib.h>
unsigned tutti_module = 1;
__attribute__((constructor)) static void end(void) { abort(); }' >"$files/module.c"
$CC -shared -fPIC -o "$files/modules/mpi_openmpi.so" "$files/module.c"
ran env TUTTI_MODULE_DIR="$files/modules" $info
has 'mpi_openmpi\.so +does not load: ended by signal 6'

# ---- JSON ----

cat >"$files/compare.py" <<'END'
import json, sys
facts = json.load(open(sys.argv[1], encoding="utf-8"))
text = " ".join(open(sys.argv[2], encoding="utf-8", errors="replace").read().split())
want = ["build", "modules", "job", "hosts", "machine", "limits", "kernel", "settings",
        "unknown_settings", "tuned_file", "algorithms"]
wrong = [] if list(facts) == want else ["sections: " + " ".join(facts)]
for name in ["build", "job", "machine", "kernel"]:
    for key, value in facts[name].items():
        shown = "Tutti " + value if key == "version" else "%s %s" % (key, value)
        if " ".join(shown.split()) not in text:
            wrong.append(shown)
for setting in facts["settings"]:
    shown = "%s %s %s" % (setting["name"], setting["value"] or "not set", setting["from"])
    if setting["name"] == "TUTTI_HOST_ID":
        shown = "odd" if setting["value"] != 'a"b\\c\x01?\u00e4' else "TUTTI_HOST_ID"
    if shown not in text:
        wrong.append(shown)
for module in facts["modules"]:
    if module["file"] not in text or module["error"] not in text:
        wrong.append(str(module))
for row in facts["algorithms"]:
    if row["algorithm"] not in text or not isinstance(row["from_bytes"], int):
        wrong.append(str(row))
print("\n".join(wrong))
sys.exit(1 if wrong else 0)
END
odd=$(printf 'a"b\\c\001\377\303\244')
env TUTTI_ODD=1 TUTTI_INTERFACE=lo TUTTI_HOST_ID="$odd" $info >"$files/text" 2>/dev/null
ran env TUTTI_ODD=1 TUTTI_INTERFACE=lo TUTTI_HOST_ID="$odd" $info --json
grep -v '^tutti warn' "$log" >"$files/json"
grep -qF '"a\"b\\c\u0001?ä"' "$files/json" || wrong "a value with odd characters:"
if command -v python3 >/dev/null 2>&1; then
    ran python3 "$files/compare.py" "$files/json" "$files/text"
    [ $status -eq 0 ] || wrong "JSON and text differ:"
else
    echo "python3 is not here: JSON was not parsed"
fi

# ---- a job ----

[ -n "$mpirun" ] || finish
# The section of a module that loads names the libraries that the module has found.
case $mpirun in
*oversubscribe*)
    ran env TUTTI_MODULE_DIR="$PWD/tutti/.libs" $info
    tr -s '\n ' ' ' <"$log" >"$files/line" && cp "$files/line" "$log"
    has ' mpi_openmpi\.so loads; [^;]*; libmpi[^ ]* => /'
    ;;
esac
# shellcheck disable=SC2016
ran $mpirun -np 3 sh -c 'TUTTI_HOST_ID=host$((${OMPI_COMM_WORLD_RANK:-$PMI_RANK} / 2)) \
    exec bench/tutti_info'
has '^  ranks +3$'
has '^  hosts +2$'
has '  ranks 0-1  processors '
has '  ranks 2    *processors '
has '^algorithms, ranks host by host: 2,1;'
[ "$(grep -c '^Tutti ' "$log")" -eq 1 ] || wrong "more than rank 0 has printed"
ran $mpirun -np 2 env TUTTI_CREDITS=none $info
status=0
has '^  tutti_init +TUTTI_CREDITS=none makes no sense'
has '^  barrier '
finish
