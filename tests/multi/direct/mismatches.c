/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct calls that mismatch. Every rank gets MISMATCH and a text that names two of the ranks, no
 * recvbuf is touched, and the communicator serves the next call. This is tested with every
 * algorithm, inside one host and between hosts. With TUTTI_COMPARE=0 the communicator ends on all
 * ranks. messages_bad.c tests messages.
 */
#include "multi/direct/coll_case.h"
#include "long.h"
#include "multi/direct/reference.h"

#include <string.h>

#define WRONG(call, status, words)                                                                 \
    do {                                                                                           \
        CHECK_STATUS(call, status);                                                                \
        CHECK_WORDS(words);                                                                        \
    } while (0)

/* ---- mismatches ---- */

/* All ranks report the mismatch, and the next call works. */
static void expect_mismatch(area_t *area, const case_t *good, const case_t *odd, int rank)
{
    case_run(area, area->self->rank == rank ? odd : good, TUTTI_ERR_MISMATCH);
    CHECK_WORDS(area->self->inside->world_rank != NULL ? "in a group of " : "rank");
    CHECK_WORDS("; rank ");
    case_works(area->self);
}

static void mismatches_of(area_t *area, tutti_call_kind_t kind, size_t count, place_t place)
{
    case_t good = { kind, TUTTI_FLOAT32, TUTTI_SUM, count, 0, place, PRIVATE };
    int size = area->self->size, step = size <= 5 ? 1 : size - 1;

    for (int rank = 0; rank < size; rank += step) {
        case_t odd = good;

        odd.count = count + 1;
        expect_mismatch(area, &good, &odd, rank);
        odd = good;
        odd.dtype = TUTTI_INT32;
        expect_mismatch(area, &good, &odd, rank);
        odd = good;
        odd.root = 1;
        if (case_is_rooted(kind))
            expect_mismatch(area, &good, &odd, rank);
        odd = good;
        odd.op = TUTTI_MAX;
        if (case_reduces(kind))
            expect_mismatch(area, &good, &odd, rank);
    }
}

/* Each call mismatches each other call, and a barrier. */
static void other_calls(area_t *area, tutti_call_kind_t kind)
{
    rank_t *self = area->self;
    case_t good = { kind, TUTTI_FLOAT32, TUTTI_SUM, 12, 0, APART, PRIVATE };

    for (int k = 0; k < CASE_KINDS; k++) {
        case_t odd = good;

        odd.kind = case_kinds[k];
        if (odd.kind != kind)
            expect_mismatch(area, &good, &odd, self->size - 1);
    }
    if (self->rank == 0) {
        WRONG(tutti_barrier(self->comm), TUTTI_ERR_MISMATCH, "barrier");
        area->salt++;
    } else {
        case_run(area, &good, TUTTI_ERR_MISMATCH);
        CHECK_WORDS("barrier");
    }
    case_works(self);
}

/* A count of 0 is compared like any other count. So two different calls with count 0 mismatch. */
static void nothing_and_something(area_t *area, tutti_call_kind_t kind)
{
    case_t good = { kind, TUTTI_FLOAT32, TUTTI_SUM, 7, 0, APART, PRIVATE }, nothing = good;
    int size = area->self->size, step = size <= 5 ? 1 : size - 1;

    nothing.count = 0;
    for (int rank = 0; rank < size; rank += step) {
        case_t odd = nothing;

        expect_mismatch(area, &good, &nothing, rank);
        expect_mismatch(area, &nothing, &good, rank);
        odd.dtype = TUTTI_INT32;
        expect_mismatch(area, &nothing, &odd, rank);
    }
    case_run(area, &nothing, TUTTI_OK);
    case_works(area->self);
}

static void mismatches(rank_t *self)
{
    area_t area;

    area_open(&area, self, AREA_BYTES);
    for (int k = 0; k < CASE_KINDS; k++) {
        mismatches_of(&area, case_kinds[k], 10, APART);
        mismatches_of(&area, case_kinds[k], 3000, IN_PLACE);
        other_calls(&area, case_kinds[k]);
        nothing_and_something(&area, case_kinds[k]);
    }
    area_close(&area);
}

static void forced_mismatches(rank_t *self)
{
    const forced_t *forced = self->arg;
    area_t area;

    area_open(&area, self, AREA_BYTES);
    for (int k = 0; k < CASE_KINDS; k++)
        if (tutti__call_collective(case_kinds[k]) == forced->algorithm->collective) {
            mismatches_of(&area, case_kinds[k], 3000, APART);
            other_calls(&area, case_kinds[k]);
        }
    area_close(&area);
}

/* ---- arrays that mismatch ---- */

static _Thread_local int x[64], y[64];

static void vector_mismatch(rank_t *self, tutti_status_t status, const char *words)
{
    CHECK_INT(status, TUTTI_ERR_MISMATCH);
    CHECK_WORDS(words);
    for (int i = 0; i < 64; i++)
        CHECK_INT(y[i], -1);
    case_works(self);
}

/* Rank 1 makes the mistake. */
static void vectors(rank_t *self)
{
    int me = self->rank, wrong = me == 1;
    size_t counts[MOST_RANKS] = { 2, 2, 2, 2, 2, 2, 2, 2 }, more[MOST_RANKS];
    const size_t none[MOST_RANKS] = { 0 };
    size_t mine = 2 + (size_t)wrong;

    memcpy(more, counts, sizeof(more));
    more[0] += (size_t)wrong;
    for (int i = 0; i < 64; i++)
        y[i] = -1;
    vector_mismatch(self, tutti_gatherv(x, mine, y, counts, NULL, TUTTI_INT32, 0, self->comm),
                    "rank 1 has 3 elements for rank 0, which expects 2");
    vector_mismatch(self, tutti_scatterv(x, counts, NULL, y, mine, TUTTI_INT32, 0, self->comm),
                    "rank 0 has 2 elements for rank 1, which expects 3");
    vector_mismatch(self, tutti_alltoallv(x, more, NULL, y, counts, NULL, TUTTI_INT32, self->comm),
                    "rank 1 has 3 elements for rank 0, which expects 2");
    vector_mismatch(self, tutti_alltoallv(x, counts, NULL, y, more, NULL, TUTTI_INT32, self->comm),
                    "rank 0 has 2 elements for rank 1, which expects 3");
    vector_mismatch(self, tutti_allgatherv(x, 2, y, more, NULL, TUTTI_INT32, self->comm),
                    "recvcounts[0] is 2 on rank 0 and 3 on rank 1");
    vector_mismatch(self, tutti_reduce_scatterv(x, y, more, TUTTI_INT32, TUTTI_SUM, self->comm),
                    "recvcounts[0] is 2 on rank 0 and 3 on rank 1");
    /* The sum of the counts is the same on all ranks. */
    more[self->size - 1] -= (size_t)(wrong && self->size > 2);
    vector_mismatch(self, tutti_reduce_scatterv(x, y, more, TUTTI_INT32, TUTTI_SUM, self->comm),
                    "recvcounts[0] is 2 on rank 0 and 3 on rank 1");
    vector_mismatch(self,
                    tutti_gatherv(x, wrong ? 0 : 2, y, counts, NULL, TUTTI_INT32, 0, self->comm),
                    "rank 1 has 0 elements for rank 0, which expects 2");
    vector_mismatch(
        self,
        tutti_reduce_scatterv(x, y, wrong ? none : counts, TUTTI_INT32, TUTTI_SUM, self->comm),
        "recvcounts[0] is 2 on rank 0 and 0 on rank 1");
    /* First types and roots differ; then the ranks make entirely different calls. */
    vector_mismatch(self,
                    tutti_alltoallv(x, counts, NULL, y, counts, NULL,
                                    wrong ? TUTTI_FLOAT32 : TUTTI_INT32, self->comm),
                    "rank 0 has an alltoallv of int32; rank 1 has an alltoallv of float32");
    vector_mismatch(self, tutti_gatherv(x, 2, y, counts, NULL, TUTTI_INT32, wrong, self->comm),
                    "rank 1 has a gatherv of int32, root 1");
    vector_mismatch(self,
                    wrong ? tutti_scatterv(x, counts, NULL, y, 2, TUTTI_INT32, 1, self->comm)
                          : tutti_gatherv(x, 2, y, counts, NULL, TUTTI_INT32, 1, self->comm),
                    "rank 1 has a scatterv of int32, root 1");
    vector_mismatch(self,
                    wrong ? tutti_barrier(self->comm)
                          : tutti_gatherv(x, 2, y, counts, NULL, TUTTI_INT32, 1, self->comm),
                    "a barrier");
}

/* The ranks' meeting in a node operation does not compare factors, because some ranks may have
   none. */
static void mismatched_factors(rank_t *self, double prescale, double postscale)
{
    float a = 1, b = -1;
    int odd = self->rank == 1;

    WRONG(tutti_allreduce_scaled(&a, &b, 1, TUTTI_FLOAT32, TUTTI_SUM, odd ? prescale : 1,
                                 odd ? postscale : 1, self->comm),
          TUTTI_ERR_MISMATCH, "; rank ");
    CHECK(a == 1 && b == -1);
    case_works(self);
}

/* Prescaling writes to recvbuf, but not before all ranks have compared their calls. */
static void factors(rank_t *self)
{
    float a = 1, b = -1;
    double prescale = self->rank == 1 ? 0.5 : 0.25;

    WRONG(tutti_allreduce_scaled(&a, &b, 1, TUTTI_FLOAT32, TUTTI_SUM, prescale, 1, self->comm),
          TUTTI_ERR_MISMATCH, "scaled by 0.5 and 1");
    CHECK(a == 1 && b == -1);
    case_works(self);
    CHECK_STATUS(tutti_allreduce_scaled(&a, &b, 1, TUTTI_FLOAT32,
                                        self->rank == 0 ? TUTTI_MAX : TUTTI_SUM, 2, 1, self->comm),
                 TUTTI_ERR_MISMATCH);
    CHECK(a == 1 && b == -1);
    case_works(self);
    CHECK_STATUS(tutti_allreduce_scaled(&a, &b, self->rank == 1 ? 0 : 1, TUTTI_FLOAT32, TUTTI_SUM,
                                        2, 1, self->comm),
                 TUTTI_ERR_MISMATCH);
    CHECK_WORDS("rank 0 has an allreduce of 1 element of float32");
    CHECK_WORDS("rank 1 has an allreduce of 0 elements of float32");
    CHECK(a == 1 && b == -1);
    case_works(self);
    mismatched_factors(self, 2, 1);
    mismatched_factors(self, 1, 2);
    mismatched_factors(self, 2, 2);
}

static void all_vectors(rank_t *self)
{
    vectors(self);
    factors(self);
}

/* ---- calls that the library makes itself ---- */

/* Rank `odd` makes a reduction; the other ranks make a call on the whole communicator. */
static void own_calls(rank_t *self, int odd)
{
    tutti_comm_t *part = NULL;
    float a = 1, b = -1;
    void *ptr = NULL;

    if (self->rank == odd)
        WRONG(tutti_allreduce(&a, &b, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm), TUTTI_ERR_MISMATCH,
              "a tutti_mem_alloc");
    else
        WRONG(tutti_mem_alloc(self->comm, 64, &ptr), TUTTI_ERR_MISMATCH,
              "1 element of float32, sum");
    case_works(self);
    if (self->rank == odd)
        WRONG(tutti_allreduce(&a, &b, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm), TUTTI_ERR_MISMATCH,
              "a tutti_comm_split");
    else
        WRONG(tutti_comm_split(self->comm, 0, 0, &part), TUTTI_ERR_MISMATCH, "an allreduce");
    CHECK(b == -1 && ptr == NULL && part == NULL);
    case_works(self);
}

/* ---- in a group ---- */

/* All tests above, between the ranks of a group, while the other ranks are in a group of their
   own. */
static void in_parts(rank_t *self)
{
    rank_t member = *self;

    for (int odd = 0; odd < self->size; odd++)
        own_calls(self, odd);
    CHECK_OK(tutti_comm_split(self->comm, self->rank % 2, -self->rank, &member.comm));
    member.rank = tutti_rank(member.comm);
    member.size = tutti_size(member.comm);
    if (member.size > 1) {
        mismatches(&member);
        all_vectors(&member);
    }
    CHECK_OK(tutti_comm_free(member.comm));
    case_works(self);
}

/* ---- mismatches that end the communicator ---- */

/* Between hosts, without comparison, data may have moved before the mismatch is detected. */
static void not_compared(rank_t *self)
{
    float a[20] = { 0 };

    case_is_dead(self, tutti_allreduce(a, a, self->rank == 0 ? 19 : 20, TUTTI_FLOAT32, TUTTI_SUM,
                                       self->comm));
}

static int run_between_hosts(const char *hosts, int threads)
{
    static const rank_fn_t fns[] = { mismatches, all_vectors, in_parts };
    int failures = 0;

    for (size_t f = 0; f < COUNT_OF(fns); f++)
        failures += run_small(fns[f], (int)strlen(hosts), hosts, threads);
    return failures;
}

/* Also over channels, where the ranks' meeting does not compare factors. */
static int run_factors(int threads)
{
    job_t job = { .size = 3, .fn = factors, .threads = threads, .algorithm = "allreduce:ring" };
    int failures = 0;

    RUN_JOB(failures, &job);
    return failures;
}

int main(void)
{
    static const char *const places[] = { "aab", "abc", "abab", "ab", "aabbc", "abcca" };
    static const int sizes[] = { 2, 3, 5, 8 };
    int failures = 0, threads = !ranks_can_fork();
    int whole = test_is_long("5 and 8 ranks, and half the hosts; ranks in threads: less");
    int placings = whole ? COUNT_OF(places) : threads ? 1 : 3;

    reference_create_ops();
    for (size_t i = 0; i < (whole ? COUNT_OF(sizes) : 2) && !(threads && sizes[i] > 3); i++) {
        failures += run_small(mismatches, sizes[i], NULL, threads);
        failures += run_small(all_vectors, sizes[i], NULL, threads);
    }
    if (whole || !threads)
        failures += run_each_algorithm(forced_mismatches, 3, NULL, threads);
    if (whole && !threads)
        failures += run_each_algorithm(forced_mismatches, 8, NULL, threads);
    failures += run_small(in_parts, 5, NULL, threads);
    for (int i = 0; i < placings; i++)
        failures += run_between_hosts(places[i], threads);
    failures += run_job_with(not_compared, 2, "ab", threads, small_uncompared);
    failures += run_job_with(not_compared, 4, "aabb", threads, small_uncompared);
    failures += run_factors(threads);
    return failures != 0;
}
