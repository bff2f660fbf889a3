/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control messages between neighbours in the tree of boot.h, and the ends of a link.
 *
 * Messages to ranks of this host pass through a pair of byte rings in the child's arena; other
 * messages use the side channel. Both keep the order on a link. BYE, DEAD and CANCEL use the side
 * channel, because an idle rank polls nothing else. Where the order matters, the receiver empties
 * the ring first. (A BYE behind a backlog stays in the ring: such a peer is not idle.)
 */
#ifndef TUTTI__ENGINE_MESSAGES_H
#define TUTTI__ENGINE_MESSAGES_H

#include "agree/agree.h"
#include "base/atomic.h"
#include "base/compiler.h"
#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Kinds of messages; TUTTI__MSG_ANNOUNCE and others: agree/agree.h. */
enum {
    TUTTI__MSG_BYE = TUTTI__MSG_OTHERS, /* both: uint32_t rank: has called finalize */
    TUTTI__MSG_DEAD,                    /* both: tutti__dead_msg_t */
    TUTTI__MSG_MISSING,                 /* up: a text about a tensor that has waited for long */
    TUTTI__MSG_CANCEL                   /* both: tutti__cancel_msg_t */
};

typedef struct {
    uint32_t status;
    uint32_t text_bytes;
} tutti__dead_msg_t; /* text follows */

/* A group whose making has failed. */
typedef struct {
    uint32_t first;  /* its first rank */
    uint32_t number; /* of the call that makes groups */
} tutti__cancel_msg_t;

/* ---- links ---- */

#define TUTTI__PIPE_BYTES 65536 /* a power of two, larger than several of the largest messages */

typedef struct {
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES) tutti__word_t head; /* bytes ever written */
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES) tutti__word_t tail; /* bytes ever read */
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES) char bytes[TUTTI__PIPE_BYTES];
} tutti__pipe_t;

typedef struct {
    uint32_t rank;  /* at the other end */
    int local;      /* 1: byte rings; 0: side channel */
    uint32_t index; /* local: among the machine's ranks */
    tutti__pipe_t *in, *out;
    uint32_t head; /* written, perhaps not published yet */
    int urgent;    /* wake the peer even if it has nothing pending itself */
    int lost;
    int bye;       /* it has sent a goodbye */
    char *backlog; /* messages that found no space: whole frames */
    size_t backlog_bytes, backlog_room, backlog_sent;
} tutti__link_t;

#endif
