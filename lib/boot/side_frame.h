/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames: messages on a stream of bytes, such as a connection of the side channel (boot.h).
 *
 *     | length of body (4) | kind (4) | body ... |     in host byte order, equal on all ranks
 *
 * The parser takes pieces of any length, as a socket returns them. The parser does not trust the
 * length in a frame: a length above the limit is an error, and memory grows with the received
 * bytes, not with this length. The parser uses no sockets, so it can be fuzzed.
 */
#ifndef TUTTI__BOOT_SIDE_FRAME_H
#define TUTTI__BOOT_SIDE_FRAME_H

#include "base/status.h"

/* Longest body. */
#define TUTTI__FRAME_BYTES ((size_t)16 << 20)

typedef struct {
    uint32_t bytes; /* of the body */
    uint32_t kind;
} tutti__frame_head_t;

/* All zeros is the initial state. */
typedef struct {
    tutti__frame_head_t head;
    size_t have;     /* bytes of head and body received */
    int whole;       /* 1: the caller has the whole frame; the next byte begins another frame */
    char *body;      /* aligned to 8 */
    size_t capacity; /* bytes allocated for body */
} tutti__frame_in_t;

/*
 * Take bytes, at most up to the end of a frame; *data and *bytes advance over the taken bytes.
 *
 * TUTTI_OK: a frame is whole; in->head and in->body are valid until the next call.
 * TUTTI__AGAIN: all bytes are taken and more are needed. TUTTI_ERR_TRANSPORT,
 * TUTTI_ERR_NO_MEMORY: the stream is lost.
 */
tutti_status_t tutti__frame_take(tutti__frame_in_t *in, const char **data, size_t *bytes);

/* Free the body. */
void tutti__frame_clear(tutti__frame_in_t *in);

#endif
