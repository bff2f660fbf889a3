/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The time that a collective is expected to take, by a model of messages: alpha for each message
 * that waits for an earlier one, beta for each byte that crosses a link. See cost.c.
 */
#ifndef TUTTI__COLL_COST_H
#define TUTTI__COLL_COST_H

#include "coll/coll.h"

/* The cost of a call: `ns` nanoseconds, and `ps` picoseconds more for each byte. Over the bytes
   this is a straight line. So the lines of two algorithms cross at one size at most. */
typedef struct {
    uint64_t ns, ps;
} tutti__cost_t;

/* The cost of an algorithm. sub: NULL if the algorithm has no subs. Returns 0 if the model does not
   have the algorithm, otherwise 1. */
int tutti__cost_of(const tutti__algorithm_t *algorithm, const char *sub,
                   const tutti__shape_t *shape, tutti__cost_t *ret_cost);

/* The cost of a hierarchical allreduce's stage between hosts, for all ranks of a host together,
   without the stages inside hosts. way: "recursive_doubling", "halving_doubling" or "ring". */
void tutti__cost_between(const char *way, const tutti__shape_t *shape, tutti__cost_t *ret_cost);

/* The time for `bytes` bytes, in picoseconds. Sizes above 16 GiB count as 16 GiB. */
uint64_t tutti__cost_ps(const tutti__cost_t *cost, size_t bytes);

/* TUTTI_CHUNK_BYTES for a link between hosts, if the setting is auto: the bytes that the link
   carries during a round trip (its bandwidth-delay product), within limits. The result is a power
   of two. rtt_ns 0: use 2 alpha. */
size_t tutti__cost_chunk_bytes(const tutti__cost_link_t *link, uint64_t rtt_ns);

/* The number of messages that a rank must have in flight to keep the link between hosts busy, while
   `sharers` ranks of its host send at the same time. This is 1 + the rank's share of the messages
   that the link carries during a round trip. measured: use the link's measured figures. */
uint64_t tutti__cost_in_flight(const tutti__shape_t *shape, uint32_t sharers, int measured);

/* The model's figures for the link between hosts. mbps: megabits per second, 0: unknown;
   latency_ns: from one host to another, 0: unknown; is_rdma: the network card moves data without
   the processor. */
tutti__cost_link_t tutti__cost_link(uint64_t mbps, uint64_t latency_ns, int is_rdma);

/* The largest size of data, at most `most`, that a call should send with the comparison of calls
   (call/ride.h). Up to this size, one allreduce of a frame with the data (by `leaders`) is expected
   to be no slower than two steps: an allreduce of a frame without data, and after it the call.
   Defined in select.c. */
size_t tutti__cost_ride_bytes(tutti__collective_t collective, const tutti__shape_t *shape,
                              tutti__association_t association, size_t most);

#endif
