/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * More than 2^31 elements, also more than 2^31 in one part. If there is not enough memory, the test
 * is skipped. The data are a repeated block, and every element is compared.
 */
#include "long.h"
#include "ranks.h"

#include "mem/avail.h"

#include <stdlib.h>
#include <string.h>

/* A prime, so that data displaced by a power of two are detected. */
#define PERIOD 65521
#define COUNT (((size_t)1 << 31) + 5)
#define NEED_GIB 14

static char pattern[2][PERIOD];
static int whole;

static size_t available_gib(void)
{
    const char *who;

    return (size_t)(tutti__mem_available("", &who) >> 30);
}

static void fill(char *buf, const char *with)
{
    for (size_t at = 0; at < COUNT; at += PERIOD)
        memcpy(buf + at, with, TUTTI__MIN(COUNT - at, (size_t)PERIOD));
}

static void check(const char *buf, const char *with)
{
    for (size_t at = 0; at < COUNT; at += PERIOD)
        if (memcmp(buf + at, with, TUTTI__MIN(COUNT - at, (size_t)PERIOD)) != 0)
            ranks_fail(__FILE__, __LINE__, "wrong from element %zu on", at);
}

static void large(rank_t *self)
{
    char *buf = malloc(COUNT);

    CHECK(buf != NULL);
    if (whole) {
        fill(buf, pattern[self->rank]);
        CHECK_OK(tutti_broadcast(buf, COUNT, TUTTI_UINT8, 1, self->comm));
        check(buf, pattern[1]);
    }
    fill(buf, pattern[self->rank]);
    CHECK_OK(tutti_allreduce(buf, buf, COUNT, TUTTI_UINT8, TUTTI_BXOR, self->comm));
    for (int i = 0; i < PERIOD; i++)
        pattern[0][i] ^= pattern[1][i];
    check(buf, pattern[0]);
    /* A message: rank 1 has another pattern. */
    if (whole && self->rank == 1) {
        fill(buf, pattern[1]);
        CHECK_OK(tutti_send(buf, COUNT, TUTTI_UINT8, 0, self->comm));
    } else if (whole) {
        CHECK_OK(tutti_recv(buf, COUNT, TUTTI_UINT8, 1, self->comm));
        check(buf, pattern[1]);
    }
    free(buf);
}

int main(void)
{
    job_t job = { .size = 2, .fn = large };
    int failures = 0;

    if (available_gib() < NEED_GIB || !ranks_can_fork()) {
        printf("%zu GiB of memory are available, %d needed; processes too\n", available_gib(),
               NEED_GIB);
        return 77;
    }
    for (int i = 0; i < PERIOD; i++) {
        pattern[0][i] = (char)(i * 7 + i / 251);
        pattern[1][i] = (char)(i * 13 + i / 127 + 1);
    }
    whole = test_is_long("broadcasts, messages, rings and trees; an allreduce remains");
    RUN_JOB(failures, &job);
    if (!whole)
        return failures != 0;
    job.algorithm = "allreduce:ring,broadcast:binomial";
    RUN_JOB(failures, &job);
    return failures != 0;
}
