/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct messages: what two ranks tell each other before, and the data.
 *
 * Between rank and peer goes one head each way: what it gives the other, what it expects, and the
 * type. Both compare the same two heads, so both find the same. Where they do not fit, nothing goes
 * between these two, and the call ends with MISMATCH; what a sendrecv has to do with a third rank
 * is served all the same, since that one knows of no error. All channels are empty again then.
 *
 *      rank 0 --head--> rank 1         fits:  rank 0 ==data==> rank 1
 *      rank 0 <--head-- rank 1         else:  MISMATCH on both
 *
 * A peer that is in a collective call reads no heads: on one host both wait until TUTTI_TIMEOUT;
 * between hosts the length tells.
 *
 * Rejected: the head in front of the data. The sender would not hear what the receiver came with.
 * Price: a message each way before the data, so a short one takes about twice as long.
 */
#include "api/direct.h"

#include "base/names.h"
#include "base/status.h"

#include <assert.h>
#include <string.h>

#define NOBODY UINT32_MAX
#define MARK 0x70616900u /* tells a head from data; lowest byte: the type */

typedef struct {
    uint32_t type;
    uint32_t gives[2], expects[2]; /* elements, 64 bits; 0: nothing */
} head_t;

/* Calls that compare begin with 8-byte numbers: such a message is never as long as a head. */
static_assert(sizeof(head_t) % sizeof(uint64_t) != 0, "heads are told by their length");

/* The blocks of tutti__cache_heads. */
enum {
    DEST,
    SOURCE,
    SIDES
};

typedef struct {
    uint32_t peer[SIDES]; /* NOBODY: there is no such side */
    head_t mine[SIDES], theirs[SIDES];
} pairs_t;

/* ---- words ---- */

static unsigned long long number(const uint32_t *half)
{
    uint64_t value;

    memcpy(&value, half, sizeof(value));
    return value;
}

/* "sends rank 1 10 x float32" */
static void describe(const head_t *head, uint32_t peer, char *text, size_t bytes)
{
    const char *type = tutti__dtype_name((tutti_dtype_t)(head->type & 0xff));
    unsigned long long gives = number(head->gives), expects = number(head->expects);

    if (expects == 0)
        snprintf(text, bytes, "sends rank %u %llu x %s", peer, gives, type);
    else if (gives == 0)
        snprintf(text, bytes, "expects %llu x %s from rank %u", expects, type, peer);
    else
        snprintf(text, bytes, "sends rank %u %llu x %s and expects %llu", peer, gives, type,
                 expects);
}

/* The same words on both ranks. */
static tutti_status_t fail(uint32_t rank, uint32_t peer, const head_t *mine, const head_t *theirs)
{
    int is_first = rank < peer, both_send, both_expect;
    const head_t *first = is_first ? mine : theirs, *second = is_first ? theirs : mine;
    uint32_t low = is_first ? rank : peer, high = is_first ? peer : rank;
    char a[120], b[120];

    describe(first, high, a, sizeof(a));
    describe(second, low, b, sizeof(b));
    both_send = number(first->expects) == 0 && number(second->expects) == 0;
    both_expect = number(first->gives) == 0 && number(second->gives) == 0;
    return tutti__fail(TUTTI_ERR_MISMATCH, "rank %u %s, rank %u %s%s", low, a, high, b,
                       both_send || both_expect ? ", too" : "");
}

/* ---- heads ---- */

static void put(head_t *head, const tutti__call_t *call, uint64_t gives, uint64_t expects)
{
    head->type = MARK | (uint32_t)call->dtype;
    memcpy(head->gives, &gives, sizeof(gives));
    memcpy(head->expects, &expects, sizeof(expects));
}

static tutti_status_t exchange(tutti_comm_t *comm, pairs_t *pairs)
{
    tutti__exec_call_t exec = {
        .in = pairs->mine,
        .out = pairs->theirs,
        .count = SIDES * (sizeof(head_t) / sizeof(uint32_t)),
        .dtype = TUTTI_UINT32,
        .op = TUTTI_SUM,
        .tag = TUTTI__TAG_SENDRECV,
        .signature = MARK,
    };
    const tutti__sched_t *sched;
    tutti_status_t status = tutti__comm_found(
        comm, tutti__cache_heads(&comm->cache, pairs->peer[DEST], pairs->peer[SOURCE], &sched));

    return status == TUTTI_OK ? tutti__comm_run(comm, sched, &exec, 0) : status;
}

static int fits(const head_t *a, const head_t *b)
{
    return a->type == b->type && memcmp(a->gives, b->expects, sizeof(a->gives)) == 0 &&
           memcmp(a->expects, b->gives, sizeof(a->expects)) == 0;
}

/* *ret_wrong: the first side that does not fit, or as it was. Such peers become NOBODY. */
static tutti_status_t compare(tutti_comm_t *comm, const tutti__call_t *call,
                              const tutti__exec_call_t *exec, pairs_t *pairs, int *ret_wrong)
{
    int is_one = pairs->peer[DEST] == pairs->peer[SOURCE];
    tutti_status_t status;

    put(&pairs->mine[DEST], call, exec->in_count, is_one ? exec->count : 0);
    put(&pairs->mine[SOURCE], call, 0, exec->count);
    status = exchange(comm, pairs);
    /* The first side comes last, so that it is the one to be named. */
    for (int i = is_one ? DEST : SOURCE; i >= DEST && status == TUTTI_OK; i--) {
        uint32_t peer = pairs->peer[i];
        const head_t *theirs = &pairs->theirs[i];

        if (peer == NOBODY || fits(&pairs->mine[i], theirs))
            continue;
        if ((theirs->type & ~0xffu) != MARK)
            return tutti__comm_end_badly(
                comm, tutti__fail(TUTTI_ERR_MISMATCH, "rank %u came with another call", peer));
        *ret_wrong = i;
        pairs->peer[i] = NOBODY;
        if (is_one)
            pairs->peer[SOURCE] = NOBODY;
    }
    return status;
}

/* ---- the call ---- */

static tutti_status_t move(tutti_comm_t *comm, const tutti__call_t *call, const pairs_t *pairs,
                           tutti__exec_call_t *exec)
{
    const tutti__sched_t *sched;
    tutti_status_t status = tutti__comm_found(
        comm, tutti__cache_sendrecv(&comm->cache, pairs->peer[DEST], pairs->peer[SOURCE], &sched));

    if (status != TUTTI_OK)
        return status;
    exec->signature = tutti__call_signature(call, exec, comm->shape.size);
    return tutti__comm_run(comm, sched, exec, 0);
}

tutti_status_t tutti__pairs_run(tutti_comm_t *comm, const tutti__call_t *call,
                                tutti__exec_call_t *exec)
{
    uint32_t from = call->kind == TUTTI_CALL_SENDRECV ? call->source : call->root, peer[SIDES];
    tutti_status_t status = TUTTI_OK;
    int wrong = SIDES;
    pairs_t pairs;

    /* Whoever has nothing for the other does not wait for it. */
    pairs.peer[DEST] = peer[DEST] = exec->in_count > 0 ? call->root : NOBODY;
    pairs.peer[SOURCE] = peer[SOURCE] = exec->count > 0 ? from : NOBODY;
    if (comm->conf.shared.compare)
        status = compare(comm, call, exec, &pairs, &wrong);
    if (status == TUTTI_OK && (pairs.peer[DEST] != NOBODY || pairs.peer[SOURCE] != NOBODY))
        status = move(comm, call, &pairs, exec);
    if (status != TUTTI_OK || wrong == SIDES)
        return status;
    return fail(comm->topo->rank, peer[wrong], &pairs.mine[wrong], &pairs.theirs[wrong]);
}
