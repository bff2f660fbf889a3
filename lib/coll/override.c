/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The text of TUTTI_ALGORITHM. It is parsed at init, and again for each call that differs from the
 * previous call of its collective (cache.c).
 *
 *      text   item , item ; item ...
 *      item   collective : algorithm | collective : range : algorithm
 *      algorithm   name | name/sub | name(radix) | @path
 *      range  from-to | from-       bytes: from <= bytes < to; k, m, g are binary
 *
 * A path extends to the end of its item: it may have any characters except `,` and `;`.
 *
 * All errors that do not depend on the ranks are found here: unknown names, and sizes with two
 * algorithms. select.c checks whether an algorithm can serve a call; files.c checks the content of
 * files.
 */
#include "coll/override.h"

#include "base/compiler.h"
#include "base/status.h"

#include <string.h>

/* Names in messages are cut at this many bytes. */
#define NAME_SHOWN 64

#define MOST_RADIX 65535u

/* A part of the text. */
typedef struct {
    const char *text;
    size_t n;
} span_t;

static int is_name(span_t span, const char *name)
{
    return strlen(name) == span.n && memcmp(span.text, name, span.n) == 0;
}

static int is_one_of(char c, const char *set)
{
    return c != '\0' && strchr(set, c) != NULL;
}

static span_t trim(span_t span)
{
    while (span.n > 0 && is_one_of(span.text[0], " \t\r\n")) {
        span.text++;
        span.n--;
    }
    while (span.n > 0 && is_one_of(span.text[span.n - 1], " \t\r\n"))
        span.n--;
    return span;
}

/* Split *rest at its first character of `ends`, which is dropped. Returns 0 if there is none. */
static int cut(span_t *rest, const char *ends, span_t *ret_head)
{
    size_t n = 0;

    while (n < rest->n && !is_one_of(rest->text[n], ends))
        n++;
    *ret_head = trim((span_t){ rest->text, n });
    if (n == rest->n) {
        rest->text += n;
        rest->n = 0;
        return 0;
    }
    rest->text += n + 1;
    rest->n -= n + 1;
    return 1;
}

static int shown(span_t span)
{
    return (int)TUTTI__MIN(span.n, (size_t)NAME_SHOWN);
}

/* Add a name to a list for a message. Text that does not fit is cut off. */
static void list_name(char *list, size_t bytes, const char *name)
{
    size_t used = strlen(list);

    snprintf(list + used, bytes - used, "%s%s", used > 0 ? ", " : "", name);
}

static tutti_status_t unknown_collective(span_t name)
{
    char list[TUTTI__ERROR_BYTES / 2] = "";

    for (int c = 0; c < TUTTI__COLLECTIVES; c++)
        list_name(list, sizeof(list), tutti__collective_name((tutti__collective_t)c));
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                       "TUTTI_ALGORITHM: no collective is called \"%.*s\"; there are %s",
                       shown(name), name.text, list);
}

static tutti_status_t unknown_algorithm(tutti__collective_t collective, span_t name)
{
    char list[TUTTI__ERROR_BYTES / 2] = "";

    for (const tutti__algorithm_t *a = tutti__algorithms; a->name != NULL; a++) {
        if (a->collective == collective)
            list_name(list, sizeof(list), a->name);
    }
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                       "TUTTI_ALGORITHM: %s has no algorithm called \"%.*s\"; there are %s",
                       tutti__collective_name(collective), shown(name), name.text, list);
}

static tutti_status_t unknown_sub(const tutti__algorithm_t *algorithm, span_t name)
{
    char list[TUTTI__ERROR_BYTES / 2] = "";

    for (const char *const *sub = algorithm->subs; sub != NULL && *sub != NULL; sub++)
        list_name(list, sizeof(list), *sub);
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                       "TUTTI_ALGORITHM: %s:%s/%.*s: after the \"/\" of %s may come %s",
                       tutti__collective_name(algorithm->collective), algorithm->name, shown(name),
                       name.text, algorithm->name, list[0] != '\0' ? list : "nothing");
}

static tutti_status_t parse_collective(span_t name, tutti__collective_t *ret_collective)
{
    for (int c = 0; c < TUTTI__COLLECTIVES; c++) {
        if (is_name(name, tutti__collective_name((tutti__collective_t)c))) {
            *ret_collective = (tutti__collective_t)c;
            return TUTTI_OK;
        }
    }
    return unknown_collective(name);
}

/* Read and remove leading digits. Returns 0 if there are none, or too many. */
static int parse_digits(span_t *text, size_t *ret_number)
{
    size_t number = 0, i = 0;

    for (; i < text->n && text->text[i] >= '0' && text->text[i] <= '9'; i++) {
        size_t digit = (size_t)(text->text[i] - '0');

        if (number > (SIZE_MAX - digit) / 10)
            return 0;
        number = 10 * number + digit;
    }
    text->text += i;
    text->n -= i;
    *ret_number = number;
    return i > 0;
}

/* Read digits and an optional k, m or g. Returns 0 if they are malformed or too large. */
static int parse_bytes(span_t text, size_t *ret_bytes)
{
    static const char units[] = "kmg";
    size_t number;
    unsigned shift = 0;

    if (!parse_digits(&text, &number))
        return 0;
    if (text.n > 0) {
        char unit = (char)(text.text[0] | 0x20);

        if (text.n > 1 || !is_one_of(unit, units))
            return 0;
        shift = 10 * (unsigned)(strchr(units, unit) - units + 1);
    }
    if (number > SIZE_MAX >> shift)
        return 0;
    *ret_bytes = number << shift;
    return 1;
}

static tutti_status_t parse_range(span_t range, tutti__override_item_t *item)
{
    span_t rest = range, from;
    int ok = cut(&rest, "-", &from) && parse_bytes(from, &item->from);

    rest = trim(rest);
    item->to = SIZE_MAX;
    if (ok && rest.n > 0)
        ok = parse_bytes(rest, &item->to) && item->from < item->to;
    if (ok)
        return TUTTI_OK;
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                       "TUTTI_ALGORITHM: \"%.*s\" is no range of bytes, such as 0-4k (up to 4095"
                       " bytes) or 4k- (from 4096 on)",
                       shown(range), range.text);
}

/* Parse the text after the opening bracket of name(radix), including the closing bracket. */
static tutti_status_t parse_radix(span_t text, tutti__choice_t *choice)
{
    const tutti__algorithm_t *a = choice->algorithm;
    size_t radix = 0;
    span_t digits, rest;
    int is_closed = cut(&text, ")", &digits), ok = trim(text).n == 0;

    if (a->radix == 0)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "TUTTI_ALGORITHM: %s:%s has no radix",
                           tutti__collective_name(a->collective), a->name);
    if (!is_closed)
        return tutti__fail(
            TUTTI_ERR_INVALID_ARGUMENT, "TUTTI_ALGORITHM: %s:%s(%.*s: the \")\" is missing",
            tutti__collective_name(a->collective), a->name, shown(digits), digits.text);
    rest = digits;
    ok = ok && parse_digits(&rest, &radix) && rest.n == 0;
    if (!ok || radix < 2 || radix > MOST_RADIX)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "TUTTI_ALGORITHM: the radix of %s:%s is \"%.*s\", but must be 2 to %u,"
                           " as in %s(4)",
                           tutti__collective_name(a->collective), a->name, shown(digits),
                           digits.text, MOST_RADIX, a->name);
    choice->radix = (uint32_t)radix;
    return TUTTI_OK;
}

static tutti_status_t parse_sub(span_t name, tutti__choice_t *choice)
{
    for (const char *const *sub = choice->algorithm->subs; sub != NULL && *sub != NULL; sub++) {
        if (is_name(name, *sub)) {
            choice->sub = *sub; /* the table's pointer, so that callers may compare pointers */
            return TUTTI_OK;
        }
    }
    return unknown_sub(choice->algorithm, name);
}

static tutti_status_t parse_algorithm(span_t text, tutti__override_item_t *item)
{
    span_t rest = text, name;
    int has_more = cut(&rest, "/(", &name);

    for (const tutti__algorithm_t *a = tutti__algorithms; a->name != NULL; a++) {
        if (a->collective == item->collective && is_name(name, a->name))
            item->choice.algorithm = a;
    }
    if (item->choice.algorithm == NULL)
        return unknown_algorithm(item->collective, name);
    if (!has_more)
        return TUTTI_OK;
    return rest.text[-1] == '(' ? parse_radix(rest, &item->choice)
                                : parse_sub(trim(rest), &item->choice);
}

/* "@path" */
static tutti_status_t parse_file(span_t text, tutti__override_item_t *item)
{
    span_t path = trim((span_t){ text.text + 1, text.n - 1 });

    if (path.n == 0 || path.n >= TUTTI__FILE_PATH || memchr(path.text, '\n', path.n) != NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "TUTTI_ALGORITHM: after the \"@\" of %s must come the path of a file, of"
                           " 1 to %d bytes",
                           tutti__collective_name(item->collective), TUTTI__FILE_PATH - 1);
    item->path = path.text;
    item->path_bytes = path.n;
    return TUTTI_OK;
}

static tutti_status_t parse_item(span_t text, tutti__override_item_t *item)
{
    span_t rest = text, collective, range;
    tutti_status_t status;

    memset(item, 0, sizeof(*item));
    item->to = SIZE_MAX;
    if (!cut(&rest, ":", &collective))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "TUTTI_ALGORITHM: \"%.*s\" is not of the form collective:algorithm",
                           shown(text), text.text);
    status = parse_collective(collective, &item->collective);
    if (status != TUTTI_OK)
        return status;
    text = trim(rest);
    /* A path may have colons. */
    if ((text.n == 0 || text.text[0] != '@') && cut(&rest, ":", &range)) {
        text = trim(rest);
        status = parse_range(range, item);
    }
    if (status != TUTTI_OK)
        return status;
    return text.n > 0 && text.text[0] == '@' ? parse_file(text, item) : parse_algorithm(text, item);
}

static span_t item_name(const tutti__override_item_t *item)
{
    if (item->path != NULL)
        return (span_t){ item->path, item->path_bytes };
    return (span_t){ item->choice.algorithm->name, strlen(item->choice.algorithm->name) };
}

/* An item must not apply to the same sizes as an earlier item. */
static tutti_status_t check_overlap(const tutti__override_t *override,
                                    const tutti__override_item_t *item)
{
    for (uint32_t i = 0; i < override->n; i++) {
        const tutti__override_item_t *other = &override->items[i];
        span_t name = item_name(item), other_name = item_name(other);

        if (other->collective == item->collective && other->from < item->to &&
            item->from < other->to)
            return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                               "TUTTI_ALGORITHM: %s of %zu bytes is named twice, with %.*s and"
                               " %.*s; the range 0-4k ends before 4k",
                               tutti__collective_name(item->collective),
                               TUTTI__MAX(other->from, item->from), shown(other_name),
                               other_name.text, shown(name), name.text);
    }
    return TUTTI_OK;
}

tutti_status_t tutti__override_parse(const char *text, tutti__override_t *ret_override)
{
    span_t rest = { text, text != NULL ? strlen(text) : 0 };
    tutti_status_t status = TUTTI_OK;

    ret_override->n = 0;
    while (rest.n > 0 && status == TUTTI_OK) {
        tutti__override_item_t item;
        span_t span;

        cut(&rest, ",;", &span);
        if (span.n == 0)
            continue;
        if (ret_override->n == TUTTI__OVERRIDE_ITEMS)
            return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "TUTTI_ALGORITHM: more than %u items",
                               TUTTI__OVERRIDE_ITEMS);
        status = parse_item(span, &item);
        if (status == TUTTI_OK)
            status = check_overlap(ret_override, &item);
        if (status == TUTTI_OK)
            ret_override->items[ret_override->n++] = item;
    }
    return status;
}

int tutti__override_names(const tutti__override_t *override, tutti__collective_t collective)
{
    uint32_t i = 0;

    while (i < override->n && override->items[i].collective != collective)
        i++;
    return i < override->n;
}

const tutti__override_item_t *tutti__override_find(const tutti__override_t *override,
                                                   tutti__collective_t collective, size_t bytes)
{
    for (uint32_t i = 0; i < override->n; i++) {
        const tutti__override_item_t *item = &override->items[i];

        if (item->collective == collective && item->from <= bytes &&
            (bytes < item->to || item->to == SIZE_MAX))
            return item;
    }
    return NULL;
}
