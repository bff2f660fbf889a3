# SPDX-License-Identifier: BSD-3-Clause
#
# Manual pages of sections 3 and 7, from the comments of the public headers.
#
#     awk -v out=DIR -v date=YYYY-MM-DD -v version=X.Y.Z
#         -f text.awk -f headers.awk -f pages.awk conf.c HEADER...
#
# A unit of a header (headers.awk) is one page, under the name of its first function or type; its
# other names are aliases. A header's head comment is a page tutti_HEADER(7); that of tutti.h is
# tutti(7), which also lists all functions and, from the table in lib/conf/conf.c, all variables.
#
# How a comment becomes a page (STYLE.md, "Public function comment"):
#     first paragraph             NAME, its beginning; DESCRIPTION
#     "name, name  text"          PARAMETERS, if these are parameters; else a list in DESCRIPTION
#     "TUTTI_ERR_X: text", or "TUTTI_ERR_X  text", at the left edge    ERRORS
#     paragraph "Returns ..."     RETURN VALUE
#     "Since X.Y."                HISTORY
# A parameter that a comment does not name is looked up in the comment of the call that this is a
# form of (tutti_x of tutti_x_async), in the header's head comment, then in that of tutti.h. It is
# an error if none has it.

# ---- the table of variables ----

function allowed(v,    words) {
    words["BYTES"] = "bytes"
    words["COUNT"] = words["NUMBER"] = "a number"
    words["SECONDS"] = "seconds"
    words["TEXT"] = "text"
    if (variable_type[v] == "CHOICE" || variable_type[v] == "WORD")
        return variable_choices[v]
    return words[variable_type[v]] (variable_choices[v] != "" ? " or " variable_choices[v] : "")
}

function environment(    v, help) {
    say(".SH ENVIRONMENT")
    prose("Read by tutti_init. In brackets: what is allowed; the default. TUTTI_HELP=1 prints " \
          "this list on stderr, with the limits of numbers, and tutti_info the values in use.")
    for (v = 1; v <= nvariables; v++) {
        help = variable_help[v]
        gsub(/\\n */, " ", help)
        say(".TP")
        say("\\fB" variable[v] "\\fP [" escape(allowed(v)) "; " \
            (variable_default[v] == "" ? "not set" : escape(variable_default[v])) "]")
        prose(help)
    }
}

# ---- looking up ----

function pick(key,    i) {
    nlines = key in head_lines ? head_lines[key] : unit_lines[key]
    for (i = 1; i <= nlines; i++)
        lines[i] = key in head_lines ? head_line[key, i] : unit_line[key, i]
    since = ""
    if (nlines > 0 && match(lines[nlines], / *Since [0-9.]+\.$/)) {
        since = substr(lines[nlines], RSTART)
        gsub(/.*Since |\.$/, "", since)
        lines[nlines] = substr(lines[nlines], 1, RSTART - 1)
        if (lines[nlines] == "")
            nlines--
    }
}

# The first sentence; of a long one the beginning.
function purpose(key,    all, i, at) {
    pick(key)
    for (i = 1; i <= nlines && lines[i] != ""; i++)
        all = all (i > 1 ? " " : "") lines[i]
    for (at = 1; at < length(all); at++)
        if (substr(all, at) ~ /^([.?] |: )/ && (at > 24 || substr(all, at, 1) != ":"))
            break
    all = substr(all, 1, at)
    if (length(all) > 76)
        gsub(/ \([^)]*\)/, "", all)
    for (at = 76; at > 24 && length(all) > 76; at--)
        if (substr(all, at) ~ /^[:;,] /)
            all = substr(all, 1, at)
    sub(/[.:;,]$/, "", all)
    if (all ~ /^[A-Z][a-z ]/ && all !~ /^Tutti/)
        all = tolower(substr(all, 1, 1)) substr(all, 2)
    gsub(/`/, "", all)
    return all
}

function unit_of(name,    u, n) {
    for (u = 1; u <= nunits; u++)
        for (n = 1; n <= unit_names[u]; n++)
            if (unit_name[u, n] == name)
                return u
    return 0
}

# The unit whose call this one is a form of; 0: none.
function base_of(name,    other) {
    other = name
    if (!sub(/_async$/, "", other) && !sub(/_cuda_/, "_", other) && !sub(/_scaled$/, "", other))
        return 0
    return unit_of(other)
}

function file_of(name) {
    return out "/man3/" name ".3"
}

# Where a parameter is explained: a unit or header, and the line of its item.
function lookup(parameter, u, name,    keys, n, k, i) {
    keys[++n] = u
    if (base_of(name))
        keys[++n] = base_of(name)
    keys[++n] = unit_header[u]
    keys[++n] = "tutti.h"
    for (k = 1; k <= n; k++) {
        pick(keys[k])
        i = find_item(parameter)
        if (i > 0) {
            found_key[keys[k] " " i] = keys[k]
            found_line[keys[k] " " i] = i
            return keys[k] " " i
        }
    }
    print name ": no comment says what " parameter " is" >"/dev/stderr"
    failed = 1
    return ""
}

# ---- a page ----

function title(name, section, kind_of) {
    file = section == 3 ? file_of(name) : out "/man7/" name ".7"
    page = name
    begin(name, section, kind_of)
}

# Parameters of a function's declaration, in order, in parameter[1..n].
function parameters(text,    n, i, word) {
    sub(/^[^(]*\(/, "", text)
    sub(/\);.*/, "", text)
    if (text == "void")
        return 0
    n = split(text, parameter, /, */)
    for (i = 1; i <= n; i++)
        sub(/.*[ *]/, "", parameter[i])
    return n
}

# tutti_status_t f(const void *a, size_t b); in lines of the page's width, continued below the "(".
function prototype(text,    start, n, i, part, used, line, width, before, name, last) {
    start = text
    sub(/\(.*/, "(", start)
    n = split(substr(text, length(start) + 1), part, /, */)
    line = "\\fB" start
    used = length(start)
    for (i = 1; i <= n; i++) {
        last = i == n
        sub(/\);.*/, "", part[i])
        width = length(part[i]) + (last ? 2 : 1)
        if (i > 1 && used + 1 + width > 72) {
            say(line "\\fP")
            line = "\\fB" sprintf("%" length(start) "s", "")
            used = length(start)
        } else if (i > 1) {
            line = line " "
            used++
        }
        before = part[i]
        name = part[i]
        sub(/.*[ *]/, "", name)
        before = substr(part[i], 1, length(part[i]) - length(name))
        line = line (part[i] == "void" ? "void" : before "\\fI" name "\\fB") (last ? ");" : ",")
        used += width
    }
    say(line "\\fP")
}

function declared(text,    n, i, part) {
    if (text ~ /^#define/) {
        sub(/ *\\\n.*/, " ...", text)
        gsub(/ +/, " ", text)
    }
    n = split(text, part, "\n")
    for (i = 1; i <= n; i++)
        say("\\fB" escape(part[i]) "\\fP")
}

function synopsis(u,    n) {
    say(".SH LIBRARY")
    say("Tutti (\\-ltutti)")
    say(".SH SYNOPSIS")
    say(".nf")
    say(".B #include <tutti/" (unit_header[u] == "cuda.h" ? "cuda.h" : "tutti.h") ">")
    for (n = 1; n <= unit_names[u]; n++) {
        if (n == 1 || unit_kind[u, n] != "function" || unit_kind[u, n - 1] != "function")
            say("")
        if (unit_kind[u, n] == "function")
            prototype(unit_text[u, n])
        else
            declared(unit_text[u, n])
    }
    say(".fi")
}

# All parameters of the unit's functions, in order. Those that have one text are one item.
function parameter_list(u,    n, i, np, owner, list, all, place, printed, terms, k) {
    for (n in is_parameter)
        delete is_parameter[n]
    for (n = 1; n <= unit_names[u]; n++) {
        np = unit_kind[u, n] == "function" ? parameters(unit_text[u, n]) : 0
        for (i = 1; i <= np; i++)
            if (!(parameter[i] in is_parameter)) {
                is_parameter[parameter[i]] = 1
                owner[++all] = unit_name[u, n]
                list[all] = parameter[i]
            }
    }
    if (all > 0)
        say(".SH PARAMETERS")
    for (i = 1; i <= all; i++)
        place[i] = lookup(list[i], u, owner[i])
    for (i = 1; i <= all; i++) {
        if (place[i] == "" || place[i] in printed)
            continue
        printed[place[i]] = 1
        terms = list[i]
        for (k = i + 1; k <= all; k++)
            if (place[k] == place[i])
                terms = terms ", " list[k]
        pick(found_key[place[i]])
        print_item(found_line[place[i]], terms)
    }
}

function return_value(u, name,    text_of, n) {
    text_of = unit_text[u, main_of(u)]
    say(".SH RETURN VALUE")
    pick(u)
    if (text_of ~ /^tutti_status_t/) {
        if (!returns())
            prose("TUTTI_OK, or the number of an error. tutti_strerror names the number, and " \
                 "tutti_last_error says in words what happened. Outputs change only on success.")
        say(".SH ERRORS")
        for (n in said)
            delete said[n]
        errors()
        if (base_of(name)) {
            pick(base_of(name))
            errors()
        }
        pick(unit_header[u])
        errors()
        for (n in said) {
            say(".PP")
            break
        }
        prose("All numbers: tutti_status_t.")
    } else if (!returns())
        prose(join_lines(1, paragraph_end(1), 0))
}

function main_of(u,    n) {
    for (n = 1; n <= unit_names[u]; n++)
        if (unit_kind[u, n] != "macro")
            return n
    return 1
}

# Calls of the same header that share a word of the name, or are spoken of.
function see_also(u, name,    v, n, stem, other, all, list, i) {
    stem = name
    sub(/^tutti_(cuda_)?/, "", stem)
    sub(/(v?_async|_scaled|v|_any|_all)$/, "", stem)
    say(".SH SEE ALSO")
    for (v = 1; v <= nunits; v++) {
        n = main_of(v)
        other = unit_name[v, n]
        if (v == u || unit_kind[v, n] == "macro")
            continue
        if (other in mentioned || \
            other ~ ("^tutti_(cuda_)?" stem "(v?_async|_scaled|v|_any|_all)*$"))
            list[++all] = "\\fB" other "\\fP(3)"
    }
    list[++all] = "\\fB" page_of(unit_header[u]) "\\fP(7)"
    if (unit_header[u] != "tutti.h")
        list[++all] = "\\fBtutti\\fP(7)"
    for (i = 1; i <= all; i++)
        say(list[i] (i < all ? "," : ""))
}

# "See tutti_x.": the page says what tutti_x does.
function stands_for(u) {
    pick(u)
    if (nlines != 1 || lines[1] !~ /^See tutti_[a-z_]+\.$/)
        return 0
    return unit_of(substr(lines[1], 5, length(lines[1]) - 5))
}

function unit_page(u,    m, n, name, names, other, is_function) {
    m = main_of(u)
    name = unit_name[u, m]
    is_function = unit_kind[u, m] == "function"
    other = stands_for(u)
    title(name, 3, "Library Functions")
    for (n in mentioned)
        delete mentioned[n]
    for (n in own)
        delete own[n]
    for (n = 1; n <= unit_names[u]; n++)
        own[unit_name[u, n]] = 1
    names = name
    for (n = 1; n <= unit_names[u]; n++)
        if (n != m)
            names = names ", " unit_name[u, n]
    say(".SH NAME")
    wrap(names " \\- " escape(purpose(other ? other : u)) (other ? ", asynchronously" : ""))
    synopsis(u)
    if (is_function)
        parameter_list(u)
    say(".SH DESCRIPTION")
    if (other)
        prose("Starts what " unit_name[other, main_of(other)] " does, under a name, and returns " \
              "at once. The rules of all such calls are in " page_of(unit_header[u]) "(7).")
    if (other)
        say(".PP")
    pick(other ? other : u)
    body(is_function)
    if (is_function)
        return_value(u, name)
    pick(u)
    if (since != "") {
        say(".SH HISTORY")
        say("Since Tutti " since ".")
    }
    see_also(u, name)
    close(file)
    for (n = 1; n <= unit_names[u]; n++)
        if (n != m && unit_name[u, n] != name) {
            file = file_of(unit_name[u, n])
            say(".so man3/" name ".3")
            close(file)
        }
}

function index_of(header,    u, m) {
    for (u = 1; u <= nunits; u++) {
        m = main_of(u)
        if (unit_header[u] != header)
            continue
        say(".TP")
        say("\\fB" unit_name[u, m] "\\fP(3)")
        say(escape(purpose(stands_for(u) ? stands_for(u) : u)) \
            (stands_for(u) ? ", asynchronously" : ""))
    }
}

function header_page(header,    name, h) {
    name = page_of(header)
    for (h in own)
        delete own[h]
    title(name, 7, "Manual")
    say(".SH NAME")
    h = purpose(header)
    sub(/^Tutti: /, "", h)
    say(name " \\- " escape(h))
    say(".SH SYNOPSIS")
    say(".B #include <tutti/" header ">")
    if (header == "tutti.h") {
        say(".PP")
        say("cc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs tutti)")
    }
    say(".SH DESCRIPTION")
    pick(header)
    body(0)
    if (header == "tutti.h") {
        say(".SH FUNCTIONS AND TYPES")
        for (h = 1; h <= nheaders; h++) {
            if (headers[h] == header)
                continue
            say(".SS tutti/" headers[h])
            index_of(headers[h])
        }
        environment()
        say(".SH REPORTING BUGS")
        prose("Please add what tutti_info prints.")
        say(".SH SEE ALSO")
        for (h = 1; h <= nheaders; h++)
            if (headers[h] != header)
                say("\\fB" page_of(headers[h]) "\\fP(7),")
        say("\\fBtutti_info\\fP(1),")
        say("\\fBtutti_tune\\fP(1)")
    } else {
        say(".SH FUNCTIONS AND TYPES")
        index_of(header)
        say(".SH SEE ALSO")
        say("\\fBtutti\\fP(7)")
    }
    close(file)
}

END {
    for (u = 1; u <= nunits; u++)
        for (n = 1; n <= unit_names[u]; n++)
            known[unit_name[u, n]] = "3"
    for (h = 1; h <= nheaders; h++)
        known[page_of(headers[h])] = "7"
    for (u = 1; u <= nunits; u++)
        if (unit_names[u] > 0)
            unit_page(u)
    for (h = 1; h <= nheaders; h++)
        header_page(headers[h])
    exit failed
}
