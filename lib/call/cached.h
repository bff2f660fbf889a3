/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cached form of an operation: a fast path for a direct call that repeats the previous call.
 *
 * Programs repeat a few calls with new data. If a call is a single node operation, its kind, types
 * and counts determine everything but the buffers. So a call that repeats the previous call skips
 * the checks, the choice of a schedule and the executor, and starts the node operation directly. An
 * allreduce of 8 bytes then takes 390 instructions instead of 1 300.
 */
#ifndef TUTTI__CALL_CACHED_H
#define TUTTI__CALL_CACHED_H

#include "call/operation.h"
#include "stats/stats.h"

typedef struct {
    int is_off; /* set once. 1: calls may use device memory, so nothing is kept */
    int is_kept;
    int is_same;                    /* the node operation has run in cached form */
    tutti__call_t call;             /* the kept call; its repetition may use other buffers */
    size_t send_bytes, recv_bytes;  /* lengths of sendbuf and recvbuf; 0: no such buffer */
    int in_place;                   /* sendbuf and recvbuf are equal */
    uintptr_t src_shift, dst_shift; /* from the buffers to the operation's src and dst */
    tutti__reducer_t reducer;
    tutti__node_call_t node;
    char nothing[16];            /* the buffer of a barrier's operation */
    tutti__stats_entry_t *entry; /* the counters for the kept call */
    uint64_t bytes;              /* bytes that one call adds to these counters */
} tutti__cached_t;

/* After an operation without an error: keep its cached form, if it has one. entry, bytes: see
   tutti__cached_t. */
void tutti__cached_keep(tutti__cached_t *cached, const tutti__operation_t *op,
                        tutti__stats_entry_t *entry, uint64_t bytes);
/* Does `call` repeat the kept call, with valid buffers? */
int tutti__cached_fits(const tutti__cached_t *cached, const tutti__call_t *call);
/* Start the node operation for `call`, and step it once; the step polls up to `looks` times.
   tutti__cached_fits must have returned 1 for `call`. */
tutti_status_t tutti__cached_start(tutti__cached_t *cached, const tutti__call_t *call,
                                   tutti__node_t *node, uint32_t looks, tutti__hint_t *hint);

#endif
