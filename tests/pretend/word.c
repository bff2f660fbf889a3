/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Semaphores that streams wait on. If a stream's semaphore is never set, the drop of the stream
 * hangs, and with it the test.
 */
#include "pretend/inside.h"

#include "base/atomic.h"

#include <unistd.h>

#define NAP_US 20

typedef struct {
    item_t item;
    const tutti__word_t *word;
    uint32_t value;
} word_item_t;

static _Alignas(64) char words[TUTTI__DEVICE_WORDS * TUTTI__DEVICE_WORD_BYTES];

tutti_status_t word_all(void **ret_words)
{
    *ret_words = words;
    return TUTTI_OK;
}

static void run(item_t *item, tutti__dstream_t *stream)
{
    const word_item_t *self = (const word_item_t *)item;

    (void)stream;
    while ((int32_t)(tutti__load_acquire(self->word) - self->value) < 0)
        usleep(NAP_US);
}

tutti_status_t word_await(tutti__dstream_t *stream, const void *word, uint32_t value)
{
    tutti_status_t status = stream_find("await", &stream);
    word_item_t *item;

    if (status == TUTTI_OK && stream_is_urgent(stream))
        return TUTTI_ERR_UNSUPPORTED;
    if (status == TUTTI_OK)
        status = stream_item(sizeof(*item), run, &item);
    if (status != TUTTI_OK)
        return status;
    item->word = word;
    item->value = value;
    device_count(stream_device(stream), PRETEND_AWAITS);
    return stream_push("await", stream, item);
}
