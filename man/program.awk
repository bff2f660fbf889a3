# SPDX-License-Identifier: BSD-3-Clause
#
# The manual page of a program, from its source's head comment and from what its --help prints.
#
#     awk -v out=DIR -v name=NAME -v date=... -v version=... -f text.awk -f program.awk NAME.c HELP
#
# NAME is the head comment's first sentence. HELP has usage lines, paragraphs, and options, each
# "  -x, --long VALUE  text". An empty HELP (the program does not run where it was built) leaves the
# head comment as the description. If DIR has a page of a function of this name, the page names it.

FNR == 1 { nfiles++ }

nfiles == 1 && state == 0 && /^\/\*$/ { state = 1; next }
nfiles == 1 && state == 1 && /^ \*\// { state = 2 }
nfiles == 1 && state == 1 {
    sub(/^ \* ?/, "")
    head[++nhead] = $0
}

nfiles == 2 {
    gsub(/[^ ]*\/tutti_/, "tutti_")
    help[++nhelp] = $0
}

function purpose(    i, all) {
    for (i = 1; i <= nhead && head[i] != ""; i++)
        all = all (i > 1 ? " " : "") head[i]
    sub(/\. .*/, "", all)
    sub(/\.$/, "", all)
    sub("^" name ": ", "", all)
    return tolower(substr(all, 1, 1)) substr(all, 2)
}

# Usage lines, up to the first blank one; the number of that.
function synopsis(    i, line) {
    for (i = 1; i <= nhelp && help[i] != ""; i++) {
        line = help[i]
        sub(/^[Uu]sage: /, "", line)
        sub(/^ +/, "", line)
        if (i > 1)
            say(".br")
        say("\\fB" escape(line) "\\fP")
    }
    if (nhelp == 0)
        say("\\fB" name "\\fP [options]")
    return i
}

# Is there a page of a function of this name?
function is_function(    line) {
    return ((getline line < (out "/man3/" name ".3")) > 0)
}

function is_option(line) {
    return line ~ /^ +--?[a-zA-Z]/
}

# A line with a colon above options is a heading.
function copy(from, to,    i, line) {
    nlines = 0
    for (i = from; i <= to; i++) {
        line = help[i]
        if (is_option(help[i + 1]))
            sub(/:$/, "", line)
        lines[++nlines] = line
    }
}

END {
    file = out "/man1/" name ".1"
    page = name
    begin(name, 1, "Programs")
    say(".SH NAME")
    wrap(name " \\- " escape(purpose()))
    say(".SH SYNOPSIS")
    start = synopsis() + 1
    for (options = start; options <= nhelp && !is_option(help[options]); options++)
        continue
    say(".SH DESCRIPTION")
    copy(start, options - 1)
    if (nhelp == 0) {
        for (i = 1; i <= nhead; i++)
            lines[i] = head[i]
        nlines = nhead
    }
    body(0)
    say(".SH OPTIONS")
    copy(options, nhelp)
    if (nhelp == 0) {
        lines[1] = "  --help  lists them all"
        nlines = 1
    }
    body(0)
    say(".SH SEE ALSO")
    if (is_function())
        say("\\fB" name "\\fP(3),")
    say("\\fBtutti\\fP(7)")
}
