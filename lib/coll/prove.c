/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Proofs of algorithms. See prove.h.
 *
 * A proof needs the schedules of all ranks. `build` is pure, so any rank can build the schedules of
 * all ranks. The checker checks the schedules that will run, but only for a few numbers of trips.
 * The checker assumes nothing about the sizes of blocks.
 */
#include "coll/prove.h"

#include "base/status.h"
#include "coll/algorithms.h"

#include <stdlib.h>

typedef struct {
    tutti__expect_t expect;
    unsigned sizes; /* bits 1 << tutti__sizes_t: possible sizes of blocks, see coll.h */
} promise_t;

#define BY_NUMBER (1u << TUTTI__BY_NUMBER)
#define EQUAL (1u << TUTTI__ALL_EQUAL | BY_NUMBER)
#define BY_PAIR (1u << TUTTI__BY_PAIR)

static const promise_t promises[TUTTI__COLLECTIVES] = {
    [TUTTI__ALLREDUCE] = { TUTTI__EXPECT_ALLREDUCE, BY_NUMBER },
    [TUTTI__ROOT_REDUCE] = { TUTTI__EXPECT_REDUCE, BY_NUMBER },
    [TUTTI__BROADCAST] = { TUTTI__EXPECT_BROADCAST, BY_NUMBER },
    [TUTTI__REDUCE_SCATTER] = { TUTTI__EXPECT_REDUCE_SCATTER, BY_NUMBER },
    [TUTTI__ALLGATHER] = { TUTTI__EXPECT_ALLGATHER, EQUAL },
    [TUTTI__ALLGATHERV] = { TUTTI__EXPECT_ALLGATHER, BY_NUMBER },
    [TUTTI__GATHER] = { TUTTI__EXPECT_GATHER, EQUAL },
    [TUTTI__GATHERV] = { TUTTI__EXPECT_GATHER, BY_PAIR },
    [TUTTI__SCATTER] = { TUTTI__EXPECT_SCATTER, EQUAL },
    [TUTTI__SCATTERV] = { TUTTI__EXPECT_SCATTER, BY_PAIR },
    [TUTTI__ALLTOALL] = { TUTTI__EXPECT_ALLTOALL, EQUAL },
    [TUTTI__ALLTOALLV] = { TUTTI__EXPECT_ALLTOALL, BY_PAIR },
    [TUTTI__SCAN] = { TUTTI__EXPECT_SCAN, BY_NUMBER },
    [TUTTI__EXSCAN] = { TUTTI__EXPECT_EXSCAN, BY_NUMBER },
    [TUTTI__BARRIER] = { TUTTI__EXPECT_BARRIER, EQUAL },
};

/* The inner algorithm; without subs, the algorithm itself. A property holds if both algorithms have
   it. */
static const tutti__algorithm_t *find_inner(const tutti__algorithm_t *algorithm, const char *sub)
{
    static const tutti__algorithm_t none = { .name = NULL };
    const tutti__algorithm_t *inner = algorithm;

    if (algorithm->subs != NULL)
        inner = sub != NULL ? tutti__algorithm_find(algorithm->collective, sub) : NULL;
    return inner != NULL ? inner : &none;
}

/* How are calls compared? Between hosts, frames precede all other schedules: call/ride.h. With
   TUTTI_COMPARE=0 there are no frames, and calls that differ may change recvbuf. */
static tutti__compared_t compared(const tutti__algorithm_t *algorithm, const tutti__shape_t *shape)
{
    if (shape->nhosts == 1)
        return TUTTI__COMPARED_ON_HOST;
    return algorithm->build == tutti__coll_allreduce_leaders ? TUTTI__COMPARED_IN_FRAMES
                                                             : TUTTI__COMPARED_BEFORE;
}

tutti__check_t tutti__coll_check(const tutti__algorithm_t *algorithm, const tutti__shape_t *shape,
                                 const tutti__coll_args_t *args, tutti__sched_t *const *scheds)
{
    const promise_t *promise = &promises[algorithm->collective];
    const tutti__algorithm_t *inner = find_inner(algorithm, args->sub);
    tutti__check_t check = {
        .expect = promise->expect,
        .compared = compared(algorithm, shape),
        .sizes = promise->sizes,
        .size = shape->size,
        .scheds = scheds,
        .host_of = shape->host_of,
        .local_of = shape->local_of,
        .nhosts = shape->nhosts,
        .root = args->root,
        .ordered = algorithm->ordered && inner->ordered,
        .fixed = algorithm->fixed_association && inner->fixed_association,
        .in_place = args->in_place,
        .credits = 1,
        .trips = 1,
    };

    return check;
}

static tutti_status_t build_all(const tutti__algorithm_t *algorithm, const tutti__shape_t *shape,
                                const tutti__coll_args_t *args, tutti__sched_t **scheds)
{
    tutti__coll_args_t of = *args;
    tutti_status_t status = TUTTI_OK;

    for (of.rank = 0; of.rank < shape->size && status == TUTTI_OK; of.rank++)
        status = algorithm->build(shape, &of, &scheds[of.rank]);
    return status;
}

tutti_status_t tutti__coll_prove_scheds(const tutti__algorithm_t *algorithm,
                                        const tutti__shape_t *shape, const tutti__coll_args_t *args,
                                        tutti__sched_t *const *scheds, uint32_t credits)
{
    const uint32_t stage = scheds[0]->stage_trips;
    const size_t ntrips = stage > 0 ? 5 : 4;
    const uint32_t trips[] = { 1, 2, credits + 1, 2 * credits + 1, 2 * stage + 1 };
    tutti__check_t check = tutti__coll_check(algorithm, shape, args, scheds);
    char why[TUTTI__ERROR_BYTES - 80];

    check.credits = credits;
    for (size_t i = 0; i < ntrips; i++) {
        tutti_status_t status;

        check.trips = trips[i];
        status = tutti__sched_check(&check, why, sizeof(why));
        if (status == TUTTI_OK)
            continue;
        if (status != TUTTI_ERR_INTERNAL)
            return status;
        return tutti__fail(status, "with %u credit%s and %u trip%s%s: %s", credits,
                           credits == 1 ? "" : "s", check.trips, check.trips == 1 ? "" : "s",
                           args->in_place ? ", in place" : "",
                           why[0] != '\0' ? why : tutti_last_error());
    }
    return TUTTI_OK;
}

tutti_status_t tutti__coll_prove(const tutti__algorithm_t *algorithm, const tutti__shape_t *shape,
                                 const tutti__coll_args_t *args, uint32_t credits)
{
    tutti__sched_t **scheds = calloc(shape->size, sizeof(*scheds));
    char why[TUTTI__ERROR_BYTES - 160];
    tutti_status_t status;

    if (scheds == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "no memory to prove schedules");
    status = build_all(algorithm, shape, args, scheds);
    if (status == TUTTI_OK)
        status = tutti__coll_prove_scheds(algorithm, shape, args, scheds, credits);
    if (status == TUTTI_ERR_INTERNAL) {
        snprintf(why, sizeof(why), "%s", tutti_last_error());
        tutti__fail(status, "TUTTI_CHECK: %s:%s%s%s (radix %u, root %u) of %u ranks, %s",
                    tutti__collective_name(algorithm->collective), algorithm->name,
                    args->sub != NULL ? "/" : "", args->sub != NULL ? args->sub : "", args->radix,
                    args->root, shape->size, why);
    }
    for (uint32_t r = 0; r < shape->size; r++)
        tutti__sched_free(scheds[r]);
    free(scheds);
    return status;
}
