# SPDX-License-Identifier: BSD-3-Clause
#
# awk -f code.awk -f style.awk file.c...: prints what breaks the style, then fails.

function complain(what) {
    print FILENAME ":" FNR ": " what
    bad = 1
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

# A statement that is nothing but a call into CUDA, cuBLAS or NCCL: nobody looks at what it answers.
last ~ /([;{})]|else|^)[ \t]*$/ && text ~ /^[ \t]*([A-Za-z_][A-Za-z_0-9]*(\([a-z_]*\))?(\.|->))*(cuda|cublas|nccl|cu)[A-Z][A-Za-z0-9_]*\(/ {
    complain("a return code that nobody checks")
}
text ~ /[^ \t]/ { last = text }

END { exit bad }
