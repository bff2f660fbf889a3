/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside coll/: who takes part in an algorithm, and what the files offer each other.
 *
 * An allreduce between ranks serves two masters: as an algorithm of its own for all ranks, and as
 * the part between hosts of the hierarchical one. So it is written as a `put` function that appends
 * to a schedule in the making, for a party of ranks, inside a chunk loop that the caller made.
 */
#ifndef TUTTI__COLL_ALGORITHMS_H
#define TUTTI__COLL_ALGORITHMS_H

#include "coll/coll.h"
#include "sched/build.h"

/* Ranks that work together, numbered from 0 to n - 1. */
typedef struct {
    const tutti__shape_t *shape;
    uint32_t n, me; /* me: this rank's number */
    int per_host;   /* 0: all ranks, host by host; 1: of each host the rank with local number.. */
    uint32_t local; /* ..local */
} tutti__party_t;

/* All ranks. Host by host, so that neighbours in a ring or tree mostly share a host. */
static inline tutti__party_t tutti__party_all(const tutti__shape_t *shape, uint32_t rank)
{
    uint32_t me = shape->host_first[shape->host_of[rank]] + shape->local_of[rank];

    return (tutti__party_t){ shape, shape->size, me, 0, 0 };
}

/* This rank's counterparts on all hosts. Its local number must exist on all of them. */
static inline tutti__party_t tutti__party_across(const tutti__shape_t *shape, uint32_t rank)
{
    return (tutti__party_t){ shape, shape->nhosts, shape->host_of[rank], 1, shape->local_of[rank] };
}

/* The rank of member i. */
static inline uint32_t tutti__party_rank(const tutti__party_t *party, uint32_t i)
{
    const tutti__shape_t *shape = party->shape;

    return shape->by_host[party->per_host ? shape->host_first[i] + party->local : i];
}

static inline tutti__at_t tutti__at(tutti__buf_t buf, uint32_t blk)
{
    return (tutti__at_t){ buf, blk };
}

/*
 * Append an allreduce over `party` (n >= 2) to stream `stream`, which is the current one and stands
 * in a chunk loop; all members use the same stream. Reads src, writes dst; the result is finished.
 * src and dst name the first of `blocks` blocks: n for the ring, 1 for recursive doubling.
 */
typedef void (*tutti__coll_put_t)(tutti__build_t *b, const tutti__party_t *party, tutti__at_t src,
                                  tutti__at_t dst, unsigned stream);
void tutti__coll_put_ring(tutti__build_t *b, const tutti__party_t *party, tutti__at_t src,
                          tutti__at_t dst, unsigned stream);
void tutti__coll_put_recursive_doubling(tutti__build_t *b, const tutti__party_t *party,
                                        tutti__at_t src, tutti__at_t dst, unsigned stream);

/* An allreduce of all ranks that is `put` and nothing else, with nblocks blocks. */
tutti_status_t tutti__coll_build_flat(const char *name, tutti__coll_put_t put, uint32_t nblocks,
                                      const tutti__shape_t *shape, const tutti__coll_args_t *args,
                                      tutti__sched_t **ret_sched);

/* The algorithms themselves, as tutti__algorithm_t.build has them. */
typedef tutti_status_t tutti__coll_build_t(const tutti__shape_t *shape,
                                           const tutti__coll_args_t *args,
                                           tutti__sched_t **ret_sched);
tutti__coll_build_t tutti__coll_build_ring;
tutti__coll_build_t tutti__coll_build_recursive_doubling;
tutti__coll_build_t tutti__coll_build_hierarchical;
tutti__coll_build_t tutti__coll_build_node_allreduce;
tutti__coll_build_t tutti__coll_build_node_broadcast;
tutti__coll_build_t tutti__coll_build_node_allgather;
tutti__coll_build_t tutti__coll_build_node_barrier;
tutti__coll_build_t tutti__coll_build_binomial;
tutti__coll_build_t tutti__coll_build_ring_allgather;
tutti__coll_build_t tutti__coll_build_dissemination;

/* Why the node algorithms cannot serve this shape; NULL if they can. */
const char *tutti__coll_node_refuses(const tutti__shape_t *shape);

#endif
