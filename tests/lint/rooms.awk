# SPDX-License-Identifier: BSD-3-Clause
#
# awk -v law=lib/rooms.txt -f code.awk -f rooms.awk lib/room/file.c...: prints violations of the
# rules, and fails if there are any.

function complain(what) {
    print FILENAME ":" FNR ": " what
    bad = 1
}

function folder(path) {
    return sub(/\/[^\/]*$/, "", path) ? path : ""
}

function top_folder(path) {
    sub(/\/.*/, "", path)
    return path
}

BEGIN {
    while ((getline line < law) > 0) {
        if (line ~ /^#/ || (n = split(line, word, " ")) == 0)
            continue
        if (word[1] == "open:")
            continue # only state.sh reads this line
        if (word[1] == "only:") {
            sub(/^only: /, "", line)
            sub(/^[^ ]*/, "", line)
            only[word[2]] = line " "
        } else if (word[1] == "apart:") {
            groups++
            for (i = 2; i <= n; i++)
                group[word[i]] = groups
        } else {
            room = word[1]
            sub(/:/, "", room)
            sub(/^[^:]*:/, "", line)
            may[room] = " " room " " line " "
        }
    }
}

FNR == 1 {
    inside_comment = 0
    here = folder(FILENAME)
    sub(/^lib\//, "", here)
    file = FILENAME
    sub(/^lib\//, "", file)
    room = top_folder(here)
    if (!(room in may))
        complain("there is no room " room " in " law)
}

{ text = code($0) }

{
    for (name in only) {
        if (name ~ /^[<"]/)
            found = text ~ /^[ \t]*#[ \t]*include/ && index(text, name)
        else
            found = text ~ ("(^|[^A-Za-z0-9_\"])" name "([^A-Za-z0-9_]|$)")
        if (found && index(only[name], " " here " ") == 0 && index(only[name], " " file " ") == 0)
            complain(name " may stand only in" only[name])
    }
}

text ~ /^[ \t]*#[ \t]*include[ \t]*"/ {
    name = text
    sub(/^[^"]*"/, "", name)
    sub(/".*/, "", name)
    there = folder(name)
    if (name == "config.h")
        next
    if (!(top_folder(there) in may))
        complain("write #include \"room/file.h\"")
    else if (index(may[room], " " top_folder(there) " ") == 0)
        complain("room " room " may not include room " top_folder(there))
    else if (here != there && here in group && there in group && group[here] == group[there])
        complain(here " may not see its sibling " there)
    next
}

text ~ /^[ \t]*#[ \t]*include[ \t]*<tutti\// && text !~ /<tutti\/(tutti|cuda)\.h>/ {
    complain("include <tutti/tutti.h>, not its parts")
}

END { exit bad }
