# SPDX-License-Identifier: BSD-3-Clause
#
# For other awk programs: code(LINE) is the line without comments. Lines must come in order; before
# a file's first line, set inside_comment = 0.

function code(line,    out, end) {
    out = ""
    while (line != "") {
        if (inside_comment) {
            if (!(end = index(line, "*/")))
                return out
            inside_comment = 0
            line = substr(line, end + 2)
        } else if (match(line, /"([^"\\]|\\.)*"|\/\*/)) {
            # A string is kept with all its characters; otherwise a comment begins.
            inside_comment = substr(line, RSTART, 1) == "/"
            end = inside_comment ? RSTART - 1 : RSTART + RLENGTH - 1
            out = out substr(line, 1, end)
            line = substr(line, RSTART + RLENGTH)
        } else {
            return out line
        }
    }
    return out
}
