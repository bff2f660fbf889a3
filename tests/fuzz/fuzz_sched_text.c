/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzz target: the parser of schedules as text, and the checker.
 *
 * The first byte selects the number of ranks and the requirements. Schedules that were read must be
 * the same after they are printed and read again. The checker may accept or refuse them, but must
 * return for every schedule that the language allows.
 */
#include "fuzz.h"

#include "sched/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_RANKS 4
/* Limits of inputs, because the checker's memory grows with these numbers. */
#define MOST_BLOCKS 64

static void demand(int truth)
{
    if (!truth)
        abort();
}

static char *print_all(tutti__sched_t *const *scheds, uint32_t size)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    demand(file != NULL);
    for (uint32_t r = 0; r < size; r++)
        tutti__sched_print(scheds[r], file);
    demand(fclose(file) == 0);
    return text;
}

static void demand_same(const tutti__sched_t *a, const tutti__sched_t *b)
{
    demand(a->rank == b->rank && a->size == b->size && a->sizes == b->sizes);
    demand(a->nblocks == b->nblocks && a->scratch_blocks == b->scratch_blocks);
    demand(a->max_nblk == b->max_nblk && a->nops == b->nops && a->nchans == b->nchans);
    demand(memcmp(a->first, b->first, sizeof(a->first)) == 0);
    demand(memcmp(a->marks, b->marks, sizeof(a->marks)) == 0);
    demand(memcmp(a->ops, b->ops, a->nops * sizeof(*a->ops)) == 0);
}

static int is_small(tutti__sched_t *const *scheds, uint32_t size)
{
    for (uint32_t r = 0; r < size; r++) {
        if (scheds[r]->nblocks > MOST_BLOCKS || scheds[r]->scratch_blocks > MOST_BLOCKS ||
            scheds[r]->max_nblk > 2 * MOST_BLOCKS)
            return 0;
    }
    return 1;
}

static void check(tutti__sched_t *const *scheds, uint32_t size, unsigned choice)
{
    static const uint32_t host_of[MOST_RANKS] = { 0 }, local_of[MOST_RANKS] = { 0, 1, 2, 3 };
    tutti__check_t check = {
        .expect = (tutti__expect_t)(choice % (TUTTI__EXPECT_EXSCAN + 1)),
        .compared = (tutti__compared_t)(choice / 4 % (TUTTI__COMPARED_IN_FRAMES + 1)),
        .size = size,
        .scheds = scheds,
        .host_of = host_of,
        .local_of = local_of,
        .nhosts = 1,
        .root = size - 1,
        .ordered = choice % 2 != 0,
        .in_place = choice / 2 % 2 != 0,
        .credits = 1 + choice % 3,
        .trips = 1 + choice % 4,
    };
    char why[400];

    tutti__sched_check(&check, why, sizeof(why));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    tutti__sched_t *scheds[MOST_RANKS], *again[MOST_RANKS];
    uint32_t size;
    char *text;

    if (bytes == 0)
        return 0;
    size = 1 + data[0] % MOST_RANKS;
    text = malloc(bytes);
    demand(text != NULL);
    memcpy(text, data + 1, bytes - 1);
    text[bytes - 1] = '\0';
    if (tutti__sched_parse(text, "fuzz", size, scheds) == TUTTI_OK) {
        char *printed = print_all(scheds, size);

        demand(tutti__sched_parse(printed, "fuzz", size, again) == TUTTI_OK);
        for (uint32_t r = 0; r < size; r++)
            demand_same(scheds[r], again[r]);
        if (is_small(scheds, size))
            check(scheds, size, data[0] / MOST_RANKS);
        for (uint32_t r = 0; r < size; r++) {
            tutti__sched_free(again[r]);
            tutti__sched_free(scheds[r]);
        }
        free(printed);
    }
    free(text);
    return 0;
}

/* ---- seeds ---- */

#define HEAD(r, n) "x: rank " #r " of " #n ", blocks 2, scratch 2, blocks per message 2"

static const char pair[] = HEAD(
    0,
    2) "\nLOOP\nSEND IN[0:2] to rank 1\nRECV_REDUCE from rank 1: IN[0:2] -> OUT[0:2], "
       "finish\nEND_LOOP\n" HEAD(
           1,
           2) "\nLOOP\nSEND IN[0:2] to rank 0\nRECV_REDUCE from rank 0: IN[0:2] -> OUT[0:2], left, "
              "finish\nEND_LOOP\n";

static const char streams[] =
    HEAD(0, 1) "\nstream 0, marks per trip 1\nLOOP with 1 more trips\n"
               "NODE_REDUCE_SCATTER IN[0] -> OUT[0], mark\nWAIT for stream 1: mark 1, shift 1\n"
               "NODE_ALLGATHER OUT[0:2] -> OUT[0:2] in 1 parts, shift 1\nEND_LOOP\n"
               "stream 1, marks per trip 1\nLOOP\nWAIT for stream 0: mark 1\n"
               "COPY IN[1] -> OUT[1], mark\nEND_LOOP\n";

static const char exchange[] =
    HEAD(0, 2) ", sizes by pair\nLOOP\nCOPY IN[0] -> OUT[0]\nSEND IN[1] to rank 1\n"
               "RECV from rank 1: OUT[1]\nEND_LOOP\n" HEAD(
                   1, 2) ", sizes by pair\nLOOP\nCOPY IN[1] -> OUT[1]\nSEND IN[0] to rank 0\n"
                         "RECV from rank 0: OUT[0]\nEND_LOOP\n";

static const char node[] =
    HEAD(0, 2) ", sizes all equal # a comment\nNODE_BCAST OUT[0] -> OUT[0] of local rank 1\n" HEAD(
        1, 2) ", sizes all equal\n 0 NODE_BCAST OUT[0] -> OUT[0] of local rank 1\n";

size_t fuzz_seed(unsigned n, uint8_t *ret_data, size_t room)
{
    /* The byte in front of the text: ranks - 1, plus 4 times the collective. */
    static const struct {
        uint8_t first;
        const char *text;
    } seeds[] = {
        { 1 + 4 * TUTTI__EXPECT_ALLREDUCE, pair },    { 1 + 4 * TUTTI__EXPECT_REDUCE, pair },
        { 0 + 4 * TUTTI__EXPECT_ALLREDUCE, streams }, { 1 + 4 * TUTTI__EXPECT_ALLTOALL, exchange },
        { 1 + 4 * TUTTI__EXPECT_BROADCAST, node },    { 1 + 4 * TUTTI__EXPECT_SCAN, pair },
    };
    size_t bytes;

    if (n >= sizeof(seeds) / sizeof(*seeds))
        return 0;
    bytes = strlen(seeds[n].text) + 1;
    if (bytes > room)
        return 0;
    ret_data[0] = seeds[n].first;
    memcpy(ret_data + 1, seeds[n].text, bytes - 1);
    return bytes;
}
