/* SPDX-License-Identifier: BSD-3-Clause */
/* The metadata of a call: the properties that must be equal on all ranks for one tensor. */
#ifndef TUTTI__AGREE_METADATA_H
#define TUTTI__AGREE_METADATA_H

#include <stddef.h>
#include <stdint.h>

#define TUTTI__NOBODY UINT32_MAX

/*
 * The ranks send this structure in control messages. `count` and `more` are
 *   most collectives               the call's count; 0
 *   reduce_scatterv, allgatherv    the sum of recvcounts; their hash
 *   gatherv, scatterv, alltoallv   0; 0 (counts are compared later, see call/exchange.h)
 *   messages                       elements sent; elements received
 */
typedef struct {
    uint64_t count, more;
    uint64_t prescale, postscale; /* the bits of the doubles */
    uint32_t op;                  /* 0 where nothing is reduced */
    uint32_t root;                /* messages: the receiver, or TUTTI__NOBODY */
    uint32_t source;              /* messages: the sender, or TUTTI__NOBODY; otherwise 0 */
    uint8_t kind, dtype;
    uint8_t phase;          /* 1: the data of a call whose counts were exchanged before */
    unsigned unsure : 1;    /* allgatherv: some rank passed NULL as recvcounts. `count` and `more`
                               come from a rank that passed recvcounts; 0 if all passed NULL */
    unsigned on_device : 1; /* the buffers are device memory. Always 0 for kinds of calls in which
                               a rank without elements has no buffer */
    unsigned wire : 5;      /* type of the elements between hosts; 0: as dtype */
    unsigned priority : 8;  /* the highest priority of all ranks; not compared */
} tutti__metadata_t;

int tutti__metadata_is_message(const tutti__metadata_t *metadata);
/* Is the call an allgatherv for which all ranks passed NULL as recvcounts so far? */
int tutti__metadata_has_no_counts(const tutti__metadata_t *metadata);
/* Returns 1 if these calls do not match, so they cannot be calls of one tensor. */
int tutti__metadata_differ(const tutti__metadata_t *a, const tutti__metadata_t *b);
/* Take another rank's priority, if it is higher: the highest of all ranks' priorities counts. */
static inline void tutti__metadata_raise(tutti__metadata_t *metadata, unsigned priority)
{
    if (metadata->priority < priority)
        metadata->priority = priority & UINT8_MAX;
}

/* Must the ranks exchange their counts before the data move? */
int tutti__metadata_needs_counts(const tutti__metadata_t *metadata);

/* A submission group: the calls of one tutti_submit. */
typedef struct {
    uint64_t hash;        /* of all names, in their order */
    uint32_t index, size; /* size 0: the call is in no group */
} tutti__group_msg_t;

/* Are the two calls in submission groups that have the same names in the same order? */
static inline int tutti__group_is_same(const tutti__group_msg_t *a, const tutti__group_msg_t *b)
{
    return a->size > 0 && a->size == b->size && a->hash == b->hash;
}

/* "an allreduce of 8 elements of float32, sum" */
void tutti__metadata_call_text(char *text, size_t bytes, const tutti__metadata_t *metadata);

/* "rank 1 has an allreduce of 8 elements of float32, sum; rank 2 has a barrier". group and
   other_group: the submission groups of the two calls. */
void tutti__metadata_texts(char *text, size_t bytes, uint32_t rank, const tutti__metadata_t *m,
                           const tutti__group_msg_t *group, uint32_t other_rank,
                           const tutti__metadata_t *other, const tutti__group_msg_t *other_group);

/* Can a call of this kind be in a bucket with other calls? True for allreduce, reduce, broadcast,
   reduce_scatter and allgather. */
int tutti__metadata_can_fuse(const tutti__metadata_t *metadata);
/* Can the two tensors be in one bucket? */
int tutti__metadata_fuse(const tutti__metadata_t *a, const tutti__metadata_t *b);
/* Bytes that a tensor takes in a bucket with other tensors. */
size_t tutti__metadata_bytes(const tutti__metadata_t *metadata, uint32_t size);

#endif
