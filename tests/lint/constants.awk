# SPDX-License-Identifier: BSD-3-Clause
#
# awk -v table=lib/base/constants.h -f code.awk -f constants.awk FILE...: prints constants of the
# table without a source, and times and numbers of attempts that other files define, or write as
# numbers where they use them. Fails if there are any.

function complain(what) {
    print FILENAME ":" FNR ": " what
    bad = 1
}

FNR == 1 { inside_comment = 0 }
{ text = code($0) }

# ---- the table ----

FILENAME == table && /^\/\*/ { sourced = 0 }
FILENAME == table && /(Measured|Derived|Chosen|Estimated|Given)[:,]/ { sourced = 1 }
FILENAME == table && /^#define TUTTI__/ && NF > 2 {
    if (!sourced)
        complain("no source: " $2)
    if (seen[$2]++)
        complain("twice: " $2)
}
FILENAME == table { next }

# ---- the other files ----

# A limit of input (LONGEST_MS) is not a constant of this kind.
text ~ /^#[ \t]*define[ \t]+[A-Z0-9_]+_(NS|US|MS|S|LOOKS|YIELDS|STEPS)[ \t]+\(*[0-9]/ &&
    text !~ /define[ \t]+LONGEST_MS/ {
    complain("belongs into " table)
}
text ~ /(^|[^a-z_])(usleep|tutti__net_sleep_ms)\([0-9]/ {
    complain("a time that belongs into " table)
}

END { exit bad }
