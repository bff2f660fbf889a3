/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The allreduces that other algorithms also use for their part between hosts, and their names.
 *
 * A stream sends its next chunk when the previous one has arrived, so it has one message in flight.
 * A link of 100 Gbit/s with 10 us of latency carries 250 KB during a round trip. With messages of
 * 64 KiB, five must be in flight to keep the link busy. So several streams run the same allreduce
 * at the same time, each for its share of the blocks. A call has at most as many streams as each
 * step would have messages of full length.
 *
 * The number of streams is equal on all ranks. If the association is fixed, the number does not
 * change bits, so it is computed from the measured round trip. Otherwise it is computed from the
 * model's figures for the link only (cost.c).
 */
#include "base/compiler.h"
#include "base/constants.h"
#include "coll/algorithms.h"
#include "coll/cost.h"

#include <stddef.h>
#include <string.h>

const char *const tutti__coll_between_names[] = { "recursive_doubling", "halving_doubling", "ring",
                                                  "direct_scatter", NULL };

int tutti__coll_between(const char *name, uint32_t n, tutti__coll_between_t *ret_between)
{
    uint32_t power = tutti__power_upto(n);

    if (name == NULL || strcmp(name, "recursive_doubling") == 0)
        *ret_between = (tutti__coll_between_t){ tutti__coll_put_recursive_doubling, 1, 1, 0 };
    else if (strcmp(name, "halving_doubling") == 0)
        *ret_between = (tutti__coll_between_t){ tutti__coll_put_halving_doubling, power,
                                                power > 1 ? power / 2 : 1, 0 };
    else if (strcmp(name, "ring") == 0)
        *ret_between = (tutti__coll_between_t){ tutti__coll_put_ring, n, 1, 0 };
    else if (strcmp(name, "direct_scatter") == 0)
        *ret_between = (tutti__coll_between_t){ tutti__coll_put_direct_scatter, n, 1,
                                                tutti__coll_direct_scatter_levels(n) };
    else
        return 0;
    return 1;
}

typedef struct {
    uint32_t members; /* of each allreduce between hosts */
    uint32_t parts;   /* of the buffer: allreduces at the same time */
    uint32_t sharers; /* ranks of a host that send at the same time */
} division_t;

static division_t divide(const tutti__choice_t *choice, const tutti__shape_t *shape)
{
    uint32_t locals = 1;

    if (choice->sub != NULL)
        return (division_t){ shape->nhosts, shape->min_local, shape->min_local };
    for (uint32_t h = 0; h < shape->nhosts; h++)
        locals = TUTTI__MAX(locals, shape->host_first[h + 1] - shape->host_first[h]);
    return (division_t){ shape->size, 1, locals };
}

uint32_t tutti__coll_most_streams(const tutti__algorithm_t *algorithm)
{
    tutti__coll_between_t between;

    if (algorithm->collective != TUTTI__ALLREDUCE || algorithm->build == NULL)
        return 1;
    if (strcmp(algorithm->name, "hierarchical") == 0) /* one stream has the node operations */
        return TUTTI__SCHED_STREAMS - 1;
    return tutti__coll_between(algorithm->name, 1, &between) ? TUTTI__SCHED_STREAMS : 1;
}

uint32_t tutti__coll_streams(const tutti__choice_t *choice, const tutti__shape_t *shape,
                             size_t bytes, int is_fixed)
{
    const char *way = choice->sub != NULL ? choice->sub : choice->algorithm->name;
    uint64_t slot = shape->link.slot_bytes, full, flight;
    tutti__coll_between_t between;
    division_t of;

    if (tutti__coll_most_streams(choice->algorithm) == 1 || shape->nhosts == 1 || shape->on_device)
        return 1;
    of = divide(choice, shape);
    tutti__coll_between(way, of.members, &between);
    if (is_fixed && shape->link.piece_bytes != 0)
        slot = shape->link.piece_bytes;
    if (slot == 0)
        slot = TUTTI__CHUNK_BYTES;
    full = bytes / of.parts / between.blocks * between.message / slot;
    flight = tutti__cost_in_flight(shape, of.sharers, is_fixed);
    flight = TUTTI__MIN(flight, (uint64_t)tutti__coll_most_streams(choice->algorithm));
    return (uint32_t)TUTTI__MAX(TUTTI__MIN(flight, full), (uint64_t)1);
}

tutti_status_t tutti__coll_build_between(const char *name, int ranked, const tutti__shape_t *shape,
                                         const tutti__coll_args_t *args, tutti__sched_t **ret_sched)
{
    tutti__party_t party =
        ranked ? tutti__party_ranked(shape, args->rank) : tutti__party_all(shape, args->rank);
    uint32_t streams = TUTTI__MAX(args->streams, 1u), blocks;
    tutti__coll_between_t between;
    tutti__build_t *b;

    tutti__coll_between(name, party.n, &between);
    blocks = streams * between.blocks;
    b = tutti__build_begin(name, args->rank, party.n, blocks, between.levels * blocks,
                           between.message);
    if (party.n == 1) {
        tutti__build_finish(b);
        tutti__build_copy(b, tutti__at(TUTTI__IN, 0), tutti__at(TUTTI__OUT, 0), blocks);
        return tutti__build_end(b, ret_sched);
    }
    for (uint32_t s = 0; s < streams; s++) {
        uint32_t first = s * between.blocks;

        tutti__build_stream(b, s);
        tutti__build_loop(b);
        between.put(b, &party, tutti__at(TUTTI__IN, first), tutti__at(TUTTI__OUT, first),
                    (tutti__levels_t){ first, blocks }, s);
        tutti__build_end_loop(b);
    }
    return tutti__build_end(b, ret_sched);
}
