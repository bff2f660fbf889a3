/* SPDX-License-Identifier: BSD-3-Clause */
/* Channel ends by name. See chans.h. */
#include "sched/chans.h"

#include <stdlib.h>

#define FIRST_SLOTS 16

void tutti__chan_table_clear(tutti__chan_table_t *table)
{
    free(table->slots);
    *table = (tutti__chan_table_t){ NULL, 0, 0 };
}

static int same(tutti__sched_chan_t a, tutti__sched_chan_t b)
{
    return a.peer == b.peer && a.stream == b.stream && a.is_recv == b.is_recv;
}

/* The slot that has `name`, or the free slot for it. Multiplicative hashing (Knuth). */
static uint32_t *slot_of(const tutti__chan_table_t *table, const tutti__sched_chan_t *chans,
                         tutti__sched_chan_t name)
{
    uint32_t hash = tutti__chan_key(name) * 2654435769u;
    uint32_t at = (hash ^ hash >> 16) & (table->nslots - 1);

    while (table->slots[at] != 0 && !same(chans[table->slots[at] - 1], name))
        at = (at + 1) & (table->nslots - 1);
    return &table->slots[at];
}

static int grow_slots(tutti__chan_table_t *table, const tutti__sched_t *sched)
{
    tutti__chan_table_t more = { NULL, table->nslots > 0 ? 2 * table->nslots : FIRST_SLOTS,
                                 table->capacity };

    more.slots = calloc(more.nslots, sizeof(*more.slots));
    if (more.slots == NULL)
        return 0;
    for (uint32_t i = 0; i < sched->nchans; i++)
        *slot_of(&more, sched->chans, sched->chans[i]) = i + 1;
    free(table->slots);
    *table = more;
    return 1;
}

static int grow_chans(tutti__chan_table_t *table, tutti__sched_t *sched)
{
    uint32_t more = table->capacity > 0 ? 2 * table->capacity : FIRST_SLOTS / 2;
    tutti__sched_chan_t *chans = realloc(sched->chans, more * sizeof(*chans));

    if (chans == NULL)
        return 0;
    sched->chans = chans;
    table->capacity = more;
    return 1;
}

tutti_status_t tutti__chan_table_find(tutti__chan_table_t *table, tutti__sched_t *sched,
                                      tutti__sched_chan_t name, uint16_t *ret_index)
{
    uint32_t *slot;

    if (2 * sched->nchans >= table->nslots && !grow_slots(table, sched))
        return TUTTI_ERR_NO_MEMORY;
    slot = slot_of(table, sched->chans, name);
    if (*slot == 0) {
        if (sched->nchans > UINT16_MAX)
            return TUTTI_ERR_UNSUPPORTED;
        if (sched->nchans == table->capacity && !grow_chans(table, sched))
            return TUTTI_ERR_NO_MEMORY;
        sched->chans[sched->nchans++] = name;
        *slot = sched->nchans;
    }
    *ret_index = (uint16_t)(*slot - 1);
    return TUTTI_OK;
}

int tutti__chans_sort(tutti__sched_t *sched)
{
    tutti__sched_chan_t *chans = calloc(sched->nchans + 1, sizeof(*chans));
    uint32_t *number = calloc(sched->nchans + 1, sizeof(*number)); /* by old index; 0: none yet */
    uint32_t n = 0;

    if (chans == NULL || number == NULL) {
        free(number);
        free(chans);
        return 0;
    }
    for (uint32_t i = 0; i < sched->nops; i++) {
        tutti__op_t *op = &sched->ops[i];

        if (op->kind != TUTTI__SEND && op->kind != TUTTI__RECV && op->kind != TUTTI__RECV_REDUCE)
            continue;
        if (number[op->chan] == 0) {
            chans[n] = sched->chans[op->chan];
            number[op->chan] = ++n;
        }
        op->chan = (uint16_t)(number[op->chan] - 1);
    }
    free(number);
    free(sched->chans);
    sched->chans = chans;
    return 1;
}
