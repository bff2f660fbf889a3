/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random mixtures of asynchronous calls, in host memory and on the pretend device. The calls differ
 * in kind, scale, wire format, priority, callback, deadline and submission group. Some are
 * persistent requests with other buffers, some have no name, and direct calls are made between
 * them. There are two communicators. Steps repeat, so that they become a plan. Some ranks join, and
 * some pass a wrong count. All sums are exact.
 *
 * All ranks draw the same steps from one seed. Each rank then draws its own order, buffers and
 * options of the calls.
 */
#include "multi/device/device_user.h"

#include "long.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST = 12,     /* tensors of a step */
    LONGEST = 900, /* elements of a tensor, or of a rank's part */
    MOST_RANKS = 5,
    ROOM = (LONGEST + 4) * MOST_RANKS, /* elements of a buffer */
    PERSISTENT = 4                     /* the first tensors also have persistent requests */
};

/* A tensor of a step. The fields are equal on all ranks. */
typedef struct {
    char name[24];
    tutti_call_kind_t kind;
    tutti_dtype_t dtype; /* float32 or float64 */
    int is_average, is_nameless, is_grouped; /* is_grouped: in a submission group with the next */
    int root, wrong; /* wrong: the rank that passes another count in this step; or -1 */
    size_t count;
    double prescale, postscale;
    tutti_dtype_t wire;
} tensor_t;

/* The seed, and the number of steps of a job. */
typedef struct {
    uint64_t seed;
    int steps, has_device;
} kind_t;

typedef struct {
    rank_t *self;
    uint64_t common, own; /* states of random numbers: equal on all ranks; of this rank */
    kind_t kind;
    tutti_comm_t *comm, *other; /* comm: of the step; other: all ranks in reverse order */
    int rank;                   /* in `comm` */
    unsigned working;           /* bit r: rank r of `comm` has not joined */
    user_t user;                /* with a device */
    char *arena;                /* from tutti_mem_alloc: space for all host buffers */
    char *send[MOST], *recv[MOST], *heap[2 * MOST];
    int in_place[MOST];
    tutti_request_t *request[MOST], *persistent[2][PERSISTENT];
    int is_persistent[MOST];
    atomic_int calls; /* callbacks that have not been called yet */
} program_t;

/* A linear congruential generator (Knuth's MMIX). */
static unsigned draw(uint64_t *state, unsigned below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*state >> 33) % below;
}

/* ---- values ---- */

static int value(int rank, int t, int step, size_t i)
{
    return (rank * 5 + t + step + (int)(i % 7)) % 8;
}

static double sum_of(const program_t *p, int t, int step, size_t i)
{
    double sum = 0;

    for (int r = 0; r < p->self->size; r++)
        sum += p->working >> r & 1 ? value(r, t, step, i) : 0;
    return sum;
}

static void set(const tensor_t *tensor, char *to, size_t i, double x)
{
    if (tensor->dtype == TUTTI_FLOAT64)
        ((double *)(void *)to)[i] = x;
    else
        ((float *)(void *)to)[i] = (float)x;
}

static double get(const tensor_t *tensor, const char *from, size_t i)
{
    return tensor->dtype == TUTTI_FLOAT64 ? ((const double *)(const void *)from)[i]
                                          : ((const float *)(const void *)from)[i];
}

static int reduces(const tensor_t *tensor)
{
    return tensor->kind == TUTTI_CALL_ALLREDUCE || tensor->kind == TUTTI_CALL_REDUCE ||
           tensor->kind == TUTTI_CALL_REDUCE_SCATTER;
}

/* Elements that a rank passes, and elements of its result. */
static size_t sends(const program_t *p, const tensor_t *tensor)
{
    return tensor->count *
           (tensor->kind == TUTTI_CALL_REDUCE_SCATTER ? (size_t)p->self->size : 1);
}

static size_t receives(const program_t *p, const tensor_t *tensor)
{
    return tensor->count * (tensor->kind == TUTTI_CALL_ALLGATHER ? (size_t)p->self->size : 1);
}

static double wanted(const program_t *p, const tensor_t *tensor, int t, int step, size_t i)
{
    size_t first = tensor->kind == TUTTI_CALL_REDUCE_SCATTER ? tensor->count * (size_t)p->rank : 0;
    double x;

    if (tensor->kind == TUTTI_CALL_BROADCAST)
        return value(tensor->root, t, step, i);
    if (tensor->kind == TUTTI_CALL_ALLGATHER)
        return value((int)(i / tensor->count), t, step, i % tensor->count);
    x = sum_of(p, t, step, first + i) * tensor->prescale;
    if (tensor->is_average && tensor->dtype == TUTTI_FLOAT32)
        x = (float)x / (float)p->self->size;
    else if (tensor->is_average)
        x /= p->self->size;
    return x * tensor->postscale;
}

static void verify(const program_t *p, const tensor_t *tensor, int t, int step, const char *result)
{
    if (tensor->kind == TUTTI_CALL_BARRIER ||
        (tensor->kind == TUTTI_CALL_REDUCE && p->rank != tensor->root))
        return;
    for (size_t i = 0; i < receives(p, tensor); i++) {
        double is = get(tensor, result, i), want = wanted(p, tensor, t, step, i);

        if (is != want)
            ranks_fail(__FILE__, __LINE__,
                       "seed %llu, step %d, %s, kind %d, element %zu of %zu: %g, wanted %g",
                       (unsigned long long)p->kind.seed, step, tensor->name, (int)tensor->kind, i,
                       tensor->count, is, want);
    }
}

/* ---- drawing ---- */

static void draw_tensor(program_t *p, tensor_t *tensor, int t, int may_join)
{
    static const tutti_call_kind_t kinds[] = {
        TUTTI_CALL_ALLREDUCE, TUTTI_CALL_ALLREDUCE,      TUTTI_CALL_ALLREDUCE, TUTTI_CALL_ALLREDUCE,
        TUTTI_CALL_REDUCE,    TUTTI_CALL_REDUCE_SCATTER, TUTTI_CALL_BROADCAST, TUTTI_CALL_BARRIER,
        TUTTI_CALL_ALLGATHER
    };
    static const tutti_dtype_t wires[] = { (tutti_dtype_t)0, (tutti_dtype_t)0, TUTTI_BFLOAT16,
                                           TUTTI_FLOAT16 };

    *tensor = (tensor_t){ .kind = kinds[draw(&p->common, may_join ? 8 : 9)],
                          .dtype = draw(&p->common, 4) == 0 ? TUTTI_FLOAT64 : TUTTI_FLOAT32,
                          .count = draw(&p->common, 8) == 0 ? 0 : draw(&p->common, LONGEST),
                          .prescale = 1,
                          .postscale = 1 };
    snprintf(tensor->name, sizeof(tensor->name), "tensor %d", t);
    if (t < PERSISTENT) { /* the same in all steps, because some ranks use a persistent request for
                             it */
        tensor->kind = TUTTI_CALL_ALLREDUCE;
        tensor->dtype = TUTTI_FLOAT32;
        tensor->count = (size_t)(1 + 211 * t);
        return;
    }
    if (tensor->kind == TUTTI_CALL_ALLGATHER && tensor->count == 0)
        tensor->count = 1;
    tensor->is_nameless = !may_join && draw(&p->common, 6) == 0;
    tensor->is_average = reduces(tensor) && draw(&p->common, 4) == 0;
    if (reduces(tensor) && draw(&p->common, 4) == 0) {
        tensor->prescale = draw(&p->common, 2) ? 0.5 : 2;
        tensor->postscale = draw(&p->common, 2) ? 0.25 : 4;
    }
    /* Averages have no wire format: it would round an average of 3 ranks, which is not exact. */
    if (reduces(tensor) && tensor->dtype == TUTTI_FLOAT32 && !tensor->is_average)
        tensor->wire = wires[draw(&p->common, 4)];
}

static int may_group(const tensor_t *tensor)
{
    return !tensor->is_nameless && tensor->kind != TUTTI_CALL_BARRIER;
}

/* Draw the tensors of a step that does not repeat the previous step. */
static int draw_step(program_t *p, tensor_t *tensor, int may_join)
{
    int n = 1 + (int)draw(&p->common, MOST);

    for (int t = 0; t < n; t++)
        draw_tensor(p, &tensor[t], t, may_join);
    for (int t = PERSISTENT; t + 1 < n; t++)
        tensor[t].is_grouped = draw(&p->common, 8) == 0 && may_group(&tensor[t]) &&
                               may_group(&tensor[t + 1]) && !tensor[t - 1].is_grouped;
    return n;
}

/* A rank that has not joined. */
static int draw_rank(program_t *p)
{
    int rank = (int)draw(&p->common, (unsigned)p->self->size);

    while (!(p->working >> rank & 1))
        rank = (rank + 1) % p->self->size;
    return rank;
}

/* Draw the roots, and the ranks that make a mistake. This is done for each step, also for a
   repeated step. */
static void draw_ranks(program_t *p, tensor_t *tensor, int n)
{
    int several = (p->working & (p->working - 1)) != 0;

    for (int t = 0; t < n; t++) {
        int root = draw_rank(p), wrong = draw_rank(p);
        int is_alone = !tensor[t].is_grouped && (t == 0 || !tensor[t - 1].is_grouped);

        if (tensor[t].kind == TUTTI_CALL_REDUCE || tensor[t].kind == TUTTI_CALL_BROADCAST)
            tensor[t].root = root;
        tensor[t].wrong = -1;
        if (draw(&p->common, 30) == 0 && several && is_alone && t >= PERSISTENT &&
            tensor[t].kind == TUTTI_CALL_ALLREDUCE)
            tensor[t].wrong = wrong;
    }
}

/* ---- a rank's own ways ---- */

/* Give a tensor its buffers. */
static void place(program_t *p, const tensor_t *tensor, int t)
{
    size_t bytes = ROOM * sizeof(double), offset = 8 * draw(&p->own, 4);
    int whole = tensor->kind == TUTTI_CALL_ALLREDUCE || tensor->kind == TUTTI_CALL_REDUCE ||
                tensor->kind == TUTTI_CALL_BROADCAST;
    char *of[2];

    for (int i = 0; i < 2; i++)
        of[i] = (p->kind.has_device      ? p->user.job.memory + (2 * t + i) * bytes
                 : draw(&p->own, 2) == 0 ? p->arena + (2 * t + i) * bytes
                                         : p->heap[2 * t + i]) +
                offset;
    p->in_place[t] = whole && (tensor->kind == TUTTI_CALL_BROADCAST || draw(&p->own, 2));
    p->send[t] = of[0];
    p->recv[t] = of[p->in_place[t] ? 0 : 1];
}

static void fill(program_t *p, const tensor_t *tensor, int t, int step)
{
    char *to = p->kind.has_device ? p->user.in + (size_t)t * ROOM * sizeof(double) : p->send[t];
    size_t n = sends(p, tensor);

    for (size_t i = 0; i < n; i++)
        set(tensor, to, i, value(p->rank, t, step, i));
    if (p->kind.has_device && n > 0)
        CHECK_OK(p->user.job.ops->copy(p->send[t], to, n * tutti_dtype_bytes(tensor->dtype),
                                       p->user.stream));
}

static void count_call(void *arg, tutti_status_t status)
{
    CHECK(status == TUTTI_OK || status == TUTTI_ERR_MISMATCH);
    atomic_fetch_sub((atomic_int *)arg, 1);
}

static void set_options(program_t *p, const tensor_t *tensor, tutti_async_options_t *options)
{
    *options = (tutti_async_options_t)TUTTI_ASYNC_OPTIONS_INIT;
    options->prescale = tensor->prescale;
    options->postscale = tensor->postscale;
    options->wire = tensor->wire;
    if (draw(&p->own, 8) == 0)
        options->timeout_ms = 200000;
    if (draw(&p->own, 10) == 0)
        options->priority = (int)draw(&p->own, 256);
    if (draw(&p->own, 4) == 0) {
        options->callback = count_call;
        options->callback_arg = &p->calls;
        atomic_fetch_add(&p->calls, 1);
    }
}

static tutti_call_t call_of(const program_t *p, const tensor_t *tensor, int t,
                            const tutti_async_options_t *options)
{
    tutti_call_t call = TUTTI_CALL_INIT;

    call.kind = tensor->kind;
    call.name = tensor->is_nameless ? NULL : tensor->name;
    call.options = options;
    if (tensor->kind == TUTTI_CALL_BARRIER)
        return call;
    call.dtype = tensor->dtype;
    call.op = !reduces(tensor) ? TUTTI_SUM : tensor->is_average ? TUTTI_AVG : TUTTI_SUM;
    call.root = tensor->root;
    call.count = tensor->count + (tensor->wrong == p->rank);
    call.sendbuf = tensor->kind == TUTTI_CALL_BROADCAST ? NULL : p->send[t];
    call.recvbuf = p->recv[t];
    return call;
}

/* Is the call made in the stream? */
static int is_queued(const program_t *p, const tensor_t *tensor)
{
    return p->kind.has_device && tensor->kind != TUTTI_CALL_BARRIER;
}

static void start(program_t *p, const tensor_t *tensor, int t, int step)
{
    tutti_async_options_t options[2];
    tutti_call_t calls[2];
    int n = 1 + tensor->is_grouped;

    for (int k = 0; k < n; k++) {
        place(p, &tensor[k], t + k);
        fill(p, &tensor[k], t + k, step);
    }
    p->is_persistent[t] = t < PERSISTENT && !p->kind.has_device && draw(&p->own, 2);
    if (p->is_persistent[t]) {
        p->request[t] = p->persistent[p->comm == p->other][t];
        CHECK_OK(tutti_request_set_buffers(p->request[t], p->send[t], p->recv[t]));
        if (draw(&p->own, 2))
            CHECK_OK(tutti_start(p->request[t]));
        else
            CHECK_OK(tutti_start_all(&p->request[t], 1));
        return;
    }
    for (int k = 0; k < n; k++) {
        set_options(p, &tensor[k], &options[k]);
        calls[k] = call_of(p, &tensor[k], t + k, &options[k]);
    }
    if (is_queued(p, tensor))
        CHECK_OK(tutti_cuda_submit(calls, (size_t)n, p->comm, user_stream(&p->user),
                                   &p->request[t]));
    else
        CHECK_OK(tutti_submit(calls, (size_t)n, p->comm, &p->request[t]));
}

static void finish(program_t *p, const tensor_t *tensor, int t, int step)
{
    const char *result = p->recv[t];
    tutti_status_t status;
    int done = 0;

    for (unsigned tests = draw(&p->own, 4); tests > 0 && !done; tests--) {
        status = tutti_test(p->request[t], &done);
        CHECK_STATUS(status, done && tensor->wrong >= 0 ? TUTTI_ERR_MISMATCH : TUTTI_OK);
    }
    status = is_queued(p, tensor) ? tutti_cuda_wait(p->request[t], -1, user_stream(&p->user))
                                  : tutti_wait(p->request[t], -1);
    CHECK_STATUS(status, tensor->wrong >= 0 ? TUTTI_ERR_MISMATCH : TUTTI_OK);
    if (tensor->wrong >= 0)
        return;
    if (p->kind.has_device && receives(p, tensor) > 0) {
        CHECK_OK(p->user.job.ops->copy(p->user.out, result,
                                       receives(p, tensor) * tutti_dtype_bytes(tensor->dtype),
                                       p->user.stream));
        user_wait(&p->user);
        result = p->user.out;
    }
    verify(p, tensor, t, step, result);
}

/* Submit the tensors in random order, but tensors without a name in the same order on all ranks. */
static void start_all(program_t *p, const tensor_t *tensor, int n, int step)
{
    int order[MOST], count = 0, nameless = 0;

    for (int t = 0; t < n; t++)
        if (t == 0 || !tensor[t - 1].is_grouped)
            order[count++] = t;
    for (int i = count - 1; i > 0; i--) {
        int k = (int)draw(&p->own, (unsigned)i + 1), t = order[i];

        order[i] = order[k];
        order[k] = t;
    }
    for (int i = 0; i < count; i++) {
        int t = order[i];

        if (tensor[t].is_nameless) {
            while (!tensor[nameless].is_nameless)
                nameless++;
            t = nameless++;
        }
        start(p, &tensor[t], t, step);
    }
}

static void run_step(program_t *p, tensor_t *tensor, int n, int step)
{
    float one = 1;

    draw_ranks(p, tensor, n);
    start_all(p, tensor, n, step);
    if (draw(&p->common, 5) == 0 && p->working == (1u << p->self->size) - 1) {
        CHECK_OK(tutti_allreduce(&one, &one, 1, TUTTI_FLOAT32, TUTTI_SUM, p->comm));
        CHECK_INT(one, p->self->size);
    }
    for (int t = 0; t < n; t++)
        finish(p, &tensor[t], t, step);
    CHECK_INT(atomic_load(&p->calls), 0);
}

/* ---- the program ---- */

/* Run some steps. In half of the epochs each rank joins, after a number of steps that differs
   between ranks. */
static void run_epoch(program_t *p, int *step)
{
    int joins = draw(&p->common, 2) == 0, steps[MOST_RANKS], most = 1, n = 0, last;
    tensor_t tensor[MOST];

    for (int r = 0; r < p->self->size; r++) {
        steps[r] = joins ? (int)draw(&p->common, 12) : 9;
        most = TUTTI__MAX(most, steps[r]);
    }
    for (int k = 0; k < most; k++, ++*step) {
        p->working = 0;
        for (int r = 0; r < p->self->size; r++)
            p->working |= (unsigned)(k < steps[r]) << r;
        if (n == 0 || draw(&p->common, 5) == 0)
            n = draw_step(p, tensor, joins);
        if (p->working >> p->rank & 1)
            run_step(p, tensor, n, *step);
        else if (p->working != 0)
            draw_ranks(p, tensor, n), (void)draw(&p->common, 5);
    }
    if (joins)
        CHECK_OK(tutti_join(p->comm, &last));
}

static void open_program(program_t *p, rank_t *self)
{
    size_t bytes = (size_t)2 * MOST * ROOM * sizeof(double) + 64;

    p->self = self;
    p->kind = *(const kind_t *)self->arg;
    p->common = p->kind.seed;
    p->own = p->kind.seed * 31 + (unsigned)self->rank;
    if (p->kind.has_device)
        user_begin(&p->user, self, bytes, ROOM * sizeof(double) + 64);
    CHECK_OK(tutti_mem_alloc(self->comm, bytes, (void **)&p->arena));
    for (int i = 0; i < 2 * MOST; i++) {
        p->heap[i] = malloc(ROOM * sizeof(double) + 64);
        CHECK(p->heap[i] != NULL);
    }
    CHECK_OK(tutti_comm_split(self->comm, 0, -self->rank, &p->other));
    for (int i = 0; i < 2 * PERSISTENT; i++) {
        int t = i % PERSISTENT;
        char name[24];
        tutti_call_t call = ranks_sum(name, p->arena, (size_t)(1 + 211 * t));

        snprintf(name, sizeof(name), "tensor %d", t);
        CHECK_OK(tutti_persistent_create(&call, i < PERSISTENT ? self->comm : p->other,
                                         &p->persistent[i / PERSISTENT][t]));
    }
}

static void close_program(program_t *p)
{
    for (int i = 0; i < 2 * PERSISTENT; i++)
        CHECK_OK(tutti_request_free(p->persistent[i / PERSISTENT][i % PERSISTENT]));
    CHECK_OK(tutti_comm_free(p->other));
    for (int i = 0; i < 2 * MOST; i++)
        free(p->heap[i]);
    CHECK_OK(tutti_mem_free(p->self->comm, p->arena));
    if (p->kind.has_device)
        user_end(&p->user);
}

static void program(rank_t *self)
{
    program_t *p = calloc(1, sizeof(*p));
    int step = 0;

    CHECK(p != NULL);
    open_program(p, self);
    while (step < p->kind.steps) {
        p->comm = draw(&p->common, 3) == 0 ? p->other : self->comm;
        p->rank = tutti_rank(p->comm);
        run_epoch(p, &step);
    }
    close_program(p);
    free(p);
}

/* TUTTI_STREAM_WAIT=device: streams, not threads, wait for work on the host. */
static void streams_wait(tutti__conf_t *conf, int rank)
{
    device_settings(conf, rank);
    conf->shared.stream_wait = 1;
}

int main(int argc, char **argv)
{
    static const struct {
        int size;
        const char *hosts;
    } places[] = { { 2, NULL }, { 3, NULL }, { 3, "aab" }, { 4, "abab" }, { 5, "aabbc" } };
    int failures = 0, is_long = test_is_long("all but one of 20 seeds (with sanitizers: of 5), and "
                                             "four of five steps");
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, seeds = 20;

#ifdef TUTTI__SANITIZED /* a seed takes three to six times as long */
    seeds = 5;
#endif
    for (uint64_t seed = first; seed < first + (is_long ? seeds : 1); seed++) {
        for (size_t i = 0; i < 3 * sizeof(places) / sizeof(*places); i++) {
            kind_t kind = { .seed = seed * 100 + i,
                            .steps = is_long ? 150 : 30,
                            .has_device = i % 3 > 0 };
            job_t job = { .size = places[i / 3].size,
                          .hosts = places[i / 3].hosts,
                          .threads = !ranks_can_fork(),
                          .settings = i % 3 == 2 ? streams_wait : NULL,
                          .fn = program,
                          .arg = &kind };

            if (i % 3 == 2 && job.hosts == NULL)
                continue; /* in these jobs streams do not wait */
            if (kind.has_device)
                failures += device_run_job(&job);
            else
                RUN_JOB(failures, &job);
        }
    }
    return failures != 0;
}
