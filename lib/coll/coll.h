/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The algorithms: pure functions from a communicator's shape and a call's arguments to one rank's
 * schedule.
 *
 * These functions only compute: no I/O, no addresses, no sizes of buffers. Each algorithm has a
 * file. select.c chooses among the algorithms.
 *
 * In the comments of the algorithms n is the number of ranks. Only in the lines "Cost" p is the
 * number of ranks, and n the number of bytes. There alpha is the time of a message, beta that of a
 * byte sent, gamma that of a byte reduced, and lg is the logarithm to base 2.
 */
#ifndef TUTTI__COLL_COLL_H
#define TUTTI__COLL_COLL_H

#include "sched/sched.h"

#include <tutti/tutti.h>

typedef enum {
    TUTTI__ALLREDUCE,
    TUTTI__ROOT_REDUCE, /* reduce to a root; TUTTI__REDUCE is an operation in sched.h */
    TUTTI__BROADCAST,
    TUTTI__REDUCE_SCATTER, /* also its v form (any lengths): BY_NUMBER takes any block map */
    TUTTI__ALLGATHER,
    TUTTI__ALLGATHERV, /* ALLGATHER with blocks of any lengths and places: no node operation */
    TUTTI__GATHER,
    TUTTI__GATHERV,
    TUTTI__SCATTER,
    TUTTI__SCATTERV,
    TUTTI__ALLTOALL,
    TUTTI__ALLTOALLV,
    TUTTI__SCAN,
    TUTTI__EXSCAN,
    TUTTI__BARRIER,
    TUTTI__COLLECTIVES
} tutti__collective_t;

typedef struct tutti__files tutti__files_t; /* files.h */

/* The link between hosts, for the cost model (cost.h). Equal on all ranks. A field of 0: the
   model's default. */
typedef struct {
    uint64_t alpha_ns;   /* time of a message, from its sender to its receiver */
    uint64_t beta_ps;    /* picoseconds of each byte */
    uint64_t slot_bytes; /* longest message, as computed without any measurement */
    /* The next two may be measured, so they are only for decisions that do not change bits. */
    uint64_t rtt_ns;      /* a round trip; 0: 2 alpha_ns */
    uint64_t piece_bytes; /* longest message (TUTTI_CHUNK_BYTES); 0: slot_bytes */
} tutti__cost_link_t;

/*
 * The ranks of a communicator, for the algorithms. Host h has the ranks by_host[i] with
 * host_first[h] <= i < host_first[h + 1], ascending.
 */
typedef struct {
    uint32_t size, nhosts;
    const uint32_t *host_of;     /* [size] */
    const uint32_t *local_of;    /* [size] rank within its host */
    const uint32_t *host_first;  /* [nhosts + 1] */
    const uint32_t *by_host;     /* [size] */
    uint32_t min_local;          /* the smallest number of ranks on a host */
    uint32_t group_size;         /* ranks in a core group: local ranks are cut into runs of this
                                   length (the last may be shorter); 0: the host is one group */
    tutti__scope_t device_scope; /* the widest scope of node operations on device memory */
    tutti__cost_link_t link;     /* only for the choice of algorithms */
    const tutti__files_t *files; /* users' schedules; algorithms do not use them. NULL: none */
    int on_device;               /* 1: calls are on device memory. Only for the choice of
                                    algorithms; set by cache.c */
} tutti__shape_t;

/* The values besides the shape that determine a schedule. Fields that a call does not need are
   0. */
typedef struct {
    uint32_t rank;
    uint32_t root;    /* BROADCAST, REDUCE, GATHER(V), SCATTER(V): a rank */
    int in_place;     /* see the end of this file */
    const char *sub;  /* inner algorithm (see subs); NULL: the default, or none */
    uint32_t radix;   /* for algorithms with a radix, >= 2; 0: the default */
    int on_device;    /* IN and OUT are device memory. If possible, the schedule is built for device
                         memory and has on_device set */
    uint32_t streams; /* streams between hosts, at most tutti__coll_most_streams; 0: one */
} tutti__coll_args_t;

typedef struct {
    const char *name; /* "ring", as in TUTTI_ALGORITHM=allreduce:ring */
    tutti__collective_t collective;
    const char *purpose; /* one line, for users */
    /* Every element has the same association, for any place in the buffer and any length or
       chunking of the buffer. An algorithm with subs has this property if its sub also has it. */
    int fixed_association;
    int ordered;    /* operands are in the order of ranks, on every shape that the algorithm serves.
                       An algorithm with subs has this property if its sub also has it. Required for
                       operations that do not commute */
    uint32_t radix; /* default radix; 0: has none */
    const char *const *subs; /* values for args->sub, ended by NULL; NULL: has none */
    /* The reason why the algorithm cannot serve a shape, or NULL. refuses NULL: it serves all
       shapes. */
    const char *(*refuses)(const tutti__shape_t *shape);
    tutti_status_t (*build)(const tutti__shape_t *shape, const tutti__coll_args_t *args,
                            tutti__sched_t **ret_sched);
} tutti__algorithm_t;

/* All algorithms; ended by an entry with name NULL. */
extern const tutti__algorithm_t tutti__algorithms[];

/* Returns a static name, such as "allreduce". */
const char *tutti__collective_name(tutti__collective_t collective);
/* Returns NULL if there is no such algorithm. */
const tutti__algorithm_t *tutti__algorithm_find(tutti__collective_t collective, const char *name);

/* May the association of operands depend on sizes? Another association gives other bits. */
typedef enum {
    TUTTI__ANY_ASSOCIATION = 0,
    TUTTI__STRICT_ASSOCIATION = 1, /* all elements have one association; otherwise an error */
    TUTTI__STEADY_ASSOCIATION = 2  /* the same, but it does not restrict an override */
} tutti__association_t;

#define TUTTI__ANY_ROOT UINT32_MAX /* for a choice without a call: no root is checked */

/* The properties of a call that determine the choice. Equal on all ranks. */
typedef struct {
    tutti__collective_t collective;
    size_t bytes;  /* of all blocks of IN or OUT, whichever has more; 0 if ranks would have
                      different values (v forms) */
    uint32_t root; /* for collectives with a root */
    int ordered;   /* the operation does not commute */
} tutti__want_t;

typedef struct {
    const tutti__algorithm_t *algorithm; /* row of table.c, or of a user's file (files.h) */
    const char *sub;                     /* NULL, or a pointer from the algorithm's subs */
    uint32_t radix;                      /* 0: has none */
    uint32_t streams;                    /* between hosts; above 1 only in an allreduce */
} tutti__choice_t;

/*
 * Choose the algorithm for a call, by the arguments only. So all ranks choose alike.
 *
 * override     text of TUTTI_ALGORITHM; NULL or "": none. `,` or `;` separates the items. An
 *              item is collective:algorithm , collective:algorithm/sub or
 *              collective:algorithm(radix) , or it also has a range of bytes, as in
 *              allreduce:0-4k:recursive_doubling,allreduce:4k-:ring . The upper end is not in
 *              the range. Outside all ranges the table decides. allreduce:@path means the
 *              schedules in a file of shape->files. If a file is for another number of ranks,
 *              as in a group, the table decides. nccl-flat is only for device memory of
 *              several hosts: if shape->device_scope is HOST, the table decides. The scope is HOST
 *              for calls on host memory, and in groups
 * association  TUTTI_DETERMINISTIC=strict is TUTTI__STRICT_ASSOCIATION
 * ret_why      for users: "by the table: one host"; static. For an override: tutti__why_forced
 *
 * Except where the table decides, an override is followed or is an error.
 * TUTTI_ERR_INVALID_ARGUMENT: names do not exist, or ranges overlap. TUTTI_ERR_UNSUPPORTED: the
 * algorithm cannot serve the shape, the association, or an operation that does not commute.
 */
tutti_status_t tutti__algorithm_choose(const tutti__want_t *want, const tutti__shape_t *shape,
                                       const char *override, tutti__association_t association,
                                       tutti__choice_t *ret_choice, const char **ret_why);

extern const char tutti__why_forced[]; /* "TUTTI_ALGORITHM" */
extern const char tutti__why_cost[];   /* "by cost": by the model of cost.h */

/* At init: check whether any collective's choice would fail because of `override`. The association
   is not checked. shape NULL: check the names only. */
tutti_status_t tutti__algorithm_check_override(const char *override, const tutti__shape_t *shape);

/* Does `override` name nccl-flat, which needs a node of all ranks on device memory? In
   allreduce_nccl_flat.c. */
int tutti__override_is_nccl_flat(const char *override);

/*
 * The buffers of each collective, and their blocks. n is the number of ranks, r this rank.
 *   ALLREDUCE       IN, OUT: the call's count, in the schedule's nblocks equal shares
 *   REDUCE          as ALLREDUCE; OUT on root only. In place on root: IN is OUT
 *   SCAN, EXSCAN    as ALLREDUCE
 *   BROADCAST       OUT only (IN is OUT): count in nblocks equal shares
 *   REDUCE_SCATTER  IN: n blocks; OUT: block r only. In place: OUT is block r of IN
 *   ALLGATHER(V)    OUT: n blocks, block s from rank s. IN: block r only, the rank's own. In place:
 *                   IN is block r of OUT
 *   GATHER(V)       as ALLGATHER(V), with OUT on root only; in place on root only
 *   SCATTER(V)      IN: n blocks, on root only; OUT: block r only. In place on root: block r of IN
 *   ALLTOALL(V)     IN, OUT: n blocks; IN block s goes to rank s. In place: IN is OUT
 *   BARRIER         nblocks 1, count 1 of UINT8, SCRATCH only. The content of SCRATCH does not
 *                   matter; the executor sets it once, for memory checkers
 *
 * If a rank has only one block of a buffer, the executor gets the buffer's address minus the
 * block's offset (call/call_prepare.c). So the block has the same offset as in the whole buffer.
 *
 * Sizes (sched.h): ALLGATHER, GATHER, SCATTER and ALLTOALL have equal blocks, so their schedules
 * are ALL_EQUAL or BY_NUMBER, as the algorithm needs. ALLGATHERV, REDUCE_SCATTER: BY_NUMBER.
 * GATHERV, SCATTERV, ALLTOALLV: BY_PAIR.
 */

#endif
