/* SPDX-License-Identifier: BSD-3-Clause */
/* See parse.h. The functions of the C library are not used: strtod depends on the locale, and
   strtoull accepts signs and white space. */
#include "conf/parse.h"

#include "base/compiler.h"

#include <string.h>
#include <strings.h>

/* Read digits, and move *text past the digits. Returns 0 without a digit, and after an overflow. */
static int digits(const char **text, uint64_t *ret_number)
{
    const char *at = *text;
    uint64_t number = 0;

    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*at - '0'), &number))
            return 0;
    if (at == *text)
        return 0;
    *text = at;
    *ret_number = number;
    return 1;
}

int tutti__parse_count(const char *text, uint64_t *ret_count)
{
    uint64_t number;

    if (!digits(&text, &number) || *text != '\0')
        return 0;
    *ret_count = number;
    return 1;
}

int tutti__parse_bytes(const char *text, uint64_t *ret_bytes)
{
    static const char units[] = "kmgt";
    const char *unit;
    uint64_t number;
    int shift = 0;

    if (!digits(&text, &number))
        return 0;
    unit = *text == '\0' ? NULL : strchr(units, *text | 0x20);
    if (unit != NULL) {
        shift = 10 * (int)(unit - units + 1);
        text++;
        if (strcasecmp(text, "b") == 0 || strcasecmp(text, "ib") == 0)
            text = "";
    }
    if (*text != '\0' || number > UINT64_MAX >> shift)
        return 0;
    *ret_bytes = number << shift;
    return 1;
}

int tutti__parse_seconds(const char *text, uint64_t *ret_ms)
{
    uint64_t seconds, ms = 0, unit = 100;
    int more = 0;

    if (!digits(&text, &seconds) || seconds > UINT64_MAX / 1000 - 1)
        return 0;
    if (*text == '.') {
        text++;
        if (*text < '0' || *text > '9')
            return 0;
        for (; *text >= '0' && *text <= '9'; text++, unit /= 10) {
            ms += unit * (uint64_t)(*text - '0');
            more |= unit == 0 && *text != '0';
        }
    }
    if (strcmp(text, "") != 0 && strcmp(text, "s") != 0)
        return 0;
    if (seconds == 0 && ms == 0 && more)
        return 0;
    *ret_ms = seconds * 1000 + ms + (uint64_t)more;
    return 1;
}

int tutti__parse_boolean(const char *text, int *ret_on)
{
    uint64_t index;

    if (!tutti__parse_choice(text, "0|1|false|true|no|yes|off|on", &index))
        return 0;
    *ret_on = (int)(index % 2);
    return 1;
}

int tutti__parse_choice(const char *text, const char *choices, uint64_t *ret_index)
{
    size_t length = strlen(text);

    for (uint64_t i = 0;; i++) {
        size_t here = strcspn(choices, "|");

        if (here == length && strncasecmp(text, choices, here) == 0) {
            *ret_index = i;
            return 1;
        }
        if (choices[here] == '\0')
            return 0;
        choices += here + 1;
    }
}

size_t tutti__parse_distance(const char *a, const char *b)
{
    size_t row[64], na = strlen(a), nb = strlen(b);

    if (na >= 64 || nb >= 64)
        return TUTTI__MAX(na, nb);
    /* Levenshtein: row[j] is the distance of a's first i letters and b's first j letters. */
    for (size_t j = 0; j <= nb; j++)
        row[j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t changed = diagonal + (a[i - 1] != b[j - 1]);

            diagonal = row[j];
            row[j] = TUTTI__MIN(changed, TUTTI__MIN(row[j], row[j - 1]) + 1);
        }
    }
    return row[nb];
}

static int is_of_host(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_';
}

/* Brackets contain numbers and ranges of numbers; the first number is used. */
int tutti__parse_first_host(const char *list, char *ret_host, size_t capacity)
{
    int inside = 0, is_first = 0;
    char host[256];
    size_t used = 0;

    for (; *list != '\0' && (inside || *list != ','); list++) {
        if (!inside && *list == '[') {
            inside = is_first = 1;
        } else if (inside && *list == ']') {
            inside = 0;
        } else if (!is_of_host(*list) && !(inside && *list == ',')) {
            return 0;
        } else if (!inside || (is_first && *list >= '0' && *list <= '9')) {
            if (used + 1 >= sizeof(host))
                return 0;
            host[used++] = *list;
        } else {
            is_first = 0;
        }
    }
    if (inside || used == 0 || used >= capacity)
        return 0;
    memcpy(ret_host, host, used);
    ret_host[used] = '\0';
    return 1;
}
