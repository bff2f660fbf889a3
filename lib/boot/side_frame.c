/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parser of frames. See side_frame.h.
 */
#include "boot/side_frame.h"

#include "base/constants.h"

#include <stdlib.h>
#include <string.h>

/* The body of a frame with 0 bytes of body points here. */
static _Alignas(8) char nothing[8];

/* Make space for at least one more byte of the body. The space doubles, so all calls of realloc()
   together copy fewer bytes than the link receives. */
static tutti_status_t grow(tutti__frame_in_t *in)
{
    size_t capacity = TUTTI__MAX(2 * in->capacity, TUTTI__SIDE_SMALL_BYTES);
    char *body;

    capacity = TUTTI__MIN(capacity, TUTTI__MAX((size_t)in->head.bytes, TUTTI__SIDE_SMALL_BYTES));
    body = realloc(in->body, capacity);
    if (body == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "message of %u bytes", in->head.bytes);
    in->body = body;
    in->capacity = capacity;
    return TUTTI_OK;
}

static void begin(tutti__frame_in_t *in)
{
    in->have = 0;
    in->whole = 0;
    if (in->body == nothing)
        in->body = NULL;
    if (in->capacity > TUTTI__SIDE_SMALL_BYTES) {
        free(in->body);
        in->body = NULL;
        in->capacity = 0;
    }
}

static void take(tutti__frame_in_t *in, char *to, size_t wanted, const char **data, size_t *bytes)
{
    size_t n = TUTTI__MIN(wanted, *bytes);

    memcpy(to, *data, n);
    in->have += n;
    *data += n;
    *bytes -= n;
}

tutti_status_t tutti__frame_take(tutti__frame_in_t *in, const char **data, size_t *bytes)
{
    if (in->whole)
        begin(in);
    if (in->have < sizeof(in->head)) {
        if (*bytes == 0)
            return TUTTI__AGAIN;
        take(in, (char *)&in->head + in->have, sizeof(in->head) - in->have, data, bytes);
        if (in->have < sizeof(in->head))
            return TUTTI__AGAIN;
        if (in->head.bytes > TUTTI__FRAME_BYTES)
            return tutti__fail(TUTTI_ERR_TRANSPORT,
                               "a message of %u bytes and kind %u makes no sense", in->head.bytes,
                               in->head.kind);
    }
    while (in->have < sizeof(in->head) + in->head.bytes) {
        size_t at = in->have - sizeof(in->head);

        if (*bytes == 0)
            return TUTTI__AGAIN;
        if (at == in->capacity) {
            tutti_status_t status = grow(in);

            if (status != TUTTI_OK)
                return status;
        }
        take(in, in->body + at, TUTTI__MIN(in->head.bytes, in->capacity) - at, data, bytes);
    }
    if (in->body == NULL)
        in->body = nothing;
    in->whole = 1;
    return TUTTI_OK;
}

void tutti__frame_clear(tutti__frame_in_t *in)
{
    if (in->body != nothing)
        free(in->body);
    *in = (tutti__frame_in_t){ 0 };
}
