# SPDX-License-Identifier: BSD-3-Clause
#
# For other awk programs: code(LINE) is the line without comments. Lines come in order; a file's
# first line wants inside_comment = 0 before.

function code(line,    out, end) {
    out = ""
    while (line != "") {
        if (inside_comment) {
            if (!(end = index(line, "*/")))
                return out
            inside_comment = 0
            line = substr(line, end + 2)
        } else if (match(line, /"([^"\\]|\\.)*"|\/\*/)) {
            # A string stays as it is, whatever it holds; a comment begins.
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
