# SPDX-License-Identifier: BSD-3-Clause
#
# Reads the public headers and the table of variables, for pages.awk.
#
# A comment at the left edge and the declarations below it, up to the next such comment, are a unit:
# unit_header[u], unit_line[u, i], and unit_name, unit_kind, unit_text[u, n] of each declaration. A
# header's first comment is its head comment: head_line[header, i].

function begin_unit() {
    nunits++
    unit_header[nunits] = header
    unit_lines[nunits] = ncomment
    for (i = 1; i <= ncomment; i++)
        unit_line[nunits, i] = comment[i]
}

function end_comment() {
    in_comment = 0
    if (comment[ncomment] == "")
        ncomment--
    if (comment[1] ~ /^(SPDX|clang-format|----)/)
        return
    if (!(header in head_lines)) {
        head_lines[header] = ncomment
        for (i = 1; i <= ncomment; i++)
            head_line[header, i] = comment[i]
        return
    }
    begin_unit()
}

# A declaration is whole: which unit, what kind, which name.
function end_declaration(    name, n) {
    if (nunits == 0 || unit_header[nunits] != header)
        return
    name = declaration
    if (kind == "function") {
        sub(/^TUTTI_API /, "", declaration)
        name = declaration
        sub(/ *\(.*/, "", name)
        sub(/.*[ *]/, "", name)
    } else if (kind == "typedef") {
        if (name !~ /\{/ && name ~ /\(\*/) {
            sub(/.*\(\*/, "", name)
            sub(/\).*/, "", name)
        } else {
            sub(/;[^;]*$/, "", name)
            sub(/.*[ }]/, "", name)
        }
    } else {
        sub(/^#define */, "", name)
        sub(/[ (].*/, "", name)
    }
    n = ++unit_names[nunits]
    unit_name[nunits, n] = name
    unit_kind[nunits, n] = kind
    unit_text[nunits, n] = declaration
}

FNR == 1 {
    header = FILENAME
    sub(/.*\//, "", header)
    if (header ~ /\.h$/)
        headers[++nheaders] = header
    in_comment = 0
    kind = ""
}

# The table of variables: { "NAME", TYPE, AT(field), "default", "help" "help", limits, choices },
header !~ /\.h$/ {
    if ($0 ~ /^    \{ "TUTTI_/)
        row = ""
    else if (row == "-" || row == "")
        next
    row = row $0
    if ($0 ~ /\},$/) {
        read_row(row)
        row = "-"
    }
    next
}

in_comment {
    line = $0
    sub(/ *\*\/ *$/, "", line)
    # Lines of a comment that has its first words behind "/*" begin with three blanks.
    if (!sub(/^ \* ?/, "", line))
        sub(/^   /, "", line)
    comment[++ncomment] = line
    if ($0 ~ /\*\//)
        end_comment()
    next
}

kind == "" && /^\/\*/ {
    line = $0
    sub(/ *\*\/ *$/, "", line)
    sub(/^\/\* ?/, "", line)
    ncomment = 0
    in_comment = 1
    if (line != "")
        comment[++ncomment] = line
    if ($0 ~ /\*\//)
        end_comment()
    next
}

kind == "" && /^TUTTI_API/ { kind = "function"; declaration = "" }
kind == "" && /^typedef/ { kind = "typedef"; declaration = ""; depth = 0 }
kind == "" && /^#define/ { kind = "macro"; declaration = "" }

kind == "function" {
    line = $0
    sub(/^ +/, "", line)
    declaration = declaration (declaration == "" ? "" : " ") line
    if (line ~ /;/) {
        end_declaration()
        kind = ""
    }
}

# A list X(name, number, text) stands for its enumerators.
kind == "macro" {
    declaration = declaration (declaration == "" ? "" : "\n") $0
    if ($0 ~ /^    X\(/) {
        line = $0
        sub(/^ *X\(/, "", line)
        split(line, part, /, */)
        listed = listed "    " part[1] " = " part[2] ",\n"
    }
    if ($0 !~ /\\$/) {
        end_declaration()
        kind = ""
    }
}

kind == "typedef" {
    line = $0
    depth += gsub(/\{/, "{", line) - gsub(/\}/, "}", line)
    if (line ~ /^#/)
        line = ""
    else if (line ~ /_LIST\(/) {
        line = listed
        sub(/\n$/, "", line)
    }
    sub(/^ +TUTTI_STATUS_FORCE/, "    TUTTI_STATUS_FORCE", line)
    if (line != "")
        declaration = declaration (declaration == "" ? "" : "\n") line
    if (depth == 0 && $0 ~ /;/) {
        end_declaration()
        kind = ""
    }
}

# ---- the table of variables ----

# Its fields that are strings: name, default, help, and perhaps choices. Strings that follow each
# other without a comma are one.
function read_row(row,    gap, field, n) {
    nvariables++
    variable_type[nvariables] = row
    sub(/.*CONF_/, "", variable_type[nvariables])
    sub(/,.*/, "", variable_type[nvariables])
    while (match(row, /"([^"\\]|\\.)*"/)) {
        gap = substr(row, 1, RSTART - 1)
        if (gap ~ /[,{]/)
            n++
        field[n] = field[n] substr(row, RSTART + 1, RLENGTH - 2)
        row = substr(row, RSTART + RLENGTH)
    }
    variable[nvariables] = field[1]
    variable_default[nvariables] = field[2]
    variable_help[nvariables] = field[3]
    variable_choices[nvariables] = field[4]
}
