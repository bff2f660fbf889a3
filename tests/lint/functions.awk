# SPDX-License-Identifier: BSD-3-Clause
#
# awk -v most=60 -f code.awk -f functions.awk file.c...: prints the functions that have more than
# `most` lines, from their names to the last brace, and fails if there are any. Relies on
# clang-format's layout: the braces of a function's body stand alone at the beginning of a line.

FNR == 1 {
    inside_comment = inside_directive = 0
    first = body = 0
}

{ text = code($0) }

# A directive of the preprocessor, with its continuation lines.
inside_directive || text ~ /^[ \t]*#/ {
    inside_directive = text ~ /\\$/
    next
}

text ~ /^[A-Za-z_]/ && !first {
    first = FNR
    name = text
    sub(/\(.*/, "", name)
    sub(/.*[ *]/, "", name)
}
text ~ /^\{/ { body = first }
text ~ /^\}/ {
    if (body && FNR - body + 1 > most) {
        print FILENAME ":" body ": " name " has " FNR - body + 1 " lines, more than " most
        bad = 1
    }
    first = body = 0
}
!body && text ~ /;[ \t]*$/ { first = 0 }

END { exit bad }
