# SPDX-License-Identifier: BSD-3-Clause
#
# awk -v device=lib/mem/device.h -f code.awk -f style.awk file.c...: prints violations of the style,
# and fails if there are any.

function complain(what) {
    print FILENAME ":" FNR ": " what
    bad = 1
}

# Find the functions of a device's table that return a status.
BEGIN {
    while ((getline line < device) > 0) {
        if (match(line, /^ *tutti_status_t \(\*[a-z_]+\)/)) {
            sub(/^[^*]*\*/, "", line)
            sub(/\).*/, "", line)
            names = names "|" line
        }
    }
    if (names == "") {
        print "no functions found in " device
        bad = 1
    }
    thrown_away = "^[ \t]*[][A-Za-z_0-9.>-]*(ops|device\\(\\))(\\.|->)(" substr(names, 2) ")\\("
}

FNR == 1 {
    inside_comment = 0
    if ($0 != "/* SPDX-License-Identifier: BSD-3-Clause */")
        complain("line 1 is not the SPDX line")
}

length($0) > 100 { complain("longer than 100 columns") }
/\t/ { complain("a tab") }
/[ \t]$/ { complain("space at the end of the line") }

{ text = code($0) }
text ~ /"(\/home|\/root|\/work|\/Users)\// { complain("a path of one machine") }
{ gsub(/"([^"\\]|\\.)*"/, "", text) }
text ~ /\/\// { complain("a // comment") }

# A statement that is only a call into CUDA, cuBLAS or NCCL: its result is ignored.
last ~ /([;{})]|else|^)[ \t]*$/ && text ~ /^[ \t]*([A-Za-z_][A-Za-z_0-9]*(\([a-z_]*\))?(\.|->))*(cuda|cublas|nccl|cu)[A-Z][A-Za-z0-9_]*\(/ {
    complain("a return code that nobody checks")
}
last ~ /([;{})]|else|^)[ \t]*$/ && text ~ thrown_away {
    complain("a device's status that nobody checks; (void), and why, if nobody needs it")
}
text ~ /[^ \t]/ { last = text }

END { exit bad }
