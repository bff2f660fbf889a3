/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor's ends of channels. The start of a run opens the ends, unless the last run has
 * opened the same ends. Then each receiving end gets the number of messages to expect.
 */
#include "exec/exec_inside.h"

#include "base/status.h"

#include <stdlib.h>

static int has_ends(const tutti__run_t *run, const tutti__sched_t *sched)
{
    uint32_t differs = run->nends != sched->nchans;

    for (uint32_t i = 0; i < sched->nchans && !differs; i++) {
        const tutti__sched_chan_t *a = &run->ends[i].key, *b = &sched->chans[i];

        differs = (a->peer ^ b->peer) | (a->stream ^ b->stream) | (a->is_recv ^ b->is_recv);
    }
    return !differs;
}

static tutti_status_t open_end(tutti__run_t *run, const tutti__sched_chan_t *key,
                               tutti__end_t *ret_end)
{
    tutti__xport_t *x = run->env->xport[key->peer];
    tutti__chan_key_t name = { .lane = run->lane, .peer = key->peer, .stream = key->stream };
    tutti_status_t status;

    if (run->gpu_direct)
        tutti__run_gpu_direct_key(run, key, &name);
    status = key->is_recv ? x->ops->open_recv(x, &name, &ret_end->chan)
                          : x->ops->open_send(x, &name, &ret_end->chan);
    if (status != TUTTI_OK)
        return status;
    ret_end->ops = x->ops;
    ret_end->key = *key;
    ret_end->key.stream = (uint8_t)name.stream; /* so a GPU-direct end never equals another end */
    ret_end->least_placed = key->is_recv && x->ops->expect_at != NULL ? x->least_placed : 0;
    ret_end->is_placing = 0;
    ret_end->sent_bytes = 0;
    run->expects |= key->is_recv && x->ops->expect != NULL;
    return TUTTI_OK;
}

tutti_status_t tutti__run_open_ends(tutti__run_t *run, const tutti__sched_t *sched)
{
    tutti_status_t status = TUTTI_OK;

    if (sched->nchans == 0 || (!run->gpu_direct && has_ends(run, sched)))
        return TUTTI_OK;
    run->nends = 0;
    run->slots_used = 0;
    run->expects = 0;
    if (run->ends_capacity < sched->nchans) {
        tutti__end_t *ends = realloc(run->ends, sched->nchans * sizeof(*ends));

        if (ends == NULL)
            return tutti__fail(TUTTI_ERR_NO_MEMORY, "%u channels", sched->nchans);
        run->ends = ends;
        run->ends_capacity = sched->nchans;
    }
    for (uint32_t i = 0; status == TUTTI_OK && i < sched->nchans; i++)
        status = open_end(run, &sched->chans[i], &run->ends[i]);
    if (status == TUTTI_OK)
        run->nends = sched->nchans;
    return status;
}

size_t tutti__run_messages(const tutti__run_t *run, const tutti__op_t *op)
{
    const tutti__block_t *block = op->kind == TUTTI__SEND ? &run->place[op->sbuf].block[op->sblk]
                                                          : &run->place[op->dbuf].block[op->dblk];
    size_t largest = 0;

    for (uint32_t i = 0; i < op->nblk; i++)
        largest = TUTTI__MAX(largest, block[i].bytes);
    return tutti__divide_up(largest, run->message);
}

/* Post the first receives of the channels that receive into their place. */
static tutti_status_t post_first(const tutti__run_t *run)
{
    const tutti__sched_t *sched = run->sched;
    tutti_status_t status = TUTTI_OK;

    for (uint32_t s = 0; s < sched->nstreams; s++) {
        for (uint32_t i = sched->first[s]; i < sched->first[s + 1] && status == TUTTI_OK; i++) {
            const tutti__op_t *op = &sched->ops[i];

            if ((op->kind == TUTTI__RECV || op->kind == TUTTI__RECV_REDUCE) &&
                run->ends[op->chan].is_placing && run->ends[op->chan].ahead == 0)
                status = tutti__run_post(run, &run->stream[s], op->chan);
        }
    }
    return status;
}

/* Do messages of this end go into their place in this run? If so, place.c posts the receives, and a
   channel may accept only one message at a time. A schedule from a file is proved for TUTTI_CREDITS
   messages, so it gets slots. */
static int is_placing(const tutti__run_t *run, tutti__end_t *end)
{
    end->ahead = 0;
    end->left = 0;
    end->is_placing = run->device == NULL && run->wire == 0 && !run->sched->is_read &&
                      end->least_placed > 0 && run->message >= end->least_placed;
    return end->is_placing;
}

tutti_status_t tutti__run_expect(tutti__run_t *run)
{
    const tutti__sched_t *sched = run->sched;
    int places = 0;

    if (!run->expects)
        return TUTTI_OK;
    for (uint32_t i = 0; i < run->nends; i++)
        places |= is_placing(run, &run->ends[i]);
    for (uint32_t i = 0; i < sched->nops; i++) {
        const tutti__op_t *op = &sched->ops[i];
        tutti__end_t *end;
        size_t messages;
        tutti_status_t status = TUTTI_OK;

        if (op->kind != TUTTI__RECV && op->kind != TUTTI__RECV_REDUCE)
            continue;
        end = &run->ends[op->chan];
        messages = tutti__run_messages(run, op);
        if (end->ops->expect == NULL || messages == 0)
            continue;
        if (end->is_placing)
            end->left += messages;
        else
            status = end->ops->expect(end->chan, messages);
        if (status != TUTTI_OK)
            return status;
    }
    return places ? post_first(run) : TUTTI_OK;
}
