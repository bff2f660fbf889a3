/* SPDX-License-Identifier: BSD-3-Clause */
/* The exchange of counts. See exchange.h. */
#include "call/exchange.h"

#include "call/call_inside.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The words of a rank's verdict: of its report in the allgather. */
enum {
    KNOWS,
    DIFFERS,
    FROM,
    GIVEN,
    EXPECTED,
    VERDICT
};

/* Marks a count that a rank does not have. No count is as large. */
#define UNKNOWN UINT64_MAX

void tutti__exchange_free(tutti__exchange_t *x)
{
    free(x->words);
    memset(x, 0, sizeof(*x));
}

/*
 * The layout of `words`: [size] expects; [size][nhead + 1] gives; [size][nhead + 1] gets;
 * [size][VERDICT].
 */
static uint64_t *gives_of(const tutti__exchange_t *x, uint32_t size)
{
    return x->words + size;
}

static uint64_t *gets_of(const tutti__exchange_t *x, uint32_t size)
{
    return x->words + size + (size_t)size * (x->nhead + 1);
}

static uint64_t *verdicts_of(const tutti__exchange_t *x, uint32_t size)
{
    return x->words + size + 2 * (size_t)size * (x->nhead + 1);
}

const uint64_t *tutti__exchange_from(const tutti__exchange_t *x, uint32_t size, uint32_t rank)
{
    return gets_of(x, size) + (size_t)rank * (x->nhead + 1);
}

/* The number of elements that this rank has for a peer. */
static uint64_t given_to(const tutti__call_t *call, uint32_t rank, uint32_t peer)
{
    switch (call->kind) {
    case TUTTI_CALL_GATHERV:
        return peer == call->root ? call->count : 0;
    case TUTTI_CALL_SCATTERV:
        return rank == call->root ? call->sendcounts[peer] : 0;
    case TUTTI_CALL_ALLGATHERV:
        return call->count;
    default:
        assert(call->sendcounts != NULL);
        return call->sendcounts[peer];
    }
}

static uint64_t expected_from(const tutti__call_t *call, uint32_t rank, uint32_t peer)
{
    switch (call->kind) {
    case TUTTI_CALL_GATHERV:
        return rank == call->root ? call->recvcounts[peer] : 0;
    case TUTTI_CALL_SCATTERV:
        return peer == call->root ? call->count : 0;
    default:
        return call->recvcounts != NULL ? call->recvcounts[peer] : UNKNOWN;
    }
}

tutti_status_t tutti__exchange_start(tutti__exchange_t *x, const tutti__call_env_t *env,
                                     tutti__run_t *run, const tutti__call_t *call,
                                     const uint64_t *head, int is_zero, int *ret_common)
{
    uint32_t rank = env->exec->rank, size = env->exec->size;
    size_t step;
    tutti_status_t status;

    *ret_common = 0;
    x->nhead = head != NULL ? TUTTI__EXCHANGE_HEAD : 0;
    step = x->nhead + 1;
    status = tutti__own_words(&x->words, &x->capacity, size * (1 + 2 * step + VERDICT));
    if (status != TUTTI_OK)
        return status;
    x->is_verdict = 0;
    x->knows = 1;
    for (uint32_t r = 0; r < size; r++) {
        uint64_t *gives = gives_of(x, size) + r * step;

        if (head != NULL)
            memcpy(gives, head, x->nhead * sizeof(*head));
        gives[x->nhead] = is_zero ? 0 : given_to(call, rank, r);
        x->words[r] = is_zero ? UNKNOWN : expected_from(call, rank, r);
        x->knows &= x->words[r] != UNKNOWN;
    }
    /* The ranks of a gatherv or scatterv always have their counts. */
    x->knows |= call->kind == TUTTI_CALL_GATHERV || call->kind == TUTTI_CALL_SCATTERV;
    return tutti__own_start(env, run, TUTTI__ALLTOALL, gives_of(x, size), gets_of(x, size),
                            size * step, ret_common);
}

static tutti_status_t start_verdict(tutti__exchange_t *x, const tutti__call_env_t *env,
                                    tutti__run_t *run, int *ret_common)
{
    uint32_t rank = env->exec->rank, size = env->exec->size;
    uint64_t *verdicts = verdicts_of(x, size), *mine = verdicts + (size_t)rank * VERDICT;
    tutti_status_t status;

    memset(mine, 0, VERDICT * sizeof(*mine));
    mine[KNOWS] = x->knows != 0;
    for (uint32_t r = 0; r < size && !mine[DIFFERS]; r++) {
        uint64_t given = tutti__exchange_from(x, size, r)[x->nhead];

        if (x->words[r] == UNKNOWN || x->words[r] == given)
            continue;
        mine[DIFFERS] = 1;
        mine[FROM] = r;
        mine[GIVEN] = given;
        mine[EXPECTED] = x->words[r];
    }
    x->is_verdict = 1;
    /* In place: this rank's verdict is in its own part. */
    status = tutti__own_start(env, run, TUTTI__ALLGATHER, verdicts, verdicts,
                              (size_t)size * VERDICT, ret_common);
    return status == TUTTI_OK ? TUTTI__AGAIN : status;
}

tutti_status_t tutti__exchange_next(tutti__exchange_t *x, const tutti__call_env_t *env,
                                    tutti__run_t *run, int *ret_common)
{
    uint32_t size = env->exec->size;
    const uint64_t *verdict = verdicts_of(x, size);

    assert(x->words != NULL && x->is_verdict >= 0);
    if (!x->is_verdict)
        return start_verdict(x, env, run, ret_common);
    x->all_know = 1;
    *ret_common = 1;
    for (uint32_t r = 0; r < size; r++, verdict += VERDICT) {
        if (verdict[DIFFERS])
            return tutti__fail(TUTTI_ERR_MISMATCH,
                               "rank %u has %llu elements for rank %u, which expects %llu",
                               (unsigned)verdict[FROM], (unsigned long long)verdict[GIVEN], r,
                               (unsigned long long)verdict[EXPECTED]);
        x->all_know &= verdict[KNOWS] != 0;
    }
    return TUTTI_OK;
}
