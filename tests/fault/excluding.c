/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waits that exclude each other: rank 0 warns about them soon, long before the stall warning. If
 * long waits do not exclude each other, rank 0 must not warn.
 *
 * In the first cases the ranks cannot continue by themselves. After rank 0 has written the warning,
 * a thread of each rank submits the missing tensors. This thread has submitted no tensor before.
 */
#include "fault/fault.h"

#include "base/constants.h"
#include "base/log.h"
#include "engine/state.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Longest wait for a warning. */
#define LIMIT_MS 60000
/* For this time rank 0 must not warn: some checks after all waits have become long. */
#define SILENT_MS 5000
#define MOST_RANKS 3
#define RING 8
/* Most tensors that are pending at the same time, summed over the ranks that are threads of a
   process. */
#define MOST_TENSORS 12

/* The beginning of rank 0's warning. */
static const char words[] = "waits exclude each other: ";

/* Rank 0's stderr goes to this file. */
static int said;
static int real_stderr;

static void settings(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.stall_ms = 1000 * 1000;
    conf->shared.timeout_ms = 2000 * 1000;
    conf->log_level = TUTTI__LOG_WARN;
}

/* The barrier comes last: once the other ranks wait, rank 0's engine may write at any time. */
static void to_file(const rank_t *self)
{
    if (self->rank == 0) {
        real_stderr = dup(2);
        dup2(said, 2);
    }
    CHECK_OK(tutti_barrier(self->comm));
}

static void to_stderr(const rank_t *self)
{
    if (self->rank != 0)
        return;
    dup2(real_stderr, 2);
    close(real_stderr);
}

static const char *read_said(void)
{
    static _Thread_local char text[8192];
    ssize_t n = pread(said, text, sizeof(text) - 1, 0);

    text[n < 0 ? 0 : n] = '\0';
    return text;
}

static void await_said(const char *wanted)
{
    double began = wall_ms();

    while (strstr(read_said(), words) == NULL && wall_ms() - began < LIMIT_MS)
        usleep(10000);
    if (strstr(read_said(), wanted) == NULL)
        ranks_fail(__FILE__, __LINE__, "rank 0 did not say '%s', but: %s", wanted, read_said());
}

/* ---- calls ---- */

static tutti_request_t *submit_with(const rank_t *self, const char *name,
                                    const tutti_async_options_t *options)
{
    static float x[MOST_RANKS][MOST_TENSORS][5];
    static atomic_uint next;
    tutti_request_t *request;
    float *mine = x[self->rank][atomic_fetch_add(&next, 1) % MOST_TENSORS];

    CHECK_OK(tutti_allreduce_async(name, mine, mine, 5, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                   options, &request));
    return request;
}

static tutti_request_t *submit(const rank_t *self, const char *name)
{
    return submit_with(self, name, NULL);
}

static void reduce(const rank_t *self, const char *name)
{
    CHECK_OK(tutti_wait(submit(self, name), -1));
}

/* ---- circles ---- */

/* A thread that makes one missing call after rank 0 has written its warning. */
typedef struct {
    const rank_t *self;
    const char *wanted, *name; /* name NULL: no call */
    int sends;                 /* 1: the call is a message to the other rank */
    pthread_t thread;
} savior_t;

static void *save(void *arg)
{
    const savior_t *savior = arg;
    float x[5] = { 0 };
    tutti_request_t *request;

    await_said(savior->wanted);
    if (savior->sends) {
        CHECK_OK(tutti_send_async(savior->name, x, 5, TUTTI_FLOAT32, 1 - savior->self->rank,
                                  savior->self->comm, NULL, &request));
        CHECK_OK(tutti_wait(request, -1));
    } else if (savior->name != NULL) {
        reduce(savior->self, savior->name);
    }
    return NULL;
}

/* Wait for the request, or in a barrier if it is NULL. The wait can end only after the savior's
   call. */
static void wait_for(const rank_t *self, savior_t *savior, tutti_request_t *request)
{
    savior->self = self;
    to_file(self);
    CHECK(pthread_create(&savior->thread, NULL, save, savior) == 0);
    CHECK_OK(request != NULL ? tutti_wait(request, -1) : tutti_barrier(self->comm));
    CHECK(pthread_join(savior->thread, NULL) == 0);
    to_stderr(self);
}

static void two(rank_t *self)
{
    savior_t savior = { .wanted = "rank 0 waits for tensor 'a', which rank 1 has not submitted; "
                                  "rank 1 waits for tensor 'b', which rank 0 has not submitted\n",
                        .name = self->rank == 0 ? "b" : "a" };

    wait_for(self, &savior, submit(self, self->rank == 0 ? "a" : "b"));
}

/* Rank r submits all tensors except the tensor for which rank r - 1 waits. */
static void three(rank_t *self)
{
    static const char *const names[3] = { "a", "b", "c" };
    savior_t savior = { .wanted = "rank 0 waits for tensor 'a', which rank 1 has not submitted; "
                                  "rank 1 waits for tensor 'b', which rank 2 has not submitted; "
                                  "rank 2 waits for tensor 'c', which rank 0 has not submitted\n",
                        .name = names[(self->rank + 2) % 3] };
    tutti_request_t *next = submit(self, names[(self->rank + 1) % 3]);

    wait_for(self, &savior, submit(self, names[self->rank]));
    CHECK_OK(tutti_wait(next, -1));
}

/* Rank 0 does not wait. */
static void others(rank_t *self)
{
    savior_t savior = { .wanted = "rank 1 waits for tensor 'a', which rank 2 has not submitted; "
                                  "rank 2 waits for tensor 'b', which rank 1 has not submitted\n",
                        .name = self->rank == 1 ? "b" : "a" };

    if (self->rank != 0) {
        wait_for(self, &savior, submit(self, self->rank == 1 ? "a" : "b"));
        return;
    }
    to_file(self);
    await_said(savior.wanted);
    reduce(self, "a");
    reduce(self, "b");
    to_stderr(self);
}

/* Rank 1 is in a direct call. */
static void in_a_barrier(rank_t *self)
{
    savior_t savior = { .wanted = "rank 0 waits for tensor 'late', which rank 1 has not submitted; "
                                  "rank 1 waits in a barrier (direct) for rank 0\n",
                        .name = self->rank == 1 ? "late" : NULL };

    reduce(self, "before");
    wait_for(self, &savior, self->rank == 0 ? submit(self, "late") : NULL);
    if (self->rank == 0)
        CHECK_OK(tutti_barrier(self->comm));
}

/* Each of ranks 0 and 1 waits for a message of the other. Rank 2 makes no call. */
static void messages(rank_t *self)
{
    savior_t savior = { .wanted = "rank 0 waits for tensor 'to 0', which rank 1 has not "
                                  "submitted; rank 1 waits for tensor 'to 1', which rank 0 has "
                                  "not submitted\n",
                        .name = self->rank == 0 ? "to 1" : "to 0",
                        .sends = 1 };
    float x[5] = { 0 };
    tutti_request_t *request;

    if (self->rank == 2) {
        to_file(self);
        CHECK_OK(tutti_barrier(self->comm));
        return;
    }
    CHECK_OK(tutti_recv_async(self->rank == 0 ? "to 0" : "to 1", x, 5, TUTTI_FLOAT32,
                              1 - self->rank, self->comm, NULL, &request));
    wait_for(self, &savior, request);
    CHECK_OK(tutti_barrier(self->comm));
}

/* The name of a message in a ring, which the next rank sends. The name is long, so rank 0's text is
   longer than a line of the log. */
static const char *ring_name(int to)
{
    static _Thread_local char name[100];

    snprintf(name, sizeof(name),
             "a message to rank %d of the ring whose name is so long that it is cut", to);
    return name;
}

static tutti_comm_t *ring_of(const rank_t *self)
{
    static tutti_comm_t *_Atomic groups[RING];

    if (groups[self->rank] == NULL) {
        tutti_comm_t *group;

        CHECK_OK(tutti_comm_split(self->comm, 0, self->rank, &group));
        groups[self->rank] = group;
    }
    return groups[self->rank];
}

static void *send_in_ring(void *arg)
{
    const rank_t *self = arg;
    int to = (self->rank + RING - 1) % RING;
    float x[5] = { 0 };
    tutti_request_t *request;

    await_said(" more ranks");
    CHECK_OK(
        tutti_send_async(ring_name(to), x, 5, TUTTI_FLOAT32, to, ring_of(self), NULL, &request));
    CHECK_OK(tutti_wait(request, -1));
    return NULL;
}

/* Eight ranks of a group. In a group the ranks' names in errors are long. */
static void ring(rank_t *self)
{
    tutti_comm_t *group = ring_of(self);
    float x[5] = { 0 };
    tutti_request_t *request;
    pthread_t thread;

    CHECK_OK(tutti_recv_async(ring_name(self->rank), x, 5, TUTTI_FLOAT32, (self->rank + 1) % RING,
                              group, NULL, &request));
    to_file(self);
    CHECK(pthread_create(&thread, NULL, send_in_ring, self) == 0);
    CHECK_OK(tutti_wait(request, -1));
    CHECK(pthread_join(thread, NULL) == 0);
    to_stderr(self);
    CHECK_OK(tutti_barrier(group));
    CHECK_OK(tutti_comm_free(group));
}

/* ---- no circles ---- */

static void check_silent(const rank_t *self)
{
    to_stderr(self);
    if (strstr(read_said(), words) != NULL)
        ranks_fail(__FILE__, __LINE__, "rank 0 said: %s", read_said());
}

static void pause_long(void)
{
    usleep(SILENT_MS * 1000);
}

/* Rank 1 does not wait: it is slow. The other ranks wait for different tensors. */
static void slow(rank_t *self)
{
    tutti_request_t *a, *b;

    to_file(self);
    if (self->rank == 1)
        pause_long();
    a = submit(self, "a");
    b = submit(self, "b");
    CHECK_OK(tutti_wait(self->rank == 2 ? b : a, -1));
    CHECK_OK(tutti_wait(self->rank == 2 ? a : b, -1));
    check_silent(self);
}

static void *submit_later(void *arg)
{
    const rank_t *self = arg;

    reduce(self, "before");
    to_file(self);
    atomic_store(&board->ready, 1);
    pause_long();
    reduce(self, "b");
    return NULL;
}

/* On rank 0 another thread submits tensor 'b' some time later. */
static void by_helper(rank_t *self)
{
    pthread_t helper;

    if (self->rank == 1) {
        reduce(self, "before");
        to_file(self);
        reduce(self, "b");
        reduce(self, "a");
        return;
    }
    CHECK(pthread_create(&helper, NULL, submit_later, self) == 0);
    while (!atomic_load(&board->ready))
        usleep(1000);
    reduce(self, "a");
    CHECK(pthread_join(helper, NULL) == 0);
    check_silent(self);
}

/* Rank 1's wait ends by its own timeout. */
static void with_timeout(rank_t *self)
{
    tutti_request_t *request;

    if (self->rank == 0) {
        to_file(self);
        reduce(self, "a");
        reduce(self, "b");
        check_silent(self);
        return;
    }
    request = submit(self, "b");
    to_file(self);
    CHECK_STATUS(tutti_wait(request, SILENT_MS), TUTTI_ERR_TIMEOUT);
    reduce(self, "a");
    CHECK_OK(tutti_wait(request, -1));
}

static tutti_request_t *from_callback;

static void call_back(void *arg, tutti_status_t status)
{
    CHECK_OK(status);
    pause_long();
    from_callback = submit(arg, "a");
}

/* Rank 1 waits for 'b'. A slow callback on rank 1 submits 'a'. This callback runs after rank 2,
   which is slow as well, has submitted 'c'. */
static void by_callback(rank_t *self)
{
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;
    tutti_request_t *a = NULL, *b = NULL, *c = NULL;

    options.callback = call_back;
    options.callback_arg = self;
    if (self->rank != 2)
        c = submit_with(self, "c", self->rank == 1 ? &options : NULL);
    if (self->rank != 1)
        a = submit(self, "a");
    if (self->rank != 0)
        b = submit(self, "b");
    to_file(self);
    if (self->rank == 2) {
        pause_long();
        c = submit(self, "c");
    }
    if (self->rank == 1) {
        CHECK_OK(tutti_wait(b, -1));
        CHECK_OK(tutti_wait(c, -1)); /* the callback has returned */
        a = from_callback;
    }
    CHECK_OK(tutti_wait(a, -1));
    if (self->rank == 0)
        b = submit(self, "b");
    if (self->rank != 1) {
        CHECK_OK(tutti_wait(b, -1));
        CHECK_OK(tutti_wait(c, -1));
    }
    check_silent(self);
}

int main(void)
{
    static const struct {
        rank_fn_t fn;
        int size;
        const char *hosts;
    } cases[] = {
        { two, 2, NULL },          { two, 2, "ab" },       { three, 3, NULL },
        { three, 3, "aab" },       { three, 3, "abc" },    { others, 3, "abb" },
        { in_a_barrier, 2, NULL }, { messages, 3, "abb" }, { slow, 3, NULL },
        { ring, RING, NULL },      { by_helper, 2, NULL }, { with_timeout, 2, NULL },
        { by_callback, 3, NULL },
    };
    job_t job = { .timeout_s = 120, .settings = settings, .threads = !ranks_can_fork() };
    int failures = 0;

    board_open();
    tutti__log_setup(TUTTI__LOG_WARN, -1);
    said = memfd_create("said", 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        job.fn = cases[i].fn;
        job.size = cases[i].size;
        job.hosts = cases[i].hosts;
        if (ftruncate(said, 0) != 0 || lseek(said, 0, SEEK_SET) != 0)
            return 1;
        board_clear();
        RUN_JOB(failures, &job);
    }
    return failures != 0;
}
