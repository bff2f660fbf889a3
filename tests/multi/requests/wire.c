/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wire formats (TUTTI_WIRE, options.wire) on pretended hosts: direct and asynchronous calls of
 * random sizes. All ranks get the same bits: in a fused bucket, in a plan, and in a bucket of one
 * tensor. The error is at most the error in docs/performance.md. Calls without a format, and other
 * types, are exact. Different formats are a mismatch.
 */
#include "long.h"
#include "ranks.h"

#include <math.h>
#include <stdlib.h>

enum {
    MOST = 40000, /* elements */
    TENSORS = 12,
    STEPS = 6 /* from the fourth step on there is a plan */
};

typedef struct {
    tutti_dtype_t dtype;
    double unit, least; /* see tests/unit/exec/test_wire.c */
} format_t;

static const format_t formats[] = {
    { TUTTI_FLOAT32, 1.0 / (1 << 24), 0 },
    { TUTTI_BFLOAT16, 1.0 / (1 << 8), 0 },
    { TUTTI_FLOAT16, 1.0 / (1 << 11), 1.0 / (1 << 25) },
    { TUTTI_FLOAT8_E4M3, 1.0 / (1 << 4), 1.0 / (1 << 10) },
};

static tutti__conf_wire_t setting; /* of the current job */

static void settings(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.wire = setting;
    conf->shared.check = 1;
}

static uint32_t random_below(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % below;
}

/* Values of at most 16, so that sums of 8 ranks fit each format. */
static float value_of(int rank, size_t i, unsigned salt)
{
    uint32_t x = (uint32_t)(i * 2654435761u) ^ ((uint32_t)rank * 40503u + salt * 69069u);

    x = (x ^ x >> 15) * 2246822519u;
    x = (x ^ x >> 13) * 3266489917u;
    return (float)((double)(x >> 8) / (1 << 19) - 16);
}

static void fill(float *x, size_t n, int rank, unsigned salt)
{
    for (size_t i = 0; i < n; i++)
        x[i] = value_of(rank, i, salt);
}

/* x[i] is the result for element begin + i. */
static void check_sums(const rank_t *self, const float *x, size_t n, size_t begin, unsigned salt,
                       tutti_op_t op, const format_t *format, int roundings, const char *what)
{
    double divisor = op == TUTTI_AVG ? self->size : 1;

    for (size_t i = 0; i < n; i++) {
        double sum = 0, magnitudes = 0, most;

        for (int r = 0; r < self->size; r++) {
            sum += (double)value_of(r, begin + i, salt);
            magnitudes += fabs((double)value_of(r, begin + i, salt));
        }
        most = (pow(1 + format->unit, roundings) - 1 + self->size * 1e-7) * magnitudes / divisor +
               roundings * self->size * format->least;
        if (!(fabs((double)x[i] - sum / divisor) <= most))
            ranks_fail(__FILE__, __LINE__, "%s as %s: element %zu of %zu is %g, not %g +- %g", what,
                       tutti_dtype_name(format->dtype), i, n, (double)x[i], sum / divisor, most);
    }
}

/* Check that all ranks have these bytes. */
static void check_same(const rank_t *self, const void *data, size_t bytes, const char *what)
{
    const unsigned char *at = data;
    uint64_t hash[2] = { 14695981039346656037u, 0 };

    for (size_t i = 0; i < bytes; i++)
        hash[0] = (hash[0] ^ at[i]) * 1099511628211u;
    hash[1] = ~hash[0];
    CHECK_OK(tutti_allreduce(hash, hash, 2, TUTTI_UINT64, TUTTI_MAX, self->comm));
    if (hash[0] != ~hash[1])
        ranks_fail(__FILE__, __LINE__, "%s: ranks have different bits", what);
}

/* ---- direct calls ---- */

static void one_allreduce(rank_t *self, float *in, float *out, size_t n, unsigned salt,
                          int in_place)
{
    const format_t *format = &formats[setting];
    tutti_op_t op = salt % 2 ? TUTTI_SUM : TUTTI_AVG;

    fill(in, n, self->rank, salt);
    CHECK_OK(tutti_allreduce(in, in_place ? in : out, n, TUTTI_FLOAT32, op, self->comm));
    check_sums(self, in_place ? in : out, n, 0, salt, op, format, self->size, "allreduce");
    check_same(self, in_place ? in : out, n * sizeof(*out), "allreduce");
    for (size_t i = 0; i < n && !in_place; i++)
        CHECK(in[i] == value_of(self->rank, i, salt));
}

static void one_reduce(rank_t *self, float *in, float *out, size_t n, unsigned salt)
{
    int root = (int)(salt % (unsigned)self->size);

    fill(in, n, self->rank, salt);
    CHECK_OK(tutti_reduce(in, out, n, TUTTI_FLOAT32, TUTTI_SUM, root, self->comm));
    if (self->rank == root)
        check_sums(self, out, n, 0, salt, TUTTI_SUM, &formats[setting], self->size, "reduce");
}

static void one_reduce_scatter(rank_t *self, float *in, float *out, size_t n, unsigned salt)
{
    size_t counts[8], begin = 0;

    n /= (size_t)self->size;
    fill(in, n * (size_t)self->size, self->rank, salt);
    CHECK_OK(tutti_reduce_scatter(in, out, n, TUTTI_FLOAT32, TUTTI_AVG, self->comm));
    check_sums(self, out, n, n * (size_t)self->rank, salt, TUTTI_AVG, &formats[setting], self->size,
               "reduce_scatter");
    for (int r = 0; r < self->size; r++) {
        counts[r] = n * (size_t)r / (size_t)self->size;
        begin += r < self->rank ? counts[r] : 0;
    }
    CHECK_OK(tutti_reduce_scatterv(in, out, counts, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
    check_sums(self, out, counts[self->rank], begin, salt, TUTTI_SUM, &formats[setting], self->size,
               "reduce_scatterv");
}

/* Small direct calls, other types and other operations have no format. */
static void exact(rank_t *self)
{
    static _Thread_local double x[3000];
    float one = (float)(4097 + self->rank), most[3000];

    CHECK_OK(tutti_allreduce(&one, &one, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
    CHECK_INT(one, 4097 * self->size + self->size * (self->size - 1) / 2);
    for (int i = 0; i < 3000; i++) {
        x[i] = i + 0.125;
        most[i] = (float)(i + 4097) + (float)self->rank / 1024;
    }
    CHECK_OK(tutti_allreduce(x, x, 3000, TUTTI_FLOAT64, TUTTI_SUM, self->comm));
    CHECK_OK(tutti_allreduce(most, most, 3000, TUTTI_FLOAT32, TUTTI_MAX, self->comm));
    for (int i = 0; i < 3000; i++) {
        CHECK(x[i] == self->size * (i + 0.125));
        CHECK(most[i] == (float)(i + 4097) + (float)(self->size - 1) / 1024);
    }
}

static void direct(rank_t *self)
{
    float *in = malloc(MOST * sizeof(*in)), *out = malloc(MOST * sizeof(*out));
    uint64_t common = 5;

    CHECK(in != NULL && out != NULL);
    for (unsigned salt = 0; salt < 8; salt++) {
        /* A direct call of at most 1024 elements has no wire format (TUTTI__WIRE_LEAST_BYTES), so
           all calls of this loop are longer. */
        size_t n = 2000 + random_below(&common, salt % 4 == 0 ? MOST - 2000 : 7000);

        one_allreduce(self, in, out, n, salt, salt / 2 % 2);
        one_reduce(self, in, out, n, salt);
        one_reduce_scatter(self, in, out, n, salt);
    }
    exact(self);
    free(in);
    free(out);
}

/* ---- asynchronous calls ---- */

typedef struct {
    char name[16];
    size_t count;
    const format_t *format; /* the option's format; NULL: the setting's */
    float *x, *first;       /* first: the result of the first step */
    tutti_request_t *request;
} tensor_t;

static void submit(rank_t *self, tensor_t *t, size_t k)
{
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;

    if (t->format != NULL)
        options.wire = t->format->dtype;
    fill(t->x, t->count, self->rank, (unsigned)k);
    CHECK_OK(tutti_allreduce_async(t->name, t->x, t->x, t->count, TUTTI_FLOAT32, TUTTI_AVG,
                                   self->comm, &options, &t->request));
}

static void check_tensor(rank_t *self, tensor_t *t, size_t k, int step)
{
    const format_t *format = t->format != NULL ? t->format : &formats[setting];
    int hosts = tutti_host_count(self->comm);

    CHECK_OK(tutti_wait(t->request, -1));
    check_sums(self, t->x, t->count, 0, (unsigned)k, TUTTI_AVG, format, hosts, t->name);
    check_same(self, t->x, t->count * sizeof(float), t->name);
    if (step == 0)
        memcpy(t->first, t->x, t->count * sizeof(float));
    else if (memcmp(t->x, t->first, t->count * sizeof(float)) != 0)
        ranks_fail(__FILE__, __LINE__, "step %d: other bits of %s as %s", step, t->name,
                   tutti_dtype_name(format->dtype));
}

/* In the first step each tensor is alone in its bucket, then it is fused with others, then there is
   a plan. The bits must stay the same. */
static void async(rank_t *self)
{
    tensor_t tensors[TENSORS];
    tutti_stats_t stats = { .size = sizeof(stats) };
    uint64_t common = 11;

    for (size_t k = 0; k < TENSORS; k++) {
        tensor_t *t = &tensors[k];

        snprintf(t->name, sizeof(t->name), "t%zu", k);
        t->count = 1 + random_below(&common, k % 3 == 0 ? MOST / 4 : 500);
        t->format = k % 5 < 4 ? &formats[k % 5] : NULL;
        t->x = malloc(2 * t->count * sizeof(float));
        CHECK(t->x != NULL);
        t->first = t->x + t->count;
        submit(self, t, k);
        check_tensor(self, t, k, 0);
    }
    for (int step = 1; step <= STEPS; step++) {
        for (size_t k = 0; k < TENSORS; k++)
            submit(self, &tensors[k], k);
        for (size_t k = 0; k < TENSORS; k++)
            check_tensor(self, &tensors[k], k, step);
    }
    CHECK_OK(tutti_comm_get_stats(self->comm, &stats));
    CHECK(stats.plan_hits > 0);
    for (size_t k = 0; k < TENSORS; k++)
        free(tensors[k].x);
}

/* Other kinds of calls, calls without a name, and zero contributions. */
static void others(rank_t *self)
{
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;
    float *in = malloc(MOST * sizeof(*in)), *out = malloc(MOST * sizeof(*out));
    const format_t *format = &formats[2];
    size_t size = (size_t)self->size, n = 10000;
    tutti_request_t *request[4];

    CHECK(in != NULL && out != NULL);
    options.wire = format->dtype;
    fill(in, n * 2, self->rank, 3);
    CHECK_OK(tutti_reduce_scatter_async("scattered", in, out, n / size, TUTTI_FLOAT32, TUTTI_SUM,
                                        self->comm, &options, &request[0]));
    CHECK_OK(tutti_reduce_async("to root", in, out + n, n, TUTTI_FLOAT32, TUTTI_SUM, 1, self->comm,
                                &options, &request[1]));
    CHECK_OK(tutti_allreduce_async(NULL, in, out + 2 * n, n, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                   &options, &request[2]));
    CHECK_OK(tutti_wait_all(request, 3, -1));
    check_sums(self, out, n / size, n / size * (size_t)self->rank, 3, TUTTI_SUM, format, self->size,
               "scattered");
    if (self->rank == 1)
        check_sums(self, out + n, n, 0, 3, TUTTI_SUM, format, self->size, "to root");
    check_sums(self, out + 2 * n, n, 0, 3, TUTTI_SUM, format, self->size, "without a name");
    check_same(self, out + 2 * n, n * sizeof(float), "without a name");

    /* Rank 0 contributes zeros. */
    fill(out, n, self->rank, 4);
    for (size_t i = 0; i < n && self->rank == 0; i++)
        out[i] = 0;
    if (self->rank != 0) {
        CHECK_OK(tutti_allreduce_async("joined", out, out + n, n, TUTTI_FLOAT32, TUTTI_SUM,
                                       self->comm, &options, &request[3]));
        CHECK_OK(tutti_wait(request[3], -1));
    }
    CHECK_OK(tutti_join(self->comm, NULL));
    CHECK_OK(tutti_allreduce_async("not joined", out, out + 2 * n, n, TUTTI_FLOAT32, TUTTI_SUM,
                                   self->comm, &options, &request[3]));
    CHECK_OK(tutti_wait(request[3], -1));
    if (self->rank != 0 && memcmp(out + n, out + 2 * n, n * sizeof(float)) != 0)
        ranks_fail(__FILE__, __LINE__, "a zero contribution gives other bits than zeros");
    free(in);
    free(out);
}

/* ---- mismatches and errors ---- */

/* The last rank has the format `odd`. */
static void mismatch_of(rank_t *self, const char *name, tutti_dtype_t good, tutti_dtype_t odd)
{
    static _Thread_local float x[20000], y[20000];
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;
    tutti_request_t *request;
    char words[128];

    options.wire = self->rank == self->size - 1 ? odd : good;
    for (int i = 0; i < 20000; i++)
        y[i] = -1;
    CHECK_OK(tutti_allreduce_async(name, x, y, 20000, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                   &options, &request));
    CHECK_STATUS(tutti_wait(request, -1), TUTTI_ERR_MISMATCH);
    snprintf(words, sizeof(words),
             "rank %d has an allreduce of 20000 elements of float32, sum, as %s between hosts",
             self->size - 1, tutti_dtype_name(odd));
    CHECK_WORDS(words);
    snprintf(words, sizeof(words), " elements of float32, sum, as %s between hosts",
             tutti_dtype_name(good));
    CHECK_WORDS(words);
    for (int i = 0; i < 20000; i++)
        CHECK_INT(y[i], -1);
    exact(self);
}

/* If a call without a format mismatches, the error names no format for it. */
static void other_call(rank_t *self)
{
    static _Thread_local float x[20000];
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;
    tutti_request_t *request;
    char words[128];

    options.wire = TUTTI_BFLOAT16;
    if (self->rank == self->size - 1)
        CHECK_OK(tutti_barrier_async("odd", self->comm, NULL, &request));
    else
        CHECK_OK(tutti_allreduce_async("odd", x, x, 20000, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                       &options, &request));
    CHECK_STATUS(tutti_wait(request, -1), TUTTI_ERR_MISMATCH);
    CHECK_WORDS("sum, as bfloat16 between hosts");
    snprintf(words, sizeof(words), "rank %d has a barrier", self->size - 1);
    CHECK_WORDS(words);
    CHECK(strstr(tutti_last_error(), "a barrier,") == NULL);
}

static void mismatches(rank_t *self)
{
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "odd" : NULL;

        mismatch_of(self, name, TUTTI_BFLOAT16, TUTTI_FLOAT16);
        mismatch_of(self, name, TUTTI_FLOAT32, TUTTI_FLOAT8_E4M3);
    }
    other_call(self);
}

#define WRONG(call, words)                                                                         \
    do {                                                                                           \
        CHECK_STATUS(call, TUTTI_ERR_INVALID_ARGUMENT);                                            \
        CHECK_WORDS(words);                                                                        \
    } while (0)

static void errors(rank_t *self)
{
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;
    tutti_request_t *request;
    float x[8] = { 0 };

    options.wire = TUTTI_FLOAT64;
    WRONG(tutti_allreduce_async("x", x, x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm, &options,
                                &request),
          "options->wire is float64; it is float32, bfloat16, float16 or float8_e4m3");
    options.wire = TUTTI_BFLOAT16;
    WRONG(tutti_allreduce_async("x", x, x, 1, TUTTI_FLOAT32, TUTTI_MAX, self->comm, &options,
                                &request),
          "options->wire is for sums and averages of float32");
    WRONG(
        tutti_allreduce_async("x", x, x, 1, TUTTI_INT32, TUTTI_SUM, self->comm, &options, &request),
        "options->wire is for sums and averages of float32");
    WRONG(tutti_broadcast_async("x", x, 1, TUTTI_FLOAT32, 0, self->comm, &options, &request),
          "options->wire is for sums and averages of float32, not for a broadcast");
}

/* On one host no message goes to another host, so formats have no effect. */
static void one_host(rank_t *self)
{
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;
    static _Thread_local float x[9000];
    tutti_request_t *request;

    for (int i = 0; i < 9000; i++)
        x[i] = (float)(4097 + i);
    CHECK_OK(tutti_allreduce(x, x, 9000, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
    options.wire = TUTTI_FLOAT16;
    CHECK_OK(tutti_allreduce_async("x", x, x, 9000, TUTTI_FLOAT32, TUTTI_SUM, self->comm, &options,
                                   &request));
    CHECK_OK(tutti_wait(request, -1));
    for (int i = 0; i < 9000; i++)
        CHECK_INT(x[i], (4097 + i) * self->size * self->size);
}

int main(void)
{
    static const char *const hosts[] = { "ab", "aabb", "abc", "aabbc", "abab", "abcdefg" };
    static const char *const algorithms[] = { NULL,
                                              "allreduce:ring,reduce_scatter:ring",
                                              "allreduce:hierarchical/ring",
                                              "allreduce:three_level/halving_doubling",
                                              "allreduce:knomial,reduce_scatter:direct",
                                              "allreduce:double_tree,reduce:chain" };
    int failures = 0, whole = test_is_long("two of three formats"), turn = 0;
    job_t job = { .threads = 1, .settings = settings };

    for (size_t h = 0; h < sizeof(hosts) / sizeof(*hosts); h++, turn++) {
        job.hosts = hosts[h];
        job.size = (int)strlen(hosts[h]);
        for (int f = 1; f < 4; f++) {
            if (!whole && f != 1 + turn % 3)
                continue;
            setting = (tutti__conf_wire_t)f;
            for (size_t a = 0; a < sizeof(algorithms) / sizeof(*algorithms); a++) {
                if (!whole && a > 0 && a != 1 + h % 5)
                    continue;
                job.algorithm = algorithms[a];
                job.fn = direct;
                RUN_JOB(failures, &job);
            }
            job.algorithm = NULL;
            job.fn = async;
            RUN_JOB(failures, &job);
        }
        setting = TUTTI__CONF_WIRE_FLOAT32;
        job.fn = others;
        RUN_JOB(failures, &job);
        job.fn = mismatches;
        RUN_JOB(failures, &job);
    }
    job.hosts = "ab";
    job.size = 2;
    job.fn = errors;
    RUN_JOB(failures, &job);
    job.hosts = NULL;
    setting = TUTTI__CONF_WIRE_BFLOAT16;
    job.fn = one_host;
    RUN_JOB(failures, &job);
    job.algorithm = "allreduce:ring";
    RUN_JOB(failures, &job);
    return failures != 0;
}
