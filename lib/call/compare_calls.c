/* SPDX-License-Identifier: BSD-3-Clause */
/* The comparison of direct calls. See compare_calls.h. */
#include "call/compare_calls.h"

#include "base/describe.h"
#include "base/hash.h"
#include "call/call_inside.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A head's words. */
enum {
    WHAT,     /* kind, type, memory, operation, root, wire format; or OWN and a tag */
    COUNT,    /* 0 if the ranks may have different counts */
    PRESCALE, /* as bits */
    POSTSCALE,
    HEAD,       /* number of the words above; on one host, a head has only these words */
    HASH = HEAD /* between hosts, index of one more word: the hash of recvcounts, or 0 */
};

static_assert(HEAD == TUTTI__EXCHANGE_HEAD, "a head fits into the exchange");

/* A bit of WHAT for a call of the library's own; above the bits of the kinds. */
#define OWN 0x80u
/* A bit of WHAT for a call on device memory; above the bits of the types. */
#define ON_DEVICE 0x8000u
/* Bits of the root in WHAT; each rank's number fits. */
#define ROOT_BITS 24

void tutti__compare_free(tutti__compare_t *cmp)
{
    free(cmp->words);
    tutti__ride_free(&cmp->ride);
    tutti__exchange_free(&cmp->pairs);
    memset(cmp, 0, sizeof(*cmp));
}

/* Does each rank pass the counts of all ranks? */
static int has_common_counts(const tutti__call_t *call)
{
    return call != NULL &&
           (call->kind == TUTTI_CALL_ALLGATHERV || call->kind == TUTTI_CALL_REDUCE_SCATTERV);
}

static int is_by_pair(const tutti__call_t *call)
{
    return call != NULL && tutti__call_by_pair(call->kind);
}

int tutti__compare_needed_own(const tutti__call_env_t *env)
{
    return env->conf->compare && env->shape->nhosts > 1;
}

int tutti__compare_needed(const tutti__call_env_t *env, const tutti__call_t *call)
{
    if (env->shape->size == 1 || env->is_agreed)
        return 0;
    if (env->shape->nhosts > 1)
        return env->conf->compare && call->kind < TUTTI_CALL_SEND;
    /* A meeting does not compare factors, and the prescaling changes recvbuf before the meeting. */
    return is_by_pair(call) || has_common_counts(call) ||
           ((call->prescale != 1 || call->postscale != 1) && tutti__call_reduces(call->kind));
}

/* ---- heads ---- */

static uint64_t bits_of(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* Does the call have one count, equal on all ranks? */
static int has_one_count(tutti_call_kind_t kind)
{
    return !tutti__call_by_pair(kind) && kind != TUTTI_CALL_ALLGATHERV &&
           kind != TUTTI_CALL_REDUCE_SCATTERV;
}

static void make_head(const tutti__call_t *call, uint32_t size, uint64_t *head)
{
    assert((uint32_t)call->kind < OWN);
    head[WHAT] = (uint64_t)call->kind | (uint64_t)call->dtype << 8 |
                 (tutti__call_device_tag(call) != 0 ? ON_DEVICE : 0) |
                 (tutti__call_reduces(call->kind) ? (uint64_t)call->op << 16 : 0) |
                 (uint64_t)call->root << 32 | (uint64_t)call->wire << (32 + ROOT_BITS);
    head[COUNT] = has_one_count(call->kind) ? call->count : 0;
    head[PRESCALE] = bits_of(call->prescale);
    head[POSTSCALE] = bits_of(call->postscale);
    head[HASH] = has_common_counts(call)
                     ? tutti__hash(call->recvcounts, size * sizeof(*call->recvcounts))
                     : 0;
}

/* The hash of a head. It is faster than FNV-1a, which would take 240 instructions. */
static uint64_t hash_of(const uint64_t *head)
{
    uint64_t hash = TUTTI__HASH_INIT;

    for (int i = 0; i <= HASH; i++)
        hash = tutti__hash_mix(hash, head[i]);
    return hash;
}

static const char *name_of(uint32_t what)
{
    if (what == (OWN | TUTTI__TAG_MEM_ALLOC))
        return "a tutti_mem_alloc";
    if (what == (OWN | TUTTI__TAG_SPLIT))
        return "a tutti_comm_split or tutti_comm_create";
    return tutti__call_name((tutti_call_kind_t)what);
}

static tutti__description_t describe(const uint64_t *words)
{
    uint32_t what = words[WHAT] & 0xff;
    tutti_call_kind_t kind = (tutti_call_kind_t)what;
    tutti__description_t call = {
        .name = name_of(what),
        .has = words[WHAT] & ON_DEVICE ? TUTTI__HAS_DEVICE : 0,
        .dtype = (tutti_dtype_t)(words[WHAT] >> 8 & 0x7f),
        .op = (tutti_op_t)(words[WHAT] >> 16 & 0xffff),
        .root = (uint32_t)(words[WHAT] >> 32) & ((1u << ROOT_BITS) - 1),
        .wire = (tutti_dtype_t)(words[WHAT] >> (32 + ROOT_BITS)),
        .count = words[COUNT],
    };

    if (what & OWN || kind == TUTTI_CALL_BARRIER)
        return call;
    memcpy(&call.prescale, words + PRESCALE, sizeof(call.prescale));
    memcpy(&call.postscale, words + POSTSCALE, sizeof(call.postscale));
    call.has |= TUTTI__HAS_TYPE | TUTTI__HAS_SCALES;
    call.has |= has_one_count(kind) ? TUTTI__HAS_COUNT : 0;
    call.has |= tutti__call_reduces(kind) ? TUTTI__HAS_OP : 0;
    call.has |= tutti__call_has_root(kind) ? TUTTI__HAS_ROOT : 0;
    return call;
}

/* Compare two heads without their hashes. */
static tutti_status_t compare_two(const uint64_t *first, uint32_t rank, const uint64_t *other)
{
    char text[TUTTI__ERROR_BYTES];
    tutti__description_t a, b;

    if (memcmp(first, other, HEAD * sizeof(*first)) == 0)
        return TUTTI_OK;
    a = describe(first);
    b = describe(other);
    tutti__describe_both(text, sizeof(text), 0, &a, rank, &b);
    return tutti__fail(TUTTI_ERR_MISMATCH, "%s", text);
}

/* ---- the runs ---- */

static tutti_status_t start_ride(tutti__compare_t *cmp, const tutti__call_env_t *env,
                                 tutti__run_t *run, int may_ride, int *ret_common)
{
    cmp->stage = TUTTI__COMPARE_RIDE;
    return tutti__ride_start(&cmp->ride, env, run, hash_of(cmp->head), may_ride ? cmp->call : NULL,
                             ret_common);
}

static size_t words_of(const tutti__compare_t *cmp, const tutti__call_env_t *env)
{
    return cmp->stage == TUTTI__COMPARE_COUNTS && has_common_counts(cmp->call)
               ? HEAD + (size_t)env->exec->size
               : HEAD;
}

static tutti_status_t start_gather(tutti__compare_t *cmp, const tutti__call_env_t *env,
                                   tutti__run_t *run, tutti__compare_stage_t stage, int *ret_common)
{
    uint32_t rank = env->exec->rank, size = env->exec->size;
    size_t nwords;
    tutti_status_t status;
    uint64_t *mine;

    *ret_common = 0;
    cmp->stage = stage;
    nwords = words_of(cmp, env);
    status = tutti__own_words(&cmp->words, &cmp->capacity, size * nwords);
    if (status != TUTTI_OK)
        return status;
    mine = cmp->words + rank * nwords;
    memcpy(mine, cmp->head, HEAD * sizeof(*mine));
    for (size_t i = HEAD; i < nwords; i++)
        mine[i] = cmp->call->recvcounts[i - HEAD];
    return tutti__own_start(env, run, TUTTI__ALLGATHER, cmp->words, cmp->words, size * nwords,
                            ret_common);
}

static tutti_status_t start_pairs(tutti__compare_t *cmp, const tutti__call_env_t *env,
                                  tutti__run_t *run, const uint64_t *head, int *ret_common)
{
    cmp->stage = TUTTI__COMPARE_PAIRS;
    return tutti__exchange_start(&cmp->pairs, env, run, cmp->call, head, 0, ret_common);
}

static tutti_status_t compare_gathered(const tutti__compare_t *cmp, const tutti__call_env_t *env)
{
    size_t nwords = words_of(cmp, env);
    const uint64_t *all = cmp->words;
    tutti_status_t status = TUTTI_OK;

    for (uint32_t r = 1; r < env->exec->size && status == TUTTI_OK; r++)
        status = compare_two(all, r, all + r * nwords);
    for (uint32_t r = 1; r < env->exec->size && status == TUTTI_OK; r++)
        for (size_t s = HEAD; s < nwords && status == TUTTI_OK; s++)
            if (all[s] != all[r * nwords + s])
                status = tutti__fail(TUTTI_ERR_MISMATCH,
                                     "recvcounts[%zu] is %llu on rank 0 and %llu on rank %u",
                                     s - HEAD, (unsigned long long)all[s],
                                     (unsigned long long)all[r * nwords + s], r);
    return status;
}

/* Compare the heads that the exchange of counts has passed. */
static tutti_status_t compare_exchanged(const tutti__compare_t *cmp, uint32_t size)
{
    tutti_status_t status = TUTTI_OK;

    for (uint32_t r = 1; r < size && status == TUTTI_OK; r++)
        status = compare_two(tutti__exchange_from(&cmp->pairs, size, 0), r,
                             tutti__exchange_from(&cmp->pairs, size, r));
    return status;
}

/* ---- in order ---- */

tutti_status_t tutti__compare_start(tutti__compare_t *cmp, const tutti__call_env_t *env,
                                    tutti__run_t *run, const tutti__call_t *call, int may_ride,
                                    int *ret_common)
{
    *ret_common = cmp->is_done = 0;
    cmp->call = call;
    make_head(call, env->exec->size, cmp->head);
    if (env->shape->nhosts > 1)
        return start_ride(cmp, env, run, may_ride, ret_common);
    return is_by_pair(call) ? start_pairs(cmp, env, run, cmp->head, ret_common)
                            : start_gather(cmp, env, run, TUTTI__COMPARE_COUNTS, ret_common);
}

tutti_status_t tutti__compare_start_own(tutti__compare_t *cmp, const tutti__call_env_t *env,
                                        tutti__run_t *run, uint32_t tag, size_t count,
                                        int *ret_common)
{
    *ret_common = cmp->is_done = 0;
    cmp->call = NULL;
    memset(cmp->head, 0, sizeof(cmp->head));
    cmp->head[WHAT] = OWN | tag;
    cmp->head[COUNT] = count;
    return start_ride(cmp, env, run, 0, ret_common);
}

static tutti_status_t again(tutti_status_t status)
{
    return status == TUTTI_OK ? TUTTI__AGAIN : status;
}

tutti_status_t tutti__compare_next(tutti__compare_t *cmp, const tutti__call_env_t *env,
                                   tutti__run_t *run, int *ret_common)
{
    tutti_status_t status;

    *ret_common = 1;
    switch (cmp->stage) {
    case TUTTI__COMPARE_RIDE:
        if (!tutti__ride_is_equal(&cmp->ride))
            return again(start_gather(cmp, env, run, TUTTI__COMPARE_HEADS, ret_common));
        cmp->is_done = tutti__ride_end(&cmp->ride, env->exec->rank, env->exec->size);
        return is_by_pair(cmp->call) ? again(start_pairs(cmp, env, run, NULL, ret_common))
                                     : TUTTI_OK;
    case TUTTI__COMPARE_HEADS:
        status = compare_gathered(cmp, env);
        /* The heads are equal, so the hashes of recvcounts differ. The next allgather finds two
           ranks whose recvcounts differ. */
        return status == TUTTI_OK
                   ? again(start_gather(cmp, env, run, TUTTI__COMPARE_COUNTS, ret_common))
                   : status;
    case TUTTI__COMPARE_COUNTS:
        return compare_gathered(cmp, env);
    default:
        if (!cmp->pairs.is_verdict && cmp->pairs.nhead > 0) {
            status = compare_exchanged(cmp, env->exec->size);
            if (status != TUTTI_OK)
                return status;
        }
        return tutti__exchange_next(&cmp->pairs, env, run, ret_common);
    }
}
