/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Declarations that the files of coll/ share, and the ranks that take part in an algorithm.
 *
 * An allreduce between ranks has two uses: it is an algorithm for all ranks, and it is the part
 * between hosts of a hierarchical algorithm. So each such allreduce has a `put` function, which
 * appends operations to a schedule under construction, for a set of participants (tutti__party_t).
 * The caller of a `put` function has begun the chunk loop. Trees also have such functions.
 */
#ifndef TUTTI__COLL_ALGORITHMS_H
#define TUTTI__COLL_ALGORITHMS_H

#include "coll/coll.h"
#include "sched/build.h"

/*
 * Participants: a set of ranks that work together. The members have the numbers 0 to n - 1.
 *
 *      all      all ranks, host by host, so that most neighbours in a ring or tree share a host
 *      ranked   all ranks, in the order of ranks: for operations that do not commute, and to give
 *               neighbouring members neighbouring blocks
 *      across   the ranks of all hosts that have the same local number
 */
typedef struct {
    const tutti__shape_t *shape;
    uint32_t n, me; /* me: this rank's member number */
    enum {
        TUTTI__PARTY_RANKED, /* member i is rank first + i */
        TUTTI__PARTY_PLACED, /* member i is by_host[first + i * step] */
        TUTTI__PARTY_ACROSS  /* member i is the local rank `first` of host i */
    } kind;
    uint32_t first, step;
} tutti__party_t;

static inline tutti__party_t tutti__party_all(const tutti__shape_t *shape, uint32_t rank)
{
    uint32_t me = shape->host_first[shape->host_of[rank]] + shape->local_of[rank];

    return (tutti__party_t){ shape, shape->size, me, TUTTI__PARTY_PLACED, 0, 1 };
}

static inline tutti__party_t tutti__party_ranked(const tutti__shape_t *shape, uint32_t rank)
{
    return (tutti__party_t){ shape, shape->size, rank, TUTTI__PARTY_RANKED, 0, 1 };
}

/* The ranks with this rank's local number on all hosts. Every host must have such a rank. */
static inline tutti__party_t tutti__party_across(const tutti__shape_t *shape, uint32_t rank)
{
    return (tutti__party_t){
        shape, shape->nhosts, shape->host_of[rank], TUTTI__PARTY_ACROSS, shape->local_of[rank], 1
    };
}

static inline uint32_t tutti__party_rank(const tutti__party_t *party, uint32_t i)
{
    switch (party->kind) {
    case TUTTI__PARTY_PLACED:
        return party->shape->by_host[party->first + i * party->step];
    case TUTTI__PARTY_ACROSS:
        return party->shape->by_host[party->shape->host_first[i] + party->first];
    default:
        return party->first + i;
    }
}

static inline tutti__at_t tutti__at(tutti__buf_t buf, uint32_t blk)
{
    return (tutti__at_t){ buf, blk };
}

/* The position `blocks` blocks after `at`. */
static inline tutti__at_t tutti__beyond(tutti__at_t at, uint32_t blocks)
{
    return (tutti__at_t){ at.buf, at.blk + blocks };
}

/* The largest power of two up to n; n >= 1. */
static inline uint32_t tutti__power_upto(uint32_t n)
{
    uint32_t power = 1;

    while (power <= n / 2)
        power *= 2;
    return power;
}

/*
 * Recursive algorithms need a power of two as the number of members. If n is no power of two, the
 * first members form pairs: the even member of a pair steps aside (takes no part), and the odd
 * member, its proxy, works for both. Each pair, and each member without a pair, has a number from 0
 * to power - 1. The algorithm works with these numbers.
 *
 *      members  0 1   2 3   4   5      n = 6: power 4, extra 2
 *      numbers   0     1    2   3
 */
typedef struct {
    uint32_t power, extra;
} tutti__pairs_t;

static inline tutti__pairs_t tutti__pairs_of(uint32_t n)
{
    uint32_t power = tutti__power_upto(n);

    return (tutti__pairs_t){ power, n - power };
}

static inline uint32_t tutti__pairs_number(tutti__pairs_t pairs, uint32_t member)
{
    return member < 2 * pairs.extra ? member / 2 : member - pairs.extra;
}

/* The first member that has this number. If number is `power`: n. */
static inline uint32_t tutti__pairs_first(tutti__pairs_t pairs, uint32_t number)
{
    return number < pairs.extra ? 2 * number : number + pairs.extra;
}

/* The member that works for this number. */
static inline uint32_t tutti__pairs_proxy(tutti__pairs_t pairs, uint32_t number)
{
    return number < pairs.extra ? 2 * number + 1 : number + pairs.extra;
}

static inline int tutti__pairs_is_aside(tutti__pairs_t pairs, uint32_t member)
{
    return member < 2 * pairs.extra && member % 2 == 0;
}

/* ---- pieces.c: shared by many algorithms ---- */

/* Move n blocks in one direction, in messages of at most `max` blocks. Two ranks must not send
   blocks to each other with these functions: with one slot per channel, they would wait for each
   other. */
void tutti__coll_put_send(tutti__build_t *b, uint32_t peer, tutti__at_t src, uint32_t n,
                          uint32_t max);
void tutti__coll_put_recv(tutti__build_t *b, uint32_t peer, unsigned stream, tutti__at_t dst,
                          uint32_t n, uint32_t max);
/* left: the message is the left operand. */
void tutti__coll_put_recv_reduce(tutti__build_t *b, uint32_t peer, unsigned stream, int left,
                                 tutti__at_t src, tutti__at_t dst, uint32_t n, uint32_t max);

/* Move n blocks of a circle of `size` blocks, from block `from` on. If these blocks cross the
   circle's end, they take two messages. */
void tutti__coll_put_send_arc(tutti__build_t *b, uint32_t peer, tutti__buf_t buf, uint32_t from,
                              uint32_t n, uint32_t size);
void tutti__coll_put_recv_arc(tutti__build_t *b, uint32_t peer, tutti__buf_t buf, uint32_t from,
                              uint32_t n, uint32_t size);

/* The largest number of blocks in a message of a binomial tree or of Bruck's allgather, with n
   blocks in total. */
uint32_t tutti__coll_arc_blocks(uint32_t n);

/*
 * One member reduces the blocks of n members, in the order of members. The algorithm calls
 * tutti__coll_collect(&c, rank) for each member in this order, also for the member itself. Fields
 * that the algorithm does not set must be 0.
 */
typedef struct {
    tutti__build_t *b;
    uint32_t n, me;
    tutti__at_t own, dst; /* this rank's operand, and the result; may be equal */
    tutti__at_t tmp;      /* temporary memory; not needed if me < 2 */
    uint32_t blocks;
    unsigned stream; /* the senders' stream */
    int finish;
    uint32_t i; /* the next member */
} tutti__collect_t;

void tutti__coll_collect(tutti__collect_t *c, uint32_t rank);

/* ---- allreduces as parts of others ---- */

/*
 * Levels of temporary memory in SCRATCH, for the allreduces below. Level k begins k * stride blocks
 * after block blk. stride is the schedule's number of blocks. So block i of a level is as long as
 * block i of OUT.
 */
typedef struct {
    uint32_t blk, stride;
} tutti__levels_t;

/*
 * Append an allreduce over `party` (n >= 2) to stream `stream`. This must be the current stream, in
 * a chunk loop, and the same stream on all members. The allreduce reads src, and writes the
 * finished result to dst. src, dst and the begin of each level are each the first of `blocks`
 * blocks; see tutti__coll_between_t.
 */
typedef void tutti__coll_put_t(tutti__build_t *b, const tutti__party_t *party, tutti__at_t src,
                               tutti__at_t dst, tutti__levels_t levels, unsigned stream);
tutti__coll_put_t tutti__coll_put_ring;
tutti__coll_put_t tutti__coll_put_recursive_doubling;
tutti__coll_put_t tutti__coll_put_halving_doubling;
tutti__coll_put_t tutti__coll_put_direct_scatter;

typedef struct {
    tutti__coll_put_t *put;
    uint32_t blocks;  /* number of blocks of src, and of dst, for n members */
    uint32_t message; /* largest number of blocks in a message */
    uint32_t levels;  /* levels of temporary memory */
} tutti__coll_between_t;

uint32_t tutti__coll_direct_scatter_levels(uint32_t n);

/* Find an allreduce by its name, one of tutti__coll_between_names (ended by NULL). name NULL: the
   first of them. Returns 0 if there is no such name. */
extern const char *const tutti__coll_between_names[];
int tutti__coll_between(const char *name, uint32_t n, tutti__coll_between_t *ret_between);

/* The most streams between hosts that the algorithm can have, at least 1. */
uint32_t tutti__coll_most_streams(const tutti__algorithm_t *algorithm);

/* The number of streams between hosts for a call, at least 1: see between.c. All other fields of
   the choice must be set. is_fixed: the choice has a fixed association, so more streams do not
   change bits. */
uint32_t tutti__coll_streams(const tutti__choice_t *choice, const tutti__shape_t *shape,
                             size_t bytes, int is_fixed);

/* Build a schedule of one of these allreduces for all ranks, with args->streams streams. ranked:
   members are in the order of ranks. */
tutti_status_t tutti__coll_build_between(const char *name, int ranked, const tutti__shape_t *shape,
                                         const tutti__coll_args_t *args,
                                         tutti__sched_t **ret_sched);

/*
 * Append a binomial tree over `party`, for `blocks` blocks, to the current stream `stream`. up: dst
 * of member 0 gets the reduction of all members' src, in the order of members. dst of the other
 * members gets partial results. down: member `root` sends `data` to all members.
 */
void tutti__coll_put_tree_up(tutti__build_t *b, const tutti__party_t *party, tutti__at_t src,
                             tutti__at_t dst, uint32_t blocks, unsigned stream, int finish);
void tutti__coll_put_tree_down(tutti__build_t *b, const tutti__party_t *party, uint32_t root,
                               tutti__at_t data, uint32_t blocks, unsigned stream);

/*
 * Append the first half of halving-doubling. Each member that does not step aside gets one block in
 * dst: the reduction of all members' src, in the order of members. Returns this member's number; or
 * UINT32_MAX if the member steps aside and only sends all its data.
 */
uint32_t tutti__coll_put_halve(tutti__build_t *b, const tutti__party_t *party, tutti__at_t src,
                               tutti__at_t dst, unsigned stream);

/* `number` with its bits below `power` in reverse order. */
uint32_t tutti__coll_reversed(uint32_t number, uint32_t power);

/* Schedules between two ranks, which are not collectives: see cache.h. */
tutti_status_t tutti__coll_build_sendrecv(const tutti__shape_t *shape, uint32_t rank, uint32_t dest,
                                          uint32_t source, tutti__sched_t **ret_sched);
tutti_status_t tutti__coll_build_heads(const tutti__shape_t *shape, uint32_t rank, uint32_t dest,
                                       uint32_t source, tutti__sched_t **ret_sched);

/* The reason why node algorithms cannot serve this shape; NULL: they can. */
const char *tutti__coll_node_refuses(const tutti__shape_t *shape);
/* The same for nccl-flat: it refuses several hosts if shape->device_scope is HOST. */
const char *tutti__coll_nccl_flat_refuses(const tutti__shape_t *shape);
/* The same for algorithms that need a power of two as the number of ranks. */
const char *tutti__coll_power_refuses(const tutti__shape_t *shape);

/* ---- the algorithms, as in tutti__algorithm_t.build ---- */

typedef tutti_status_t tutti__coll_build_t(const tutti__shape_t *shape,
                                           const tutti__coll_args_t *args,
                                           tutti__sched_t **ret_sched);

tutti__coll_build_t tutti__coll_node_allreduce;
tutti__coll_build_t tutti__coll_node_reduce;
tutti__coll_build_t tutti__coll_node_broadcast;
tutti__coll_build_t tutti__coll_node_reduce_scatter;
tutti__coll_build_t tutti__coll_node_allgather;
tutti__coll_build_t tutti__coll_node_alltoall;
tutti__coll_build_t tutti__coll_node_barrier;

tutti__coll_build_t tutti__coll_allreduce_binomial;
tutti__coll_build_t tutti__coll_allreduce_direct;
tutti__coll_build_t tutti__coll_allreduce_direct_scatter;
tutti__coll_build_t tutti__coll_allreduce_double_tree;
tutti__coll_build_t tutti__coll_allreduce_halving_doubling;
tutti__coll_build_t tutti__coll_allreduce_hierarchical;
tutti__coll_build_t tutti__coll_allreduce_knomial;
tutti__coll_build_t tutti__coll_allreduce_leaders;
tutti__coll_build_t tutti__coll_allreduce_nccl_flat;
tutti__coll_build_t tutti__coll_allreduce_recursive_doubling;
tutti__coll_build_t tutti__coll_allreduce_ring;
tutti__coll_build_t tutti__coll_allreduce_three_level;

tutti__coll_build_t tutti__coll_reduce_binomial;
tutti__coll_build_t tutti__coll_reduce_chain;
tutti__coll_build_t tutti__coll_reduce_scatter_gather;

tutti__coll_build_t tutti__coll_broadcast_binomial;
tutti__coll_build_t tutti__coll_broadcast_chain;
tutti__coll_build_t tutti__coll_broadcast_scatter_allgather;

tutti__coll_build_t tutti__coll_reduce_scatter_direct;
tutti__coll_build_t tutti__coll_reduce_scatter_halving;
tutti__coll_build_t tutti__coll_reduce_scatter_pairwise;
tutti__coll_build_t tutti__coll_reduce_scatter_ring;

tutti__coll_build_t tutti__coll_allgather_bruck; /* this and the next four: also ALLGATHERV */
tutti__coll_build_t tutti__coll_allgather_direct;
tutti__coll_build_t tutti__coll_allgather_pairwise;
tutti__coll_build_t tutti__coll_allgather_recursive_doubling;
tutti__coll_build_t tutti__coll_allgather_ring;

tutti__coll_build_t tutti__coll_gather_binomial;
tutti__coll_build_t tutti__coll_gather_direct;
tutti__coll_build_t tutti__coll_gatherv_direct;
tutti__coll_build_t tutti__coll_scatter_binomial;
tutti__coll_build_t tutti__coll_scatter_direct;
tutti__coll_build_t tutti__coll_scatterv_direct;

tutti__coll_build_t tutti__coll_alltoall_bruck;
tutti__coll_build_t tutti__coll_alltoall_direct;
tutti__coll_build_t tutti__coll_alltoall_pairwise;
tutti__coll_build_t tutti__coll_alltoall_recursive_doubling;
tutti__coll_build_t tutti__coll_alltoall_ring;
tutti__coll_build_t tutti__coll_alltoallv_direct;
tutti__coll_build_t tutti__coll_alltoallv_pairwise;

tutti__coll_build_t tutti__coll_scan_chain;
tutti__coll_build_t tutti__coll_scan_recursive_doubling;
tutti__coll_build_t tutti__coll_exscan_chain;
tutti__coll_build_t tutti__coll_exscan_recursive_doubling;

tutti__coll_build_t tutti__coll_barrier_dissemination;

#endif
