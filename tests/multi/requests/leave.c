/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that leave while others have pending requests: no call hangs, no request is lost, and
 * errors have the right text.
 */
#include "ranks.h"

#include "agree/tensors.h"
#include "base/time.h"
#include "engine/steps.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 3, FLOOD = 2500 };

/* ---- submitted by several threads while the goodbye arrives ---- */

static void *submit_for_a_while(void *arg)
{
    rank_t *self = arg;
    uint64_t end = tutti__now_ns() + 500000000u;
    char name[64];
    float x = 1;

    snprintf(name, sizeof(name), "thread %lx", (unsigned long)pthread_self());
    while (tutti__now_ns() < end) {
        tutti_request_t *r;
        tutti_status_t status = tutti_allreduce_async(name, &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM,
                                                      self->comm, NULL, &r);

        if (status == TUTTI_OK)
            status = tutti_wait(r, -1);
        CHECK_INT(status, TUTTI_ERR_SHUTDOWN);
    }
    return NULL;
}

static void while_submitting(rank_t *self)
{
    pthread_t threads[THREADS];

    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == self->size - 1)
        return;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, submit_for_a_while, self);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* ---- the rank that a direct call needs has left, and its leader before it ---- */

static void leaders_first(rank_t *self)
{
    float x = 1;

    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 2)
        return;
    if (self->rank == 3) {
        usleep(100000);
        return;
    }
    CHECK_STATUS(tutti_broadcast(&x, 1, TUTTI_FLOAT32, 3, self->comm), TUTTI_ERR_SHUTDOWN);
    CHECK_WORDS("tutti_finalize");
}

/* ---- rank 0 has left: calls without it continue, all others get the error ---- */

static void root_first(rank_t *self)
{
    uint64_t begin = tutti__now_ns();
    int last = self->size - 1;
    tutti_request_t *request;
    float x = (float)self->rank, y = -1;

    /* Rank 0's part is done when it has sent its data, so rank 0 may leave first. */
    CHECK_OK(tutti_broadcast(&y, 1, TUTTI_FLOAT32, 0, self->comm));
    if (self->rank == 0)
        return;
    usleep(self->rank == 1 || self->rank == last ? 50000 : 150000);
    if (self->rank == 1)
        CHECK_OK(tutti_send(&x, 1, TUTTI_FLOAT32, last, self->comm));
    if (self->rank == last) {
        CHECK_OK(tutti_recv(&y, 1, TUTTI_FLOAT32, 1, self->comm));
        CHECK_INT(y, 1);
    }
    CHECK_STATUS(tutti_allreduce(&x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm),
                 TUTTI_ERR_SHUTDOWN);
    CHECK(strstr(tutti_last_error(), "rank 0 has called tutti_finalize") != NULL);
    CHECK_STATUS(
        tutti_allreduce_async("x", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL, &request),
        TUTTI_ERR_SHUTDOWN);
    CHECK(tutti__now_ns() - begin < 50000000000u);
}

/* ---- more messages than a ring holds, then the goodbye ---- */

static void flood(rank_t *self)
{
    tutti_request_t **r = calloc(FLOOD, sizeof(*r));
    char name[200];

    for (int i = 0; i < FLOOD; i++) {
        snprintf(name, sizeof(name), "%0190d", i);
        CHECK_OK(tutti_allreduce_async(name, NULL, NULL, 0, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                       NULL, &r[i]));
    }
    for (int i = 0; i < FLOOD; i++)
        CHECK_OK(tutti_wait(r[i], -1));
    free(r);
}

/* ---- a goodbye in the middle of a bucket ---- */

/* Send the first of several messages of a bucket to all neighbours. */
static void send_part(const rank_t *self)
{
    tutti__engine_t *e = self->inside->engine;
    TUTTI__ALIGNED(8) char body[sizeof(tutti__bucket_msg_t) + 1];
    const tutti__bucket_msg_t msg = { .name_bytes = 1 };

    memcpy(body, &msg, sizeof(msg));
    body[sizeof(msg)] = 'a';
    tutti__token_await(&e->token);
    for (uint32_t i = 0; i < tutti__links_count(e->env.watch); i++)
        tutti__links_send(e->env.watch, i, TUTTI__MSG_BUCKET, body, sizeof(body), 1);
    tutti__token_leave(&e->token);
}

static void within_bucket(rank_t *self)
{
    tutti_request_t *r[2];
    float x[2] = { 1, 1 };

    for (int i = 0; i < 2 && self->rank > 0; i++)
        CHECK_OK(tutti_allreduce_async(i == 0 ? "a" : "b", &x[i], &x[i], 1, TUTTI_FLOAT32,
                                       TUTTI_SUM, self->comm, NULL, &r[i]));
    tutti__engine_settle(self->inside->engine); /* rank 0 agrees only on announced tensors */
    CHECK_OK(tutti_barrier(self->comm));
    if (self->rank == 0) {
        send_part(self);
        return;
    }
    for (int i = 0; i < 2; i++)
        CHECK_STATUS(tutti_wait(r[i], 10000), TUTTI_ERR_SHUTDOWN);
}

/* ---- two threads, each of which waits for the other thread's request ---- */

static void crossed(rank_t *self)
{
    for (int i = 0; i < 200; i++) {
        tutti_request_t *r;
        float x = 1;

        CHECK_OK(tutti_allreduce_async("x", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL,
                                       &r));
        /* On all ranks but rank 1, only the second thread makes progress at this moment. */
        if (self->rank != 1)
            CHECK_OK(tutti_barrier(self->comm));
        CHECK_OK(tutti_wait(r, -1));
        if (self->rank == 1)
            CHECK_OK(tutti_barrier(self->comm));
        CHECK_INT(x, self->size);
    }
}

/* ---- a single poll ---- */

static void look_once(rank_t *self)
{
    tutti_request_t *r;
    float x = 1;

    if (self->rank != 0) {
        CHECK_OK(tutti_barrier(self->comm));
        CHECK_OK(tutti_allreduce_async("x", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL,
                                       &r));
        CHECK_OK(tutti_wait(r, -1));
        return;
    }
    CHECK_OK(tutti_allreduce_async("x", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL,
                                   &r));
    CHECK_STATUS(tutti_wait(r, 0), TUTTI_ERR_TIMEOUT);
    CHECK_OK(tutti_barrier(self->comm));
    while (tutti_wait(r, 0) == TUTTI_ERR_TIMEOUT)
        usleep(100);
    CHECK_INT(x, self->size);
}

/* ---- a world ends while its callback uses a group ---- */

typedef struct {
    tutti_comm_t *group;
    const tutti__comm_t *inside, *world;
    atomic_int in_callback;
} user_t;

/* A callback that uses the group until a call is refused, and then reads its objects for a while.
   Objects that an earlier call may still use must exist until the callback returns. */
static void use_group(void *arg, tutti_status_t status)
{
    user_t *user = arg;
    tutti_request_t *r;
    float x = 0;

    (void)status;
    atomic_store(&user->in_callback, 1);
    do {
        if (tutti_allreduce_async("inner", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, user->group, NULL,
                                  &r) == TUTTI_OK)
            (void)tutti_wait(r, -1);
    } while (tutti_size(user->group) >= 0);
    for (int i = 0; i < 50; i++) {
        usleep(1000);
        CHECK(user->inside->topo->size == 1 && user->inside->world == user->world);
    }
}

static void group_in_callback(rank_t *self)
{
    static user_t user;
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;
    static tutti_request_t *r;
    static float x = 1;

    options.callback = use_group;
    options.callback_arg = &user;
    CHECK_OK(tutti_comm_split(self->comm, self->rank, 0, &user.group));
    user.inside = ranks_inside(user.group);
    user.world = self->inside;
    if (self->rank != 0)
        CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_allreduce_async("outer", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                   self->rank == 0 ? &options : NULL, &r));
    if (self->rank != 0) {
        CHECK_OK(tutti_wait(r, -1));
        return;
    }
    CHECK_OK(tutti_barrier(self->comm));
    while (!atomic_load(&user.in_callback))
        usleep(100);
}

int main(void)
{
    static const char *const many_hosts[] = { "aaaaa", "aabbc", "abcde", "ababa" };
    static const char *const algorithms[] = { NULL, "allreduce:ring",
                                              "allreduce:recursive_doubling" };
    job_t two = { .size = 2, .fn = while_submitting }, three = two, hosts = two;
    int failures = 0;

    three.size = 3;
    hosts.size = 4;
    hosts.hosts = "aabb";
    if (!ranks_can_fork())
        return 77;
    RUN_JOB(failures, &two);
    RUN_JOB(failures, &three);
    RUN_JOB(failures, &hosts);
    hosts.fn = leaders_first;
    RUN_JOB(failures, &hosts);
    three.fn = within_bucket;
    RUN_JOB(failures, &three);
    hosts.fn = within_bucket;
    RUN_JOB(failures, &hosts);
    for (size_t h = 0; h < sizeof(many_hosts) / sizeof(many_hosts[0]); h++) {
        for (size_t a = 0; a < sizeof(algorithms) / sizeof(algorithms[0]); a++) {
            job_t five = { .size = 5, .fn = root_first };

            five.hosts = many_hosts[h];
            five.algorithm = algorithms[a];
            RUN_JOB(failures, &five);
        }
    }
    three.fn = flood;
    RUN_JOB(failures, &three);
    three.fn = crossed;
    RUN_JOB(failures, &three);
    two.fn = crossed;
    RUN_JOB(failures, &two);
    two.fn = group_in_callback;
    RUN_JOB(failures, &two);
    two.fn = look_once;
    RUN_JOB(failures, &two);
    hosts.fn = look_once;
    RUN_JOB(failures, &hosts);
    return failures != 0;
}
