/* SPDX-License-Identifier: BSD-3-Clause */
/* The data that a rank sends and receives, for each kind of call. */
#include "call/call_sides.h"

#include "base/compiler.h"

static tutti__side_t one(const char *name, const char *count_name, const void *ptr, size_t count)
{
    return (tutti__side_t){ .name = name, .count_name = count_name, .ptr = ptr, .count = count };
}

static tutti__side_t many(const char *name, const char *count_name, const void *ptr,
                          const size_t *counts, const char *displs_name, const size_t *displs)
{
    static const size_t missing;

    /* `counts` may be NULL here: the check that adds up the counts reports this. */
    return (tutti__side_t){ .name = name,
                            .count_name = count_name,
                            .displs_name = displs_name,
                            .ptr = ptr,
                            .count = counts == NULL ? SIZE_MAX : 0,
                            .counts = counts == NULL ? &missing : counts,
                            .displs = displs };
}

void tutti__call_sends(const tutti__call_t *call, uint32_t rank, uint32_t size, tutti__side_t *side)
{
    const void *p = call->sendbuf;
    int is_root = rank == call->root;

    *side = (tutti__side_t){ 0 };
    switch (call->kind) {
    case TUTTI_CALL_BROADCAST:
    case TUTTI_CALL_BARRIER:
    case TUTTI_CALL_RECV:
        break;
    case TUTTI_CALL_REDUCE_SCATTER:
        *side = one("sendbuf", "recvcount", p, call->count * size);
        break;
    case TUTTI_CALL_REDUCE_SCATTERV:
        *side = many("sendbuf", "recvcounts", p, call->recvcounts, NULL, NULL);
        break;
    case TUTTI_CALL_SCATTER:
        if (is_root)
            *side = one("sendbuf", "recvcount", p, call->count * size);
        break;
    case TUTTI_CALL_SCATTERV:
        if (is_root)
            *side = many("sendbuf", "sendcounts", p, call->sendcounts, "displs", call->senddispls);
        break;
    case TUTTI_CALL_ALLTOALL:
        *side = one("sendbuf", "count", p, call->count * size);
        break;
    case TUTTI_CALL_ALLTOALLV:
        *side = many("sendbuf", "sendcounts", p, call->sendcounts, "senddispls", call->senddispls);
        break;
    case TUTTI_CALL_SEND:
        *side = one("buffer", "count", p, call->count);
        break;
    case TUTTI_CALL_ALLGATHER:
    case TUTTI_CALL_ALLGATHERV:
    case TUTTI_CALL_GATHER:
    case TUTTI_CALL_GATHERV:
    case TUTTI_CALL_SENDRECV:
        *side = one("sendbuf", "sendcount", p, call->count);
        break;
    default:
        *side = one("sendbuf", "count", p, call->count);
        break;
    }
}

void tutti__call_receives(const tutti__call_t *call, uint32_t rank, uint32_t size,
                          tutti__side_t *side)
{
    const void *p = call->recvbuf;
    int is_root = rank == call->root;

    *side = (tutti__side_t){ 0 };
    switch (call->kind) {
    case TUTTI_CALL_BARRIER:
    case TUTTI_CALL_SEND:
        break;
    case TUTTI_CALL_BROADCAST:
    case TUTTI_CALL_RECV:
        *side = one("buffer", "count", p, call->count);
        break;
    case TUTTI_CALL_REDUCE_SCATTER:
    case TUTTI_CALL_SCATTER:
    case TUTTI_CALL_SCATTERV:
        *side = one("recvbuf", "recvcount", p, call->count);
        break;
    case TUTTI_CALL_REDUCE_SCATTERV:
        *side = one("recvbuf", "recvcounts", p, call->recvcounts[rank]);
        break;
    case TUTTI_CALL_GATHER:
        if (!is_root)
            break;
        /* fall through */
    case TUTTI_CALL_ALLGATHER:
        *side = one("recvbuf", "sendcount", p, call->count * size);
        break;
    case TUTTI_CALL_GATHERV:
        if (!is_root)
            break;
        /* fall through */
    case TUTTI_CALL_ALLGATHERV:
        *side = many("recvbuf", "recvcounts", p, call->recvcounts, "displs", call->recvdispls);
        break;
    case TUTTI_CALL_ALLTOALL:
        *side = one("recvbuf", "count", p, call->count * size);
        break;
    case TUTTI_CALL_ALLTOALLV:
        *side = many("recvbuf", "recvcounts", p, call->recvcounts, "recvdispls", call->recvdispls);
        break;
    case TUTTI_CALL_SENDRECV:
        *side = one("recvbuf", "recvcount", p, call->recvcount);
        break;
    case TUTTI_CALL_REDUCE:
        if (is_root)
            *side = one("recvbuf", "count", p, call->count);
        break;
    default:
        if (call->kind != TUTTI_CALL_EXSCAN || rank > 0)
            *side = one("recvbuf", "count", p, call->count);
        break;
    }
}

void tutti__side_measure(tutti__side_t *side, uint32_t size)
{
    size_t next = 0;

    side->end = side->count;
    if (side->counts == NULL)
        return;
    side->end = 0;
    for (uint32_t r = 0; r < size; r++) {
        size_t begin = side->displs != NULL ? side->displs[r] : next;

        next += side->counts[r];
        if (side->counts[r] > 0)
            side->end = TUTTI__MAX(side->end, begin + side->counts[r]);
    }
    side->count = next;
}
