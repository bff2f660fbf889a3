/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cost model by which select.c chooses: alpha and beta per level, as in Thakur et al., IJHPCA
 * 19(1), 2005, and Hockney, Parallel Computing 20(3), 1994.
 *
 * There are two levels: between hosts (far), with the figures of shape->link, and inside a host
 * (near), with the figures of base/constants.h. There are H hosts, p ranks and n bytes; L is the
 * largest number of ranks on a host. An algorithm has
 *
 *      far steps   messages between hosts, each of which waits for the previous one
 *      far bytes   the bytes that cross the busiest host's link in one direction. If all ranks of a
 *                  host send at the same time, these are L times the bytes of one rank
 *      near steps  messages inside a host, each of which waits for the previous one
 *      near bytes  the bytes of these messages, and all bytes that are reduced. A message from
 *                  another host that is not reduced has no near bytes, because it is received into
 *                  its place
 *
 * A message must fit a slot. So a chunk of a block has at most a slot's size, divided by the
 * largest number of blocks in a message. Longer blocks are cut into chunks, and each chunk passes
 * all steps: the time of the steps is multiplied by the number of chunks. This number is not
 * rounded, so that the cost is a straight line over n. If an allreduce has several streams between
 * hosts (between.c), the streams work on different chunks at the same time. So the time of all
 * chunks after the first one is divided by the number of streams.
 *
 * A message between hosts that does not wait for another message, such as a further chunk in a
 * chain, costs only the time to send it. The model takes a quarter of alpha for this time. With a
 * quarter, the model chooses trees in the same cases as the rules of Open MPI 4.0: small gathers of
 * more than 10 ranks, and alltoalls of more than 12 ranks with blocks below 200 bytes. The model
 * ignores the queues in switches. Messages from many ranks to one rank fill these queues.
 *
 * The numbers come from settings, the tuned file and the speed of the network cards, never from a
 * measurement of this job. So the same settings choose the same algorithms, and give the same bits.
 * Only tutti__cost_chunk_bytes and tutti__cost_in_flight may get measured figures.
 */
#include "coll/cost.h"

#include "base/compiler.h"
#include "base/constants.h"
#include "coll/algorithms.h"

#include <assert.h>
#include <string.h>

#define MOST_BYTES ((uint64_t)1 << 34)
#define LONGEST_PS (UINT64_MAX - 1)

/* ---- the link ---- */

tutti__cost_link_t tutti__cost_link(uint64_t mbps, uint64_t latency_ns, int is_rdma)
{
    uint64_t class = 1, known = mbps > 0 ? mbps : TUTTI__LINK_MBPS;

    /* Round the speed down to a power of two, so that 10 and 9.4 Gbit/s give the same choices. */
    while (class <= known / 2)
        class *= 2;
    if (latency_ns == 0)
        latency_ns = is_rdma ? TUTTI__LINK_RDMA_NS : TUTTI__LINK_TCP_NS;
    /* At least 1, because 0 means an unknown speed. */
    return (tutti__cost_link_t){ .alpha_ns = latency_ns,
                                 .beta_ps = TUTTI__MAX(8000000 / class, 1u) };
}

/* ---- the terms ---- */

typedef struct {
    uint64_t p, hosts, locals; /* locals: the largest number of ranks on a host */
    uint64_t least;            /* the smallest number of ranks on a host */
    uint64_t alpha_ns, beta_ps, slot_bytes;
    uint64_t streams; /* of each rank between hosts; 1 except in an allreduce */
    tutti__cost_t sum;
} model_t;

static uint64_t lg(uint64_t n)
{
    uint64_t steps = 0;

    while (((uint64_t)1 << steps) < n)
        steps++;
    return steps;
}

static int is_power(uint64_t n)
{
    return (n & (n - 1)) == 0;
}

static model_t begin(const tutti__shape_t *shape)
{
    model_t m = { .p = shape->size,
                  .hosts = shape->nhosts,
                  .least = TUTTI__MAX(shape->min_local, 1u),
                  .alpha_ns = shape->link.alpha_ns,
                  .beta_ps = shape->link.beta_ps,
                  .slot_bytes = shape->link.slot_bytes,
                  .streams = 1 };

    for (uint32_t h = 0; h < shape->nhosts; h++)
        m.locals = TUTTI__MAX(m.locals, shape->host_first[h + 1] - shape->host_first[h]);
    if (m.alpha_ns == 0)
        m.alpha_ns = TUTTI__LINK_TCP_NS;
    if (m.beta_ps == 0)
        m.beta_ps = tutti__cost_link(0, 0, 0).beta_ps;
    if (m.slot_bytes == 0)
        m.slot_bytes = TUTTI__CHUNK_BYTES;
    return m;
}

/* The number of messages in flight that keeps a link busy. message_ps: the time in which a message
   passes the link. The quotient is rounded to the nearest number: less than half of a message does
   not justify a further stream. */
static uint64_t in_flight(uint64_t rtt_ns, uint64_t message_ps)
{
    return 1 + (rtt_ns * 1000 + message_ps / 2) / message_ps;
}

size_t tutti__cost_chunk_bytes(const tutti__cost_link_t *link, uint64_t rtt_ns)
{
    uint64_t rtt_ps = (rtt_ns != 0 ? rtt_ns : 2 * link->alpha_ns) * 1000;
    size_t bytes = TUTTI__CHUNK_BYTES;

    while (bytes < TUTTI__CHUNK_MOST_BYTES && bytes * link->beta_ps < rtt_ps)
        bytes *= 2;
    return bytes;
}

uint64_t tutti__cost_in_flight(const tutti__shape_t *shape, uint32_t sharers, int measured)
{
    const model_t m = begin(shape);
    const tutti__cost_link_t *link = &shape->link;
    uint64_t bytes = measured && link->piece_bytes != 0 ? link->piece_bytes : m.slot_bytes;

    return in_flight(measured && link->rtt_ns != 0 ? link->rtt_ns : 2 * m.alpha_ns,
                     sharers * bytes * m.beta_ps);
}

/* Time to send a message, without waiting for its arrival. */
static uint64_t sending(const model_t *m)
{
    return m->alpha_ns / 4;
}

/* Add steps. Each message carries up to `most` blocks of n / parts bytes. */
static void steps(model_t *m, uint64_t far, uint64_t near, uint64_t parts, uint64_t most)
{
    uint64_t ns = far * m->alpha_ns + near * TUTTI__COST_NEAR_NS;

    m->sum.ns += ns;
    m->sum.ps += ns * 1000 * most / (parts * m->slot_bytes);
}

/* Add bytes, in units of n / parts. */
static void bytes(model_t *m, uint64_t far, uint64_t near, uint64_t parts)
{
    m->sum.ps += (far * m->beta_ps + near * TUTTI__COST_NEAR_PS) / parts;
}

/* Add messages of n / parts bytes that are in flight at the same time. */
static void at_once(model_t *m, uint64_t far, uint64_t near, uint64_t parts)
{
    uint64_t sending_ns = far * sending(m) + near * TUTTI__COST_NEAR_NS;

    m->sum.ns += sending_ns + (far > 0 ? m->alpha_ns - sending(m) : 0);
    m->sum.ps += sending_ns * 1000 / (parts * m->slot_bytes);
}

/* ---- allreduces between `n` ranks on different hosts. `slices` allreduces run at the same time,
   each for its share of the bytes. `shared` ranks share the link of a host ---- */

static void recursive_doubling(model_t *m, uint64_t n, uint64_t slices, uint64_t shared)
{
    /* floor(lg n) steps, and 2 more if n is no power of two. lg() rounds up, so add 1 only. */
    uint64_t far = lg(n) + (is_power(n) ? 0 : 1);

    steps(m, far, 0, slices * m->streams, 1);
    bytes(m, far * shared, lg(n) * shared, slices);
}

static void halving_doubling(model_t *m, uint64_t n, uint64_t slices, uint64_t shared)
{
    uint64_t more = is_power(n) ? 0 : 2, rounds = lg(n) - (more > 0);
    uint64_t power = (uint64_t)1 << rounds, most = TUTTI__MAX(power / 2, 1u);

    /* A message has up to `most` of `power` blocks. */
    steps(m, 2 * rounds + more, 0, slices * m->streams * power, most);
    bytes(m, (2 * (power - 1) + more * power) * shared, (power - 1 + more / 2 * power) * shared,
          slices * power);
}

/* direct_scatter gets the cost of ring, as if each message waited for the previous one: in
   direct_scatter n - 1 ranks send to one rank at once, and the model has no term for queues. If
   both can serve, ring is chosen, because its name comes first in between.c. */
static void ring(model_t *m, uint64_t n, uint64_t slices, uint64_t shared)
{
    steps(m, 2 * (n - 1), 0, slices * m->streams * n, 1);
    bytes(m, 2 * (n - 1) * shared, (n - 1) * shared, slices * n);
}

static int put_between(model_t *m, const char *name, uint64_t n, uint64_t slices, uint64_t shared)
{
    if (n == 1)
        return 1;
    if (strcmp(name, "recursive_doubling") == 0)
        recursive_doubling(m, n, slices, shared);
    else if (strcmp(name, "halving_doubling") == 0)
        halving_doubling(m, n, slices, shared);
    else if (strcmp(name, "ring") == 0 || strcmp(name, "direct_scatter") == 0)
        ring(m, n, slices, shared);
    else
        return 0;
    return 1;
}

static int allreduce(model_t *m, const char *name, const char *sub)
{
    if (sub != NULL) { /* hierarchical, three_level: the slices share the link */
        bytes(m, 0, m->locals > 1 ? 2 * m->locals : 0, 1);
        steps(m, 0, m->locals > 1 ? 2 : 0, 1, 1);
        return put_between(m, sub, m->hosts, m->least, m->least);
    }
    if (strcmp(name, "leaders") == 0) {
        steps(m, 0, 2 * (m->locals - 1), 1, 1);
        bytes(m, 0, 2 * (m->locals - 1), 1);
        return put_between(m, "recursive_doubling", m->hosts, 1, 1);
    }
    /* The other algorithms are between all ranks. The ranks of one host send at the same time. */
    return put_between(m, name, m->p, 1, m->locals);
}

/* ---- other collectives ---- */

/* In chains and trees the ranks are ordered host by host. */

static void chain(model_t *m)
{
    m->sum.ns += (m->hosts - 1) * m->alpha_ns + (m->p - m->hosts) * TUTTI__COST_NEAR_NS;
    m->sum.ps += sending(m) * 1000 / m->slot_bytes;
    if (m->hosts > 1)
        bytes(m, 1, m->locals > 1, 1);
    else
        bytes(m, 0, 1, 1);
}

static void binomial(model_t *m, uint64_t more)
{
    uint64_t far = lg(m->hosts), near = lg(m->locals) + more;

    steps(m, far, near, 1, 1);
    bytes(m, far, near, 1);
}

/* A pass over all ranks, with messages that halve or double. The ranks of a host share its link. */
static void by_halves(model_t *m, uint64_t more)
{
    uint64_t far = lg(m->hosts) + (m->hosts > 1 ? more : 0);
    uint64_t near = lg(m->locals) + (m->hosts > 1 ? 0 : more);

    steps(m, far, near, 2, 1);
    bytes(m, m->locals * (m->hosts - 1) + (m->hosts > 1 ? more * m->locals * m->hosts : 0),
          2 * m->hosts, m->hosts);
}

/* One pass around the ring of all ranks. The ring enters and leaves each host once. */
static void around(model_t *m)
{
    uint64_t far = m->hosts > 1;

    steps(m, far * (m->p - 1), !far * (m->p - 1), m->p, 1);
    bytes(m, far * (m->p - 1), m->p, m->p);
}

static int rooted(model_t *m, const char *name)
{
    if (strcmp(name, "binomial") == 0) {
        binomial(m, 0);
    } else if (strcmp(name, "chain") == 0) {
        chain(m);
    } else if (strcmp(name, "scatter_gather") == 0 || strcmp(name, "scatter_allgather") == 0) {
        by_halves(m, !is_power(m->p) && strcmp(name, "scatter_gather") == 0);
        /* The other pass is a scatter from the root (broadcast) or a gather to the root (reduce).
           Each block crosses the link of the root's host at most once, so there is no factor
           `locals`. */
        steps(m, lg(m->hosts), lg(m->locals), 2, 1);
        bytes(m, m->hosts - 1, m->hosts, m->hosts);
    } else {
        return 0;
    }
    return 1;
}

static int scattered(model_t *m, const char *name)
{
    if (strcmp(name, "halving") == 0)
        by_halves(m, is_power(m->p) ? 1 : 2);
    else if (strcmp(name, "bruck") == 0)
        by_halves(m, 0);
    else if (strcmp(name, "ring") == 0)
        around(m);
    else
        return 0;
    return 1;
}

static int scan(model_t *m, const char *name)
{
    if (strcmp(name, "recursive_doubling") == 0) {
        steps(m, lg(m->hosts), lg(m->locals), 1, 1);
        bytes(m, lg(m->hosts) * m->locals, lg(m->locals) + lg(m->hosts), 1);
    } else if (strcmp(name, "chain") == 0) {
        chain(m);
    } else {
        return 0;
    }
    return 1;
}

/* Blocks of the root's own host do not cross the link of this host. */
static int spread(model_t *m, const char *name)
{
    uint64_t far = m->p - m->least;

    if (strcmp(name, "binomial") == 0) {
        steps(m, lg(m->hosts), lg(m->locals), 2, 1);
        bytes(m, far, 2 * (m->locals - 1), m->p); /* 2: the root's host and another host */
    } else if (strcmp(name, "direct") == 0) {
        at_once(m, far, m->least - 1, m->p);
        bytes(m, far, m->least - 1, m->p);
    } else {
        return 0;
    }
    return 1;
}

/* ---- alltoall ---- */

/* Each step packs, sends and unpacks half of the blocks. In a step over a distance of `bit` ranks,
   min(bit, locals) ranks of a host send to another host. */
static void alltoall_bruck(model_t *m)
{
    uint64_t far = m->hosts > 1, crossing = 0;

    for (uint64_t bit = 1; bit < m->p; bit *= 2)
        crossing += far * TUTTI__MIN(bit, m->locals);
    steps(m, far * lg(m->p), !far * lg(m->p), 2, 1);
    bytes(m, crossing, 2 * lg(m->p) + 4, 2); /* 4: the rotations before and after the steps */
}

static void alltoall_doubling(model_t *m)
{
    steps(m, lg(m->hosts), lg(m->locals), 2, 1);
    bytes(m, lg(m->hosts) * m->locals, lg(m->locals) + 2 * lg(m->p), 2);
}

/* Only the last rank of a host sends to the next host. A step sends half of the blocks, on
   average. */
static void alltoall_ring(model_t *m)
{
    uint64_t far = m->hosts > 1;

    steps(m, far * (m->p - 1), !far * (m->p - 1), 1, 1);
    bytes(m, far * (m->p - 1), 2 * (m->p - 1), 2);
}

static int alltoall(model_t *m, const char *name)
{
    uint64_t far = m->p - m->least, near = m->least - 1;

    if (strcmp(name, "bruck") == 0) {
        alltoall_bruck(m);
    } else if (strcmp(name, "recursive_doubling") == 0) {
        alltoall_doubling(m);
    } else if (strcmp(name, "ring") == 0) {
        alltoall_ring(m);
    } else if (strcmp(name, "pairwise") == 0) {
        steps(m, far, near, m->p, 1);
        bytes(m, m->locals * far, near, m->p);
    } else if (strcmp(name, "direct") == 0) {
        at_once(m, far, near, m->p);
        bytes(m, m->locals * far, near, m->p);
    } else {
        return 0;
    }
    return 1;
}

/* ---- the cost ---- */

void tutti__cost_between(const char *way, const tutti__shape_t *shape, tutti__cost_t *ret_cost)
{
    model_t m = begin(shape);
    int is_known = put_between(&m, way, m.hosts, m.least, m.least);

    assert(is_known);
    (void)is_known;
    *ret_cost = m.sum;
}

int tutti__cost_of(const tutti__algorithm_t *algorithm, const char *sub,
                   const tutti__shape_t *shape, tutti__cost_t *ret_cost)
{
    model_t m = begin(shape);
    int is_known;

    switch (algorithm->collective) {
    case TUTTI__ALLREDUCE:
        m.streams = TUTTI__MIN((uint64_t)tutti__coll_most_streams(algorithm),
                               tutti__cost_in_flight(shape, sub != NULL ? m.least : m.locals, 0));
        is_known = allreduce(&m, algorithm->name, sub);
        break;
    case TUTTI__ROOT_REDUCE:
    case TUTTI__BROADCAST:
        is_known = rooted(&m, algorithm->name);
        break;
    case TUTTI__REDUCE_SCATTER:
    case TUTTI__ALLGATHER:
    case TUTTI__ALLGATHERV:
        is_known = scattered(&m, algorithm->name);
        break;
    case TUTTI__SCAN:
    case TUTTI__EXSCAN:
        is_known = scan(&m, algorithm->name);
        break;
    case TUTTI__GATHER:
    case TUTTI__SCATTER:
        is_known = spread(&m, algorithm->name);
        break;
    case TUTTI__ALLTOALL:
        is_known = alltoall(&m, algorithm->name);
        break;
    default:
        is_known = 0;
        break;
    }
    if (is_known)
        *ret_cost = m.sum;
    return is_known;
}

uint64_t tutti__cost_ps(const tutti__cost_t *cost, size_t bytes)
{
    uint64_t n = TUTTI__MIN((uint64_t)bytes, MOST_BYTES), rest = LONGEST_PS - cost->ns * 1000;

    return n > 0 && cost->ps > rest / n ? LONGEST_PS : cost->ns * 1000 + cost->ps * n;
}
