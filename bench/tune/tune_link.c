/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The link between hosts, for the library's cost model (lib/coll/cost.c).
 *
 * Messages are sent back and forth between rank 0 and the first rank of another host, while all
 * other ranks wait. Half of the shortest round trip of 8 bytes is the latency. A long message takes
 * more time than 8 bytes; this additional time gives the speed. The shortest trips count, as in
 * lib/xport/faster.c, because other work on the hosts only makes trips longer.
 *
 * The cost model also uses the figures for collectives and sizes that are not timed here. So they
 * are used even if calls are not faster with them, unlike the candidates of another setting. But
 * calls must not be slower: with the figures, a call's time must be at most 1 + TUNE_MARGIN times
 * the default's.
 */
#include "tune/tune.h"

#include <stdlib.h>
#include <string.h>

enum {
    LEAST_TRIPS = 8, /* of each length */
    SMALL_BYTES = 8,
    LONG_BYTES = 256 << 10, /* the least and the largest long message */
    LONGEST_BYTES = 16 << 20
};

#define KIB ((size_t)1024)

/* A long message takes at least this time, if LONGEST_BYTES allow it. */
static const double long_us = 5000;

static const char link_ns[] = "TUTTI_LINK_NS", link_mbps[] = "TUTTI_LINK_MBPS";
static const char compare[] = "TUTTI_COMPARE";

void tune_link_clear(void)
{
    unsetenv(link_ns);
    unsetenv(link_mbps);
}

int tune_link_has(const char *name)
{
    return strcmp(name, link_ns) == 0 || strcmp(name, link_mbps) == 0;
}

/* ---- messages ---- */

typedef struct {
    const bench_world_t *world;
    int peer;     /* of rank 0 */
    char *buffer; /* of LONGEST_BYTES */
} pair_t;

/* The first rank of another host than rank 0's. */
static int find_peer(const bench_world_t *world)
{
    double places = tutti_host_rank(world->comm) > 0 ? world->size - world->rank : 0;

    bench_max(world, &places, 1);
    return world->size - (int)places;
}

static void move(const pair_t *pair, int sends, size_t bytes)
{
    const bench_world_t *world = pair->world;
    int other = world->rank == 0 ? pair->peer : 0;
    tutti_status_t status = sends
                                ? tutti_send(pair->buffer, bytes, TUTTI_UINT8, other, world->comm)
                                : tutti_recv(pair->buffer, bytes, TUTTI_UINT8, other, world->comm);

    if (bench_check(world, status, "a message between hosts") != 0)
        bench_stop(world);
}

/* The peer's part. The first byte of a message is 1 if another message follows. */
static void answer(const pair_t *pair, size_t bytes)
{
    int more;

    do {
        move(pair, 0, bytes);
        more = pair->buffer[0];
        move(pair, 1, bytes);
    } while (more);
}

/* Rank 0's part: half of the shortest round trip, in us. The first round trip is not counted. */
static double ask(const pair_t *pair, size_t bytes, double ms)
{
    uint64_t end_ns = bench_now_ns() + (uint64_t)(ms * 1e6), least = 0;

    for (int trip = 0, more = 1; more; trip++) {
        uint64_t start = bench_now_ns(), ns;

        more = trip < LEAST_TRIPS || start < end_ns;
        pair->buffer[0] = (char)more;
        move(pair, 1, bytes);
        move(pair, 0, bytes);
        ns = bench_now_ns() - start;
        if (trip == 1 || (trip > 1 && ns < least))
            least = ns;
    }
    return (double)least * 1e-3 / 2;
}

/* The time of a message, on all ranks. Rank 0 measures for `ms`, or for a few round trips. */
static double message_us(const pair_t *pair, size_t bytes, double ms)
{
    const bench_world_t *world = pair->world;
    double us = 0;

    bench_barrier(world);
    if (world->rank == 0)
        us = ask(pair, bytes, ms);
    else if (world->rank == pair->peer)
        answer(pair, bytes);
    /* If ranks share processors, the ranks that wait in Tutti's barrier sleep. */
    if (bench_check(world, tutti_barrier(world->comm), "tutti_barrier") != 0)
        bench_stop(world);
    bench_max(world, &us, 1);
    return us;
}

static uint64_t whole(double value)
{
    return value < 1 ? 1 : value > 1e9 ? 1000000000 : (uint64_t)(value + 0.5);
}

static void measure(const pair_t *pair, const tune_effort_t *effort, tune_link_t *link)
{
    double ms = effort->setting_ms / 8, more_us;
    double small_us = message_us(pair, SMALL_BYTES, ms);
    size_t bytes = LONG_BYTES;

    while (bytes < LONGEST_BYTES && message_us(pair, bytes, 0) < long_us)
        bytes *= 4;
    more_us = message_us(pair, bytes, ms) - small_us;
    link->ns = whole(small_us * 1e3);
    link->mbps = whole(8 * (double)bytes / (more_us > 0 ? more_us : small_us));
    link->peer = pair->peer;
    link->measured = 1;
}

/* Measure in a world without comparison of calls, because the comparison adds messages. */
static void measure_plain(bench_world_t *world, const tune_effort_t *effort, tune_link_t *link)
{
    const char *found = getenv(compare);
    char *before = found != NULL ? strdup(found) : NULL;
    pair_t pair = { world, find_peer(world), bench_allocate(LONGEST_BYTES, 1) };

    memset(pair.buffer, 1, LONGEST_BYTES);
    setenv(compare, "0", 1);
    tune_reopen(world);
    measure(&pair, effort, link);
    if (before != NULL)
        setenv(compare, before, 1);
    else
        unsetenv(compare);
    bench_barrier(world); /* other ranks may still read this memory */
    free(before);
    free(pair.buffer);
}

/* ---- calls with the figures and without ---- */

/* Use the measured figures. value NULL: use the figures that the network cards report. */
static void use_link(const tune_setting_t *setting, const char *value)
{
    const tune_link_t *link = &setting->search->link;
    char text[24];

    tune_link_clear();
    if (value == NULL)
        return;
    snprintf(text, sizeof(text), "%llu", (unsigned long long)link->ns);
    setenv(link_ns, text, 1);
    snprintf(text, sizeof(text), "%llu", (unsigned long long)link->mbps);
    setenv(link_mbps, text, 1);
}

static int run_between(const bench_world_t *world, const tune_setting_t *setting,
                       const tune_buffers_t *buffers, size_t bytes)
{
    size_t count = bytes / sizeof(float);
    tutti_status_t status =
        tutti_allreduce(buffers->send, buffers->recv, count, TUTTI_FLOAT32, TUTTI_SUM, world->comm);

    (void)setting;
    if (status == TUTTI_OK)
        status = tutti_broadcast(buffers->recv, count, TUTTI_FLOAT32, 0, world->comm);
    if (status == TUTTI_OK)
        status = tutti_alltoall(buffers->send, buffers->recv, count / (size_t)world->size,
                                TUTTI_FLOAT32, world->comm);
    return bench_check(world, status, "calls between hosts");
}

void tune_link(bench_world_t *world, const tune_effort_t *effort, tune_search_t *search)
{
    const tune_setting_t setting = { .name = "link",
                                     .values = { "measured", NULL },
                                     .sizes = { 4 * KIB, 32 * KIB, 256 * KIB, 2048 * KIB, 0 },
                                     .run = run_between,
                                     .set = use_link,
                                     .search = search };
    tune_effort_t its_effort = *effort;
    tune_link_t *link = &search->link;
    tune_result_t result;

    measure_plain(world, effort, link);
    if (search->print != NULL)
        printf("# Link between ranks 0 and %d: %.1f us, %llu Mbit/s\n", link->peer,
               (double)link->ns / 1e3, (unsigned long long)link->mbps);
    if (effort->spoil_end)
        its_effort.spoil = -1;
    result = tune_measure(world, &setting, &its_effort);
    link->ratio = result.of[2].ratio.middle;
    link->used = link->ratio <= 1 + TUNE_MARGIN;
    result.winner = link->used ? 2 : 0;
    use_link(&setting, result.of[result.winner].value);
    if (search->print != NULL)
        search->print(&setting, &result, search->verbose_ranks);
}
