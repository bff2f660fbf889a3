/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives that the library makes for itself before a call, and functions that these collectives
   share with calls. */
#include "call/call_inside.h"

#include "base/own_thread.h"

#include <stdlib.h>

tutti_status_t tutti__own_words(uint64_t **words, size_t *capacity, size_t nwords)
{
    uint64_t *larger;

    if (*capacity >= nwords)
        return TUTTI_OK;
    larger = realloc(*words, nwords * sizeof(**words));
    if (larger == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "%zu bytes for counts", nwords * sizeof(**words));
    *words = larger;
    *capacity = nwords;
    return TUTTI_OK;
}

tutti_status_t tutti__own_find(tutti__cache_t *cache, const tutti__want_t *want, int in_place,
                               const tutti__sched_t **ret_sched, int *ret_common)
{
    tutti_status_t status = tutti__cache_get(cache, want, in_place, ret_sched);

    *ret_common = status == TUTTI_ERR_UNSUPPORTED || status == TUTTI_ERR_INVALID_ARGUMENT;
    return status;
}

tutti_status_t tutti__own_allows(const tutti__call_env_t *env, const tutti__sched_t *sched)
{
    int is_own;

    if (TUTTI__LIKELY(sched->nchans == 0))
        return TUTTI_OK;
    is_own = tutti__thread_is_own();
    if (!tutti__run_forbidden(env->exec, sched, is_own))
        return TUTTI_OK;
    if (env->is_agreed)
        return TUTTI__AGAIN;
    return tutti__fail(TUTTI_ERR_UNSUPPORTED,
                       is_own
                           ? "a callback on the library's thread may not use MPI: it was "
                             "initialised with a thread level below MPI_THREAD_MULTIPLE"
                           : "this thread may not use MPI: it was initialised with a thread level "
                             "below MPI_THREAD_SERIALIZED");
}

int tutti__own_is_common(const tutti__run_t *run, tutti_status_t status)
{
    int has_channels = run->sched != NULL && run->sched->nchans > 0;

    if (status == TUTTI_ERR_MISMATCH)
        return run->meeting || !has_channels;
    return status == TUTTI_ERR_NO_MEMORY && !has_channels;
}

tutti_status_t tutti__own_start_frame(const tutti__call_env_t *env, tutti__run_t *run,
                                      tutti__frame_t *frame, tutti_dtype_t dtype, tutti_op_t op,
                                      int *ret_common)
{
    tutti__exec_call_t exec = { .in = frame,
                                .out = frame,
                                .count = 1,
                                .dtype = dtype,
                                .op = op,
                                .tag = TUTTI__TAG_COUNTS,
                                .signature = (uint32_t)TUTTI__TAG_COUNTS << 24,
                                .frame = frame };
    const tutti__sched_t *sched;
    tutti_status_t status = tutti__cache_leaders(env->cache, &sched);

    *ret_common = 0;
    if (status != TUTTI_OK)
        return status;
    status = tutti__own_allows(env, sched);
    *ret_common = status == TUTTI_ERR_UNSUPPORTED;
    return status == TUTTI_OK ? tutti__run_start(run, sched, &exec) : status;
}

tutti_status_t tutti__own_start(const tutti__call_env_t *env, tutti__run_t *run,
                                tutti__collective_t collective, const uint64_t *in, uint64_t *out,
                                size_t nwords, int *ret_common)
{
    tutti__want_t want = { collective, nwords * sizeof(uint64_t), 0, 0 };
    tutti__exec_call_t exec = {
        .in = in,
        .out = out,
        .count = nwords,
        .dtype = TUTTI_UINT64,
        .op = TUTTI_MAX,
        .tag = TUTTI__TAG_COUNTS,
        .signature = (uint32_t)((uint32_t)TUTTI__TAG_COUNTS << 24 ^ (uint32_t)nwords),
    };
    const tutti__sched_t *sched;
    tutti_status_t status = tutti__own_find(env->cache, &want, in == out, &sched, ret_common);

    if (status != TUTTI_OK)
        return status;
    status = tutti__own_allows(env, sched);
    *ret_common = status == TUTTI_ERR_UNSUPPORTED;
    if (status != TUTTI_OK)
        return status;
    exec.meet = !env->is_agreed && sched->nchans > 0 && env->shape->nhosts == 1;
    status = tutti__run_start(run, sched, &exec);
    *ret_common = status == TUTTI_ERR_UNSUPPORTED;
    return status;
}
