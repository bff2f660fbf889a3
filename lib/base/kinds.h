/* SPDX-License-Identifier: BSD-3-Clause */
/* Properties of the kinds of calls that depend on neither buffers nor algorithms. Any thread. */
#ifndef TUTTI__BASE_KINDS_H
#define TUTTI__BASE_KINDS_H

#include <tutti/tutti.h>

typedef struct {
    const char *name; /* "a reduce_scatter" */
    int reduces;
} tutti__kind_t;

extern const tutti__kind_t tutti__kinds[TUTTI_CALL_SENDRECV + 1];

/* "a reduce_scatter"; "no call" for an unknown kind. Static. */
static inline const char *tutti__call_name(tutti_call_kind_t kind)
{
    return kind > 0 && kind <= TUTTI_CALL_SENDRECV ? tutti__kinds[kind].name : "no call";
}

/* Returns 1 if the call combines elements. Such a call has an operation and scales. */
static inline int tutti__call_reduces(tutti_call_kind_t kind)
{
    return tutti__kinds[kind].reduces;
}

/* Returns 1 for gatherv, scatterv and alltoallv: a rank passes only counts of its own messages. */
static inline int tutti__call_by_pair(tutti_call_kind_t kind)
{
    return kind == TUTTI_CALL_GATHERV || kind == TUTTI_CALL_SCATTERV ||
           kind == TUTTI_CALL_ALLTOALLV;
}

static inline int tutti__call_has_root(tutti_call_kind_t kind)
{
    return kind == TUTTI_CALL_REDUCE || kind == TUTTI_CALL_BROADCAST || kind == TUTTI_CALL_GATHER ||
           kind == TUTTI_CALL_GATHERV || kind == TUTTI_CALL_SCATTER || kind == TUTTI_CALL_SCATTERV;
}

/* Returns 1 for a send, a receive and a sendrecv. */
static inline int tutti__call_is_message(tutti_call_kind_t kind)
{
    return kind >= TUTTI_CALL_SEND && kind <= TUTTI_CALL_SENDRECV;
}

#endif
