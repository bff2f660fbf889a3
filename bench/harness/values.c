/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parsing the values of flags: numbers, ranges, lists.
 */
#include "harness/bench.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* A number with K, M or G. Returns its end; NULL: not a number. */
static const char *number(const char *text, uint64_t *ret_number)
{
    char *end;
    uint64_t n;
    int shift = 0;

    if (*text < '0' || *text > '9')
        return NULL;
    n = strtoull(text, &end, 10);
    switch (*end) {
    case 'k':
    case 'K':
        shift = 10;
        break;
    case 'm':
    case 'M':
        shift = 20;
        break;
    case 'g':
    case 'G':
        shift = 30;
        break;
    default:
        break;
    }
    if (n > (UINT64_C(1) << 60) >> shift)
        return NULL;
    *ret_number = n << shift;
    return end + (shift != 0);
}

int bench_speaks(void)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                         "SLURM_PROCID", "RANK" };

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const char *rank = getenv(names[i]);

        if (rank != NULL)
            return strcmp(rank, "0") == 0;
    }
    return 1;
}

int bench_number(const char *text, uint64_t *ret_number)
{
    uint64_t n;
    const char *end = number(text, &n);

    if (end == NULL || *end != '\0')
        return 0;
    *ret_number = n;
    return 1;
}

/* "4096+16" */
static int take_align(const char *text, bench_align_t *ret_align)
{
    const char *end = number(text, &ret_align->bytes);

    ret_align->offset = 0;
    if (end != NULL && *end == '+')
        end = number(end + 1, &ret_align->offset);
    return end != NULL && *end == '\0' && ret_align->bytes > 0 &&
           (ret_align->bytes & (ret_align->bytes - 1)) == 0 && ret_align->bytes <= 1 << 30 &&
           ret_align->offset < ret_align->bytes;
}

int bench_aligns(const char *text, bench_align_t *ret_aligns)
{
    int count = 0;
    size_t length;

    for (;; text += length + 1) {
        char one[64];

        length = strcspn(text, ",");
        if (count == BENCH_ALIGNS || length >= sizeof(one))
            return 0;
        memcpy(one, text, length);
        one[length] = '\0';
        if (!take_align(one, &ret_aligns[count++]))
            return 0;
        if (text[length] == '\0')
            return count;
    }
}

const char *bench_range(const char *text, uint64_t *ret_first, uint64_t *ret_last)
{
    uint64_t first = 0;
    uint64_t last;
    const char *end = number(text, &first);
    int has_first = end != NULL && *end == ':';

    last = first;
    if (has_first)
        end = number(end + 1, &last);
    if (end != NULL && isalpha((unsigned char)*end))
        return "unknown unit; there are K, M and G";
    if (end == NULL || *end != '\0')
        return "want [MIN:]MAX";
    if (first > last)
        return "MIN is larger than MAX";
    if (has_first)
        *ret_first = first;
    *ret_last = last;
    return NULL;
}

int bench_is_module(const char *text)
{
    size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");

    return length > 0 && text[length] == '\0';
}

int bench_percentiles(const char *text, int *ret_percent)
{
    int count = 0;

    for (;; text++) {
        char *end;
        long percent = strtol(text, &end, 10);

        if (*text < '0' || *text > '9' || percent < 1 || percent > 100 || count == BENCH_TAILS)
            return 0;
        ret_percent[count++] = (int)percent;
        text = end;
        if (*text == '\0')
            return count;
        if (*text != ',')
            return 0;
    }
}
