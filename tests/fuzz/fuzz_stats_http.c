/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzz target: the parser of the statistics' endpoint.
 *
 * The request arrives byte by byte. It is parsed after each byte, in memory of exactly the received
 * size. The client gets the first verdict. This may be the metrics only if the head is complete and
 * requests them.
 */
#include "fuzz.h"

#include "stats/stats_inside.h"

#include <stdlib.h>
#include <string.h>

static void demand(int truth)
{
    if (!truth)
        abort();
}

static tutti__http_asks_t parse(const uint8_t *data, size_t bytes, int is_full)
{
    char *copy = malloc(bytes > 0 ? bytes : 1);
    tutti__http_asks_t asks;

    demand(copy != NULL);
    memcpy(copy, data, bytes);
    asks = tutti__http_parse(copy, bytes, is_full);
    free(copy);
    return asks;
}

/* Does the head, which ends at `bytes`, request the metrics? */
static int is_sound(const uint8_t *data, size_t bytes)
{
    static const char begin[] = "GET /metrics";

    return bytes > sizeof(begin) && memcmp(data, begin, sizeof(begin) - 1) == 0 &&
           memchr(data, '\0', bytes) == NULL && data[bytes - 1] == '\n' &&
           (data[bytes - 2] == '\n' || (data[bytes - 2] == '\r' && data[bytes - 3] == '\n'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    tutti__http_asks_t asks = TUTTI__HTTP_MORE;
    size_t n = 0;

    if (bytes > TUTTI__HTTP_BYTES)
        bytes = TUTTI__HTTP_BYTES;
    while (asks == TUTTI__HTTP_MORE && n < bytes)
        asks = parse(data, ++n, 0);
    demand(asks >= TUTTI__HTTP_MORE && asks <= TUTTI__HTTP_BAD);
    demand(asks != TUTTI__HTTP_METRICS || is_sound(data, n));
    /* If the buffer is full, there must be a verdict. */
    demand(parse(data, bytes, 1) != TUTTI__HTTP_MORE);
    return 0;
}

size_t fuzz_seed(unsigned n, uint8_t *ret_data, size_t room)
{
    static const char *const seeds[] = { "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
                                         "GET /metrics?x HTTP/1.0\n\n",
                                         "HEAD / HTTP/1.1\r\nAccept: */*\r\n\r\n" };
    size_t bytes;

    if (n >= sizeof(seeds) / sizeof(*seeds))
        return 0;
    bytes = strlen(seeds[n]);
    if (bytes > room)
        return 0;
    memcpy(ret_data, seeds[n], bytes);
    return bytes;
}
