/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks of one host in several groups (TUTTI_GROUP_SIZE): correct results of every collective, with
 * all kernels and around the sizes at which the library changes the kernel; the same bits from all
 * kernels; mismatches and late ranks are detected in the same way as in one group.
 */
#include "multi/direct/coll_case.h"
#include "long.h"
#include "multi/direct/reference.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    LATE_MS = 5000 /* within this time the other ranks make the call, also on busy processors */
};

static uint64_t group_size; /* of the current job */
static int whole;
static atomic_int *gave_up; /* how many ranks have waited for a late rank until their deadline */

static void in_groups(tutti__conf_t *conf, int rank)
{
    small_pieces(conf, rank);
    conf->shared.group_size = group_size;
}

/* ---- correct results ---- */

static const tutti_call_kind_t in_levels[] = { TUTTI_CALL_ALLREDUCE, TUTTI_CALL_REDUCE,
                                               TUTTI_CALL_REDUCE_SCATTER };

/* Sizes around the limits: an announcement holds 1024 bytes divided by the number of ranks, at
   least 48; a slot holds 8192. Beginning with number `first`, every step-th of them. */
static void some_of_each(area_t *area, tutti_call_kind_t kind, tutti_dtype_t dtype, tutti_op_t op,
                         size_t first, size_t step)
{
    size_t esize = tutti_dtype_bytes(dtype), size = (size_t)area->self->size;
    size_t parts = kind == TUTTI_CALL_REDUCE_SCATTER ? size : 1, oneshot = 1024 / size / parts;
    const size_t bytes[] = {
        0, esize, oneshot, oneshot + esize, 8192 / parts, 8192 / parts + esize, 20000 / parts
    };
    unsigned turn = area->salt;

    for (size_t i = first; i < COUNT_OF(bytes); i += step, turn++)
        case_turn(area, kind, dtype, op, bytes[i] / esize, turn);
}

static void one_of_each(area_t *area, tutti_call_kind_t kind, tutti_dtype_t dtype, tutti_op_t op)
{
    some_of_each(area, kind, dtype, op, 0, 1);
}

static void product(rank_t *self)
{
    area_t area;

    area_open(&area, self, AREA_BYTES);
    for (size_t k = 0; k < COUNT_OF(in_levels); k++)
        for (int t = 1; t <= REFERENCE_TYPES; t++)
            for (int o = 1; o <= REFERENCE_OPS; o++)
                if (reference_serves((tutti_dtype_t)t, (tutti_op_t)o))
                    some_of_each(&area, in_levels[k], (tutti_dtype_t)t, (tutti_op_t)o,
                                 whole ? 0 : (size_t)(t + o) % 2, whole ? 1 : 2);
    area_close(&area);
}

/* Groups are contiguous ranges of ranks, so operations that do not commute have two
   levels as well. */
static void user_ops(rank_t *self)
{
    area_t area;

    area_open(&area, self, AREA_BYTES);
    for (size_t k = 0; k < COUNT_OF(in_levels); k++) {
        one_of_each(&area, in_levels[k], TUTTI_UINT64,
                    reference_user_op(REFERENCE_SHIFTED_PRODUCT));
        one_of_each(&area, in_levels[k], TUTTI_UINT64, reference_user_op(REFERENCE_AFFINE));
        one_of_each(&area, in_levels[k], TUTTI_INT16, reference_user_op(REFERENCE_LEFT));
    }
    area_close(&area);
}

/* ---- the same bits ---- */

static float value_of(int rank, size_t i)
{
    unsigned x = (unsigned)(rank * 7919 + (int)(i % 509) * 104729 + 1) * 2654435761u;

    return (float)(x >> 8) / (float)(1u << (x % 16));
}

/* Element i of the sum of the groups' sums. */
static float sum_of(int size, size_t i)
{
    float sum = 0;

    for (int begin = 0; begin < size; begin += (int)group_size) {
        float part = value_of(begin, i);

        for (int r = begin + 1; r < begin + (int)group_size && r < size; r++)
            part += value_of(r, i);
        sum = begin == 0 ? part : sum + part;
    }
    return sum;
}

static void check_bits(const rank_t *self, const float *x, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        float sum = sum_of(self->size, i);

        if (memcmp(&x[i], &sum, sizeof(sum)) != 0)
            ranks_fail(__FILE__, __LINE__, "%s: element %zu of %zu is %a, wanted %a", what, i, n,
                       (double)x[i], (double)sum);
    }
}

/* The bits are the same in direct and asynchronous calls, in private and shared memory, and in a
   bucket with or without other tensors. */
static void bits(rank_t *self)
{
    static const size_t counts[] = { 1, 12, 40, 2048, 2500, 20000 };
    float *own = malloc(20000 * sizeof(*own)), *shared;
    void *ptr;

    CHECK_OK(tutti_mem_alloc(self->comm, 20000 * sizeof(float), &ptr));
    shared = ptr;
    for (size_t k = 0; k < COUNT_OF(counts); k++) {
        size_t n = counts[k];
        tutti_request_t *request[2];

        for (size_t i = 0; i < n; i++)
            own[i] = shared[i] = value_of(self->rank, i);
        CHECK_OK(tutti_allreduce(own, own, n, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
        CHECK_OK(tutti_allreduce(shared, shared, n, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
        check_bits(self, own, n, "private");
        check_bits(self, shared, n, "shared");
        for (size_t i = 0; i < n; i++)
            own[i] = shared[i] = value_of(self->rank, i);
        CHECK_OK(tutti_allreduce_async("a", own, own, n, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL,
                                       &request[0]));
        CHECK_OK(tutti_allreduce_async("b", shared, shared, n, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                       NULL, &request[1]));
        CHECK_OK(tutti_wait(request[0], -1));
        CHECK_OK(tutti_wait(request[1], -1));
        check_bits(self, own, n, "asynchronous, private");
        check_bits(self, shared, n, "asynchronous, shared");
    }
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_mem_free(self->comm, ptr));
    free(own);
}

/* The average of these large values fits the type, but a group's sum does not. */
static void averages(rank_t *self)
{
    uint16_t half = 0x7800; /* 32768 */
    uint8_t e4m3 = 0x7a;    /* 320 */

    CHECK_OK(tutti_allreduce(&half, &half, 1, TUTTI_FLOAT16, TUTTI_AVG, self->comm));
    CHECK_OK(tutti_allreduce(&e4m3, &e4m3, 1, TUTTI_FLOAT8_E4M3, TUTTI_AVG, self->comm));
    CHECK_INT(half, 0x7800);
    CHECK_INT(e4m3, 0x7a);
}

/* ---- mismatches ---- */

/* Rank `odd` has another count: all ranks detect this, and report the same text. */
static void one_odd(rank_t *self, int odd, size_t n)
{
    static const float x[4000];
    float y[4000];
    char words[64];

    CHECK_STATUS(
        tutti_allreduce(x, y, n + (self->rank == odd), TUTTI_FLOAT32, TUTTI_SUM, self->comm),
        TUTTI_ERR_MISMATCH);
    snprintf(words, sizeof(words), "rank %d has an allreduce of %zu element", odd > 0 ? odd : 1,
             odd > 0 ? n + 1 : n);
    CHECK_WORDS("rank 0 has");
    CHECK_WORDS(words);
    case_works(self);
}

static void mismatches(rank_t *self)
{
    for (int odd = 0; odd < self->size; odd++) {
        one_odd(self, odd, 1);
        one_odd(self, odd, 3000);
        if (self->rank == odd)
            CHECK_STATUS(tutti_barrier(self->comm), TUTTI_ERR_MISMATCH);
        else
            CHECK_STATUS(tutti_broadcast(&(float){ 1 }, 1, TUTTI_FLOAT32, 0, self->comm),
                         TUTTI_ERR_MISMATCH);
        case_works(self);
    }
}

/* ---- late ranks ---- */

static void impatient(tutti__conf_t *conf, int rank)
{
    in_groups(conf, rank);
    conf->shared.timeout_ms = LATE_MS;
}

/* The last rank is late, and leads no group. The ranks of another group must name it as well. It
   stays until all other ranks have given up. */
static void late(rank_t *self)
{
    float x = 1;

    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == self->size - 1) {
        while (atomic_load(gave_up) < self->size - 1)
            usleep(10000);
        return;
    }
    CHECK_STATUS(tutti_allreduce(&x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm),
                 TUTTI_ERR_TIMEOUT);
    atomic_fetch_add(gave_up, 1);
    CHECK_WORDS("for rank 3");
}

static int run(rank_fn_t fn, int size, int per_group, int threads)
{
    job_t job = {
        .size = size, .fn = fn, .threads = threads, .settings = fn == late ? impatient : in_groups
    };
    int failures = 0;

    group_size = (uint64_t)per_group;
    RUN_JOB(failures, &job);
    return failures;
}

int main(void)
{
    static const int shapes[][2] = { { 5, 2 }, { 3, 2 }, { 8, 3 }, { 8, 2 }, { 8, 4 } };
    int failures = 0, threads = !ranks_can_fork();

    whole =
        test_is_long("8 ranks, all collectives with 5 ranks, and half of the sizes of each type");
    reference_create_ops();
    if (threads) {
        failures += run(case_all_ways, 4, 2, threads);
        failures += run(user_ops, 3, 2, threads);
        failures += run(bits, 4, 2, threads);
        failures += run(mismatches, 4, 2, threads);
        return failures != 0;
    }
    for (size_t i = 0; i < (whole ? COUNT_OF(shapes) : 2); i++) {
        /* Only reductions use the groups; all other operations must work as before. */
        if (whole || i == 1)
            failures += run(case_all_ways, shapes[i][0], shapes[i][1], 0);
        failures += run(user_ops, shapes[i][0], shapes[i][1], 0);
        failures += run(bits, shapes[i][0], shapes[i][1], 0);
        failures += run(mismatches, shapes[i][0], shapes[i][1], 0);
    }
    if (whole)
        failures += run(product, 8, 3, 0);
    failures += run(product, 4, 2, 0);
    failures += run(averages, 4, 2, 0);
    gave_up =
        mmap(NULL, sizeof(*gave_up), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (gave_up == MAP_FAILED)
        return 1;
    failures += run(late, 4, 2, 0);
    return failures != 0;
}
