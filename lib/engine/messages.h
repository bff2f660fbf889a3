/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control messages between neighbours in the tree of boot.h, and the ends of a link.
 *
 * Messages to ranks of my host go through a pair of byte rings in the child's arena, others through
 * the side channel; in order on each link, either way. BYE, DEAD and CANCEL take the side channel,
 * because an idle rank looks only there; where the order matters a receiver empties the ring first.
 * (A BYE behind a backlog stays behind it: such a peer is not idle.)
 */
#ifndef TUTTI__ENGINE_MESSAGES_H
#define TUTTI__ENGINE_MESSAGES_H

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define TUTTI__NAME_BYTES 256
#define TUTTI__NOBODY UINT32_MAX

enum {
    TUTTI__MSG_ANNOUNCE = 1, /* up: tutti__announce_msg_t */
    TUTTI__MSG_BUCKET,       /* down: tutti__bucket_msg_t */
    TUTTI__MSG_REJECT,       /* down: tutti__reject_msg_t */
    TUTTI__MSG_BYE,          /* both: uint32_t rank: has called finalize */
    TUTTI__MSG_DEAD,         /* both: tutti__dead_msg_t */
    TUTTI__MSG_JOIN,         /* up: uint32_t rank: has no more data */
    TUTTI__MSG_JOINED,       /* down: uint32_t rank, the last one: all have joined */
    TUTTI__MSG_MISSING,      /* up: a text about a tensor that waits for long */
    TUTTI__MSG_CANCEL        /* both: tutti__cancel_msg_t */
};

/*
 * What ranks must have in common to make one tensor of their calls. `count` and `more` are
 *   most collectives               the call's count; 0
 *   reduce_scatterv, allgatherv    the sum of recvcounts; their hash
 *   gatherv, scatterv, alltoallv   0; 0 (counts are compared later, see exchange.c)
 *   messages                       elements sent; elements received
 */
typedef struct {
    uint64_t count, more;
    uint64_t prescale, postscale; /* the bits of the doubles */
    uint32_t op;                  /* 0 where nothing is reduced */
    uint32_t root;                /* messages: whom it sends to, or TUTTI__NOBODY */
    uint32_t source;              /* messages: from whom it receives, or TUTTI__NOBODY; else 0 */
    uint8_t kind, dtype;
    uint8_t phase;          /* 1: the data of a call whose counts were exchanged before */
    unsigned unsure : 1;    /* allgatherv: somebody does not know recvcounts; `count` and `more` are
                               of those who do, or 0 */
    unsigned on_device : 1; /* its buffers are device memory. 0 where that is each rank's own
                               affair: in calls of which a rank may have no element, so no buffer */
} tutti__facts_t;

/*
 * One tensor as a rank, or the ranks of a subtree, announced it. Then follow: the other's facts if
 * there is a conflict, or tutti__group_msg_t; and the name, without its end.
 */
typedef struct {
    tutti__facts_t facts;
    uint32_t rank;       /* lowest link's first rank that announced it */
    uint32_t nranks;     /* of this subtree that have announced it */
    uint32_t other_rank; /* conflict: a rank that announced it differently */
    uint8_t conflict, grouped, name_bytes, unused;
} tutti__announce_msg_t;

/* One of a group of calls that were submitted together. */
typedef struct {
    uint64_t hash; /* of all names, in their order */
    uint32_t index, size;
} tutti__group_msg_t;

/* One tensor of a bucket. Then follow: the facts, if given; the name; members (uint32_t). */
typedef struct {
    uint32_t bucket;   /* number of the bucket; goes up by 1 */
    uint32_t nmembers; /* ranks that it concerns; 0: all */
    uint8_t last;      /* the bucket is complete */
    uint8_t phase;
    uint8_t counts;    /* exchange the counts first */
    uint8_t has_facts; /* for ranks that have joined */
    uint8_t name_bytes, unused[3];
} tutti__bucket_msg_t;

/* A tensor that will not be served. Name, text and members follow. */
typedef struct {
    uint32_t status;
    uint32_t nmembers; /* 0: all that have it */
    uint16_t text_bytes;
    uint8_t phase, name_bytes, unused[4];
} tutti__reject_msg_t;

typedef struct {
    uint32_t status;
    uint32_t text_bytes;
} tutti__dead_msg_t; /* text follows */

/* A group that is not made after all. */
typedef struct {
    uint32_t first;  /* its first rank */
    uint32_t number; /* of the call that makes groups */
} tutti__cancel_msg_t;

/* Most members in one message; more of them need several. */
#define TUTTI__MEMBERS 64
/* The longest body. */
#define TUTTI__BODY_BYTES                                                                          \
    (sizeof(tutti__announce_msg_t) + sizeof(tutti__facts_t) + TUTTI__NAME_BYTES +                  \
     TUTTI__ERROR_BYTES + TUTTI__MEMBERS * sizeof(uint32_t))

/* ---- links ---- */

#define TUTTI__PIPE_BYTES 65536 /* a power of two, larger than several of the largest messages */

typedef struct {
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES) tutti__word_t head; /* bytes ever written */
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES) tutti__word_t tail; /* bytes ever read */
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES) char bytes[TUTTI__PIPE_BYTES];
} tutti__pipe_t;

typedef struct {
    uint32_t rank;  /* at the other end */
    int local;      /* pipes, else side channel */
    uint32_t index; /* local: among the machine's ranks */
    tutti__pipe_t *in, *out;
    uint32_t head; /* written, perhaps not published yet */
    int urgent;    /* wake the peer even if it has nothing pending itself */
    int lost;
    int bye;       /* it has said goodbye */
    char *backlog; /* messages that found no room: whole frames */
    size_t backlog_bytes, backlog_room, backlog_sent;
} tutti__link_t;

#endif
