# SPDX-License-Identifier: BSD-3-Clause
#
# From the text of a comment, in lines[1..nlines], to the language of manual pages.
#
# Paragraphs are separated by blank lines. Two blanks end a term, which the rest of the line, and
# lines that begin further right, explain. What stands four columns further right than its
# surroundings, behind a blank line, is printed as it is. A line that is no sentence, above one that
# begins further right, is a heading. An option of a program begins a term, too.

function say(line) {
    print line >file
}

function begin(name, section, kind) {
    say(".\\\" Made by make; do not edit.")
    say(".TH " name " " section " " date " \"Tutti " version "\" \"Tutti " kind "\"")
    say(".nh")
    say(".ad l")
}

function escape(s) {
    gsub(/\\/, "\\e", s)
    gsub(/-/, "\\-", s)
    gsub(/'/, "\\(aq", s)
    gsub(/\^/, "\\(ha", s)
    gsub(/~/, "\\(ti", s)
    return s
}

# Of section 7.
function page_of(header) {
    sub(/\.h$/, "", header)
    return header == "tutti" ? "tutti" : "tutti_" header
}

# In bold: names that have a page, with its section, and constants; in italics what is in backticks.
function decorate(s,    done, word, key) {
    while (match(s, ("`[^`]+`|TUTTI_[A-Z0-9_]+(=[a-z0-9]+)?|tutti_[a-z0-9_]+([(][)])?|" \
                     "(tutti/)?[a-z]+[.]h"))) {
        word = substr(s, RSTART, RLENGTH)
        done = done escape(substr(s, 1, RSTART - 1))
        s = substr(s, RSTART + RLENGTH)
        key = word
        sub(/\(\)$/, "", key)
        if (key ~ /\.h$/) {
            sub(/^tutti\//, "", key)
            key = key in head_lines ? page_of(key) : word
        }
        if (word ~ /^`/)
            done = done "\\fI" escape(substr(word, 2, length(word) - 2)) "\\fP"
        else if (key in known && key != page && !(key in own)) {
            if (s ~ /^\([0-9]\)/)
                s = substr(s, 4)
            done = done "\\fB" key "\\fP(" known[key] ")"
            mentioned[key] = 1
        } else if (key ~ /\.h$/)
            done = done escape(word)
        else
            done = done "\\fB" escape(word) "\\fP"
    }
    return done escape(s)
}

# In lines of the source that are not too long, and do not look like requests.
function wrap(s,    n, i, word, line) {
    n = split(s, word, / +/)
    for (i = 1; i <= n; i++) {
        if (line != "" && length(line) + 1 + length(word[i]) > 76) {
            say(line)
            line = ""
        }
        if (line == "" && word[i] ~ /^[.']/)
            word[i] = "\\&" word[i]
        line = line (line == "" ? "" : " ") word[i]
    }
    if (line != "")
        say(line)
}

function prose(s) {
    wrap(decorate(s))
}

function column(line) {
    match(line, /^ */)
    return RLENGTH
}

# Is it a term and its explanation? Sets item_term, and item_text to the column of the rest.
function is_item(i,    line) {
    line = lines[i]
    if (match(line, /^TUTTI_(OK|ERR_[A-Z_]+): /)) {
        item_term = substr(line, 1, RLENGTH - 2)
        item_text = RLENGTH
        return 1
    }
    if (line ~ /^ +--?[a-zA-Z][^ ]*( --[^ ]*)?$/)
        line = line "  "
    else if (line !~ /^ *[^ ]+( [^ ]+)*  +[^ ]/)
        return 0
    match(line, /^ *[^ ]+( [^ ]+)*  +/)
    item_text = RLENGTH
    item_term = substr(line, 1, RLENGTH)
    gsub(/^ +| +$/, "", item_term)
    return length(item_term) <= 36
}

# Lines from i on that belong to the item there: the last one's number.
function item_end(i,    indent, is_error) {
    indent = column(lines[i])
    is_error = lines[i] ~ /^TUTTI_(OK|ERR_[A-Z_]+): /
    while (i < nlines && lines[i + 1] != "") {
        if (is_error ? lines[i + 1] ~ /^TUTTI_(OK|ERR_[A-Z_]+): / : column(lines[i + 1]) <= indent)
            break
        if (lines[i + 1] ~ /^ *--?[a-zA-Z]/)
            break
        i++
    }
    return i
}

function find_item(name,    i, n, k, term) {
    for (i = 1; i <= nlines; i++) {
        if (!is_item(i))
            continue
        n = split(item_term, term, /, */)
        for (k = 1; k <= n; k++)
            if (term[k] == name)
                return i
    }
    return 0
}

# Is the item at i about parameters of the page's functions only?
function is_of_parameters(i,    n, k, term) {
    if (!is_item(i))
        return 0
    n = split(item_term, term, /, */)
    for (k = 1; k <= n; k++)
        if (!(term[k] in is_parameter))
            return 0
    return 1
}

function is_error_item(i) {
    return is_item(i) && item_term ~ /^TUTTI_(OK|ERR_[A-Z_]+)$/ && column(lines[i]) <= 2
}

function join_lines(from, to, first_column,    i, all, line) {
    for (i = from; i <= to; i++) {
        line = i == from ? substr(lines[i], first_column + 1) : lines[i]
        gsub(/^ +| +$/, "", line)
        all = all (i == from ? "" : " ") line
    }
    return all
}

# Print the item at i under the name `term`. In bold stands what is to be written as it is.
function print_item(i, term,    explanation) {
    is_item(i)
    say(".TP")
    if (term ~ /^(TUTTI_|-)/)
        say("\\fB" term "\\fP")
    else if (term ~ /\.h$/)
        prose(term)
    else
        say("\\fI" escape(term) "\\fP")
    explanation = join_lines(i, item_end(i), item_text)
    sub(/\.$/, "", explanation)
    prose(explanation)
}

function is_heading(i) {
    return i < nlines && lines[i] ~ /^[A-Z][^.:;,]*$/ && length(lines[i]) < 48 && \
        (i == 1 || lines[i - 1] == "") && column(lines[i + 1]) >= 2 && !is_item(i)
}

function is_return(i) {
    return (i == 1 || lines[i - 1] == "") && lines[i] ~ /^Returns /
}

function paragraph_end(i,    indent) {
    indent = column(lines[i])
    while (i < nlines && lines[i + 1] != "" && column(lines[i + 1]) == indent && !is_item(i + 1))
        i++
    return i
}

# Lines that are printed as they are: up to one that begins further left.
function verbatim(i, base) {
    say(".PP")
    say(".nf")
    say(".RS 4")
    while (i <= nlines && (lines[i] == "" || column(lines[i]) >= base)) {
        if (lines[i] != "")
            say(escape(substr(lines[i], base + 1)))
        i++
    }
    say(".RE")
    say(".fi")
    return i
}

# All lines. Of a function: without what other sections have.
function body(is_function,    i, base, fresh, to) {
    base = 0
    fresh = 1
    for (i = 1; i <= nlines; i = to + 1) {
        to = i
        if (lines[i] == "")
            continue
        if (column(lines[i]) < base)
            base = 0
        if (is_heading(i)) {
            say(".SS " escape(lines[i]))
            base = column(lines[i + 1])
            fresh = 1
        } else if (is_item(i)) {
            to = item_end(i)
            is_item(i)
            if (is_function && (is_of_parameters(i) || is_error_item(i)))
                continue
            print_item(i, item_term)
            fresh = 0
        } else if (i > 1 && lines[i - 1] == "" && column(lines[i]) >= base + 4) {
            to = verbatim(i, column(lines[i])) - 1
            fresh = 0
        } else {
            to = paragraph_end(i)
            if (is_function && is_return(i))
                continue
            if (!fresh)
                say(".PP")
            prose(join_lines(i, to, 0))
            fresh = 0
        }
    }
}

# Those that were not said before.
function errors(    i, term) {
    for (i = 1; i <= nlines; i++)
        if (is_error_item(i) && !(item_term in said)) {
            term = item_term
            print_item(i, term)
            said[term] = 1
        }
}

# 1 if there was a paragraph about it.
function returns(    i, found) {
    for (i = 1; i <= nlines; i++)
        if (is_return(i)) {
            prose(join_lines(i, paragraph_end(i), 0))
            found = 1
        }
    return found
}
