/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzz target: the parser of the side channel's frames.
 *
 * The first byte selects how the rest is cut into pieces. For each way of cutting, the parser must
 * return the same frames, which must be inside the limits. It must not allocate memory for bytes
 * that have not arrived.
 */
#include "fuzz.h"

#include "base/hash.h"
#include "boot/side_frame.h"

#include <stdlib.h>
#include <string.h>

/* A hash of all frames that the parser has returned, their number, and the way in which parsing has
   ended. */
typedef struct {
    uint64_t hash;
    unsigned frames;
    tutti_status_t status;
} outcome_t;

static void demand(int truth)
{
    if (!truth)
        abort();
}

static void take_piece(tutti__frame_in_t *in, const char *piece, size_t bytes, size_t so_far,
                       outcome_t *outcome)
{
    for (;;) {
        outcome->status = tutti__frame_take(in, &piece, &bytes);
        demand(in->capacity <= 2 * so_far + 65536);
        if (outcome->status != TUTTI_OK)
            return;
        demand(in->head.bytes <= TUTTI__FRAME_BYTES);
        demand((uintptr_t)in->body % 8 == 0);
        outcome->hash = tutti__hash_more(outcome->hash, &in->head, sizeof(in->head));
        outcome->hash = tutti__hash_more(outcome->hash, in->body, in->head.bytes);
        outcome->frames++;
    }
}

/* Parse the data in pieces of `step` bytes; 0: in one piece. */
static outcome_t parse(const char *data, size_t bytes, size_t step)
{
    outcome_t outcome = { TUTTI__HASH_INIT, 0, TUTTI__AGAIN };
    tutti__frame_in_t in = { 0 };
    size_t at = 0;

    while (at < bytes && outcome.status == TUTTI__AGAIN) {
        size_t n = step == 0 ? bytes : TUTTI__MIN(step, bytes - at);

        at += n;
        take_piece(&in, data + at - n, n, at, &outcome);
    }
    tutti__frame_clear(&in);
    return outcome;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    outcome_t whole, cut;
    size_t step;

    if (bytes == 0)
        return 0;
    step = data[0];
    whole = parse((const char *)data + 1, bytes - 1, 0);
    cut = parse((const char *)data + 1, bytes - 1, step);
    demand(whole.hash == cut.hash);
    demand(whole.frames == cut.frames);
    demand(whole.status == cut.status);
    return 0;
}

static size_t put_frame(uint8_t *at, uint32_t bytes, uint32_t kind)
{
    tutti__frame_head_t head = { bytes, kind };

    memcpy(at, &head, sizeof(head));
    memset(at + sizeof(head), (int)kind, bytes);
    return sizeof(head) + bytes;
}

size_t fuzz_seed(unsigned n, uint8_t *ret_data, size_t room)
{
    static const uint32_t lengths[] = { 0, 1, 8, 100, 3000, 0, 17 };
    size_t used = 1;

    if (n >= 4 || room < 8192)
        return 0;
    ret_data[0] = (uint8_t)(n == 0 ? 0 : 1u << (2 * n));
    for (uint32_t i = n; i < sizeof(lengths) / sizeof(*lengths); i++)
        used += put_frame(ret_data + used, lengths[i], i + n);
    return used;
}
