/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The algorithms: pure functions from (ranks, shape, place) to one rank's schedule.
 *
 * Arithmetic only: no I/O, no addresses, no sizes. One file per algorithm; select.c picks.
 */
#ifndef TUTTI__COLL_COLL_H
#define TUTTI__COLL_COLL_H

#include "sched/sched.h"

#include <tutti/tutti.h>

typedef enum {
    TUTTI__ALLREDUCE,
    TUTTI__BROADCAST,
    TUTTI__ALLGATHER,
    TUTTI__BARRIER,
    TUTTI__COLLECTIVES
} tutti__collective_t;

/*
 * The ranks of a communicator as an algorithm sees them. `hosts` lists ranks host by host:
 * host h has the ranks by_host[host_first[h]] to by_host[host_first[h + 1]] - 1, ascending.
 */
typedef struct {
    uint32_t size, nhosts;
    const uint32_t *host_of;    /* [size] */
    const uint32_t *local_of;   /* [size] rank within its host */
    const uint32_t *host_first; /* [nhosts + 1] */
    const uint32_t *by_host;    /* [size] */
    uint32_t min_local;         /* the smallest number of ranks on a host */
} tutti__shape_t;

/* What a schedule depends on besides the shape. Zero the rest. */
typedef struct {
    uint32_t rank;
    uint32_t root;   /* BROADCAST: a rank */
    int in_place;    /* IN is OUT (allgather: IN is its own block of OUT) */
    const char *sub; /* hierarchical: the algorithm between hosts; NULL: recursive_doubling */
} tutti__coll_args_t;

typedef struct {
    const char *name; /* "ring", as in TUTTI_ALGORITHM=allreduce:ring */
    tutti__collective_t collective;
    const char *purpose; /* one line, for people */
    /* Every element's result is associated alike, wherever it stands, however long the buffer is
       and however it is chunked. Of one with subs: if its sub is so. */
    int fixed_association;
    const char *const *subs; /* what args->sub may be, ended by NULL; NULL: it has none */
    /* Can it serve this shape? NULL: any. Else NULL for yes or the reason why not. */
    const char *(*refuses)(const tutti__shape_t *shape);
    tutti_status_t (*build)(const tutti__shape_t *shape, const tutti__coll_args_t *args,
                            tutti__sched_t **ret_sched);
} tutti__algorithm_t;

/* All algorithms; ended by one with name NULL. */
extern const tutti__algorithm_t tutti__algorithms[];

/* "allreduce"; static. */
const char *tutti__collective_name(tutti__collective_t collective);
/* NULL: no such algorithm. */
const tutti__algorithm_t *tutti__algorithm_find(tutti__collective_t collective, const char *name);

/* How much a choice may depend on sizes: bits change with the association of operands. */
typedef enum {
    TUTTI__ANY_ASSOCIATION = 0,
    TUTTI__STRICT_ASSOCIATION = 1, /* only what associates every element alike; else an error */
    TUTTI__STEADY_ASSOCIATION = 2  /* the same for what is chosen here; an override wins */
} tutti__association_t;

/*
 * Which algorithm serves a call? Depends on the arguments only, so all ranks choose alike.
 *
 * bytes              of the whole result
 * override           text of TUTTI_ALGORITHM, NULL or "": none. Items `collective:algorithm` or
 *                    `allreduce:hierarchical/sub`, separated by `,` or `;`, blanks between them
 * association        TUTTI_DETERMINISTIC=strict is TUTTI__STRICT_ASSOCIATION
 * ret_sub            for args->sub; NULL, or a pointer from the algorithm's subs
 *
 * An override is followed or is an error, never replaced: TUTTI_ERR_INVALID_ARGUMENT for names that
 * do not exist, TUTTI_ERR_UNSUPPORTED if the algorithm cannot serve the shape or the association.
 */
tutti_status_t tutti__algorithm_choose(tutti__collective_t collective, const tutti__shape_t *shape,
                                       size_t bytes, const char *override,
                                       tutti__association_t association,
                                       const tutti__algorithm_t **ret_algorithm,
                                       const char **ret_sub);

/* At init: would any collective's choice fail because of `override`? (But for the association.)
   shape: NULL looks at the names only. */
tutti_status_t tutti__algorithm_check_override(const char *override, const tutti__shape_t *shape);

/*
 * The buffers of each collective, as block maps see them:
 *   ALLREDUCE  IN, OUT: the call's count, in the schedule's nblocks equal shares
 *   BROADCAST  OUT only (IN is OUT): count in nblocks equal shares
 *   ALLGATHER  OUT: size blocks of sendcount elements, block r from rank r. IN: its own part, seen
 *              as block `rank` of IN (the executor passes IN shifted back), so in place they alias
 *   BARRIER    nblocks 1, count 1 of UINT8, SCRATCH only; the executor gives a one-element map.
 *              What SCRATCH holds does not matter, but set it once, for tools that look
 */

#endif
