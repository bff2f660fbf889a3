/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct messages: the comparison of sender and receiver, and the data.
 *
 * Sender and receiver exchange heads: type and count. Both compare the same two heads, with the
 * same result. If the heads differ, no data moves, and the call ends with MISMATCH on both ranks.
 *
 *      sender --head--> receiver        equal:      sender ==data==> receiver
 *      sender <--head-- receiver        different:  MISMATCH on both
 *
 * A sendrecv has two sides, as sender and as receiver, with one peer or with two peers. Each side
 * proceeds independently: if one side waited for the other, a ring of ranks could deadlock. So a
 * mismatch on one side does not stop the other side, whose peer has no error.
 *
 * A peer that is in a collective call reads no heads. On one host both ranks wait until
 * TUTTI_TIMEOUT; between hosts the message's length reveals the mismatch.
 *
 * Rejected: the head in front of the data. The sender would not get the receiver's arguments. The
 * cost of two heads: a message each way precedes the data, so a short message takes twice as long.
 */
#include "call/pairs.h"

#include "base/names.h"
#include "call/call_inside.h"

#include <assert.h>
#include <string.h>

#define NOBODY UINT32_MAX
#define MARK 0x70616900u /* marks a head; lowest byte: the type */

/* If collective calls are compared, they begin with frames, which are longer than a head. */
static_assert(sizeof(tutti__head_t) < sizeof(tutti__frame_t), "a head is recognised by its length");

enum {
    SENDER,
    RECEIVER,
    SIDES
};

static unsigned long long count_of(const tutti__head_t *head)
{
    uint64_t count;

    memcpy(&count, head->count, sizeof(count));
    return count;
}

static const char *type_of(const tutti__head_t *head)
{
    return tutti__dtype_name((tutti_dtype_t)(head->type & 0xff));
}

/* Report a mismatch with the same text on both ranks. */
static tutti_status_t fail(const tutti__pairs_t *pairs, int i)
{
    const tutti__partner_t *side = &pairs->side[i];
    uint32_t rank = pairs->env->exec->rank;
    const tutti__head_t *gives = i == SENDER ? &side->mine : &side->its;
    const tutti__head_t *expects = i == SENDER ? &side->its : &side->mine;

    return tutti__fail(TUTTI_ERR_MISMATCH,
                       "rank %u sends %llu elements of %s to rank %u, which expects %llu of %s",
                       i == SENDER ? rank : side->peer, count_of(gives), type_of(gives),
                       i == SENDER ? side->peer : rank, count_of(expects), type_of(expects));
}

void tutti__pairs_init(tutti__pairs_t *pairs, const tutti__call_env_t *env)
{
    pairs->env = env;
    for (int i = 0; i < SIDES; i++)
        tutti__run_init(&pairs->side[i].run, env->exec, 0);
}

void tutti__pairs_fini(tutti__pairs_t *pairs)
{
    for (int i = 0; i < SIDES; i++)
        tutti__run_fini(&pairs->side[i].run);
}

static tutti_status_t start(tutti__pairs_t *pairs, int i, tutti__partner_stage_t stage)
{
    tutti__partner_t *side = &pairs->side[i];
    uint32_t dest = i == SENDER ? side->peer : NOBODY, source = i == SENDER ? NOBODY : side->peer;
    tutti__exec_call_t heads = {
        .in = &side->mine,
        .out = &side->its,
        .count = sizeof(tutti__head_t) / sizeof(uint32_t),
        .dtype = TUTTI_UINT32,
        .op = TUTTI_SUM,
        .tag = side->data.tag,
        .signature = MARK,
    };
    const tutti__sched_t *sched;
    tutti_status_t status = stage == TUTTI__SIDE_HEADS
                                ? tutti__cache_heads(pairs->env->cache, dest, source, &sched)
                                : tutti__cache_sendrecv(pairs->env->cache, dest, source, &sched);

    if (status != TUTTI_OK)
        return status;
    assert(side->stage == (stage == TUTTI__SIDE_DATA && pairs->env->conf->compare
                               ? TUTTI__SIDE_HEADS
                               : TUTTI__SIDE_DONE));
    side->stage = stage;
    return tutti__run_start(&side->run, sched, stage == TUTTI__SIDE_HEADS ? &heads : &side->data);
}

/* Continue after the end of a side's run. */
static tutti_status_t go_on(tutti__pairs_t *pairs, int i)
{
    tutti__partner_t *side = &pairs->side[i];

    assert(side->stage == TUTTI__SIDE_HEADS || side->stage == TUTTI__SIDE_DATA);
    if (side->stage == TUTTI__SIDE_DATA) {
        side->stage = TUTTI__SIDE_DONE;
        return TUTTI_OK;
    }
    if ((side->its.type & ~0xffu) != MARK)
        return tutti__fail(TUTTI_ERR_MISMATCH, "rank %u is in another call", side->peer);
    if (memcmp(&side->mine, &side->its, sizeof(side->mine)) != 0)
        side->stage = TUTTI__SIDE_WRONG;
    else if (count_of(&side->mine) == 0)
        side->stage = TUTTI__SIDE_DONE;
    else
        return start(pairs, i, TUTTI__SIDE_DATA);
    return TUTTI_OK;
}

static int is_open(const tutti__partner_t *side)
{
    return side->stage == TUTTI__SIDE_HEADS || side->stage == TUTTI__SIDE_DATA;
}

tutti_status_t tutti__pairs_step(tutti__pairs_t *pairs, tutti__hint_t *hint)
{
    int blocked = 0;

    *hint = (tutti__hint_t){ NULL, 0, -1 };
    for (int i = 0; i < SIDES; i++) {
        tutti__partner_t *side = &pairs->side[i];
        tutti_status_t status = TUTTI_OK;

        while (is_open(side) && status == TUTTI_OK) {
            tutti__hint_t here;

            status = tutti__run_step(&side->run, &here);
            if (status == TUTTI_OK)
                status = go_on(pairs, i);
            else if (status == TUTTI__AGAIN && (hint->peer < 0 || here.word != NULL))
                *hint = here;
        }
        if (status == TUTTI__AGAIN)
            blocked++;
        else if (status != TUTTI_OK)
            return status;
    }
    /* If both sides are blocked, there is no single word to sleep on. */
    if (blocked > 1)
        hint->word = NULL;
    return blocked > 0 ? TUTTI__AGAIN : TUTTI_OK;
}

uint32_t tutti__pairs_moves(const tutti__pairs_t *pairs)
{
    return pairs->side[SENDER].run.moves + pairs->side[RECEIVER].run.moves;
}

void tutti__pairs_cancel(tutti__pairs_t *pairs)
{
    for (int i = 0; i < SIDES; i++) {
        if (is_open(&pairs->side[i]))
            tutti__run_cancel(&pairs->side[i].run);
        pairs->side[i].stage = TUTTI__SIDE_DONE;
    }
}

/* ---- the call ---- */

/* Prepare one side. */
static void take(tutti__partner_t *side, uint32_t peer, const tutti__call_t *call, size_t count)
{
    uint64_t number = count;

    side->stage = TUTTI__SIDE_DONE;
    side->peer = peer;
    side->mine.type = MARK | (uint32_t)call->dtype;
    memcpy(side->mine.count, &number, sizeof(number));
}

static tutti_status_t allowed(const tutti__pairs_t *pairs, uint32_t dest, uint32_t source)
{
    const tutti__sched_t *sched;
    tutti_status_t status = tutti__cache_sendrecv(pairs->env->cache, dest, source, &sched);

    return status == TUTTI_OK ? tutti__own_allows(pairs->env, sched) : status;
}

/* UNSUPPORTED is returned before any side has started. */
tutti_status_t tutti__pairs_start(tutti__pairs_t *pairs, const tutti__call_t *call,
                                  const tutti__exec_call_t *exec)
{
    static const size_t nothing[2];
    int compares = pairs->env->conf->compare;
    int sends = call->kind != TUTTI_CALL_RECV && (compares || exec->in_count > 0);
    int receives = call->kind != TUTTI_CALL_SEND && (compares || exec->count > 0);
    uint32_t source = call->kind == TUTTI_CALL_SENDRECV ? call->source : call->root;
    tutti__partner_t *sender = &pairs->side[SENDER], *receiver = &pairs->side[RECEIVER];
    tutti__partner_stage_t first = compares ? TUTTI__SIDE_HEADS : TUTTI__SIDE_DATA;
    tutti_status_t status = TUTTI_OK;

    if (sends)
        status = allowed(pairs, call->root, NOBODY);
    if (status == TUTTI_OK && receives)
        status = allowed(pairs, NOBODY, source);
    if (status != TUTTI_OK)
        return status;
    take(sender, call->root, call, exec->in_count);
    take(receiver, source, call, exec->count);
    sender->data = receiver->data = *exec;
    sender->data.count = receiver->data.in_count = 0;
    sender->data.table = receiver->data.in_table = nothing;
    if (sends)
        status = start(pairs, SENDER, first);
    if (status == TUTTI_OK && receives)
        status = start(pairs, RECEIVER, first);
    return status;
}

int tutti__pairs_has_received(const tutti__pairs_t *pairs)
{
    return pairs->side[RECEIVER].stage == TUTTI__SIDE_DONE;
}

tutti_status_t tutti__pairs_end(const tutti__pairs_t *pairs)
{
    int first = pairs->side[RECEIVER].peer < pairs->env->exec->rank ? RECEIVER : SENDER;

    /* If both sides mismatch, report the side whose sender has the lower rank. So if both sides
       have the same peer, this peer reports the same side. */
    for (int i = 0; i < SIDES; i++)
        if (pairs->side[first ^ i].stage == TUTTI__SIDE_WRONG)
            return fail(pairs, first ^ i);
    return TUTTI_OK;
}
