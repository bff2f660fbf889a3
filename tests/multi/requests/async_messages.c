/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asynchronous messages: they wait only for their peers, and a mismatch ends them only on their two
 * ranks.
 */
#include "multi/requests/async_calls.h"

#include <string.h>
#include <unistd.h>

static float in[64], out[64];

static int is_last(const rank_t *self)
{
    return self->rank == self->size - 1;
}

static tutti_request_t *send_to(rank_t *self, const char *name, size_t n, int to)
{
    tutti_request_t *r;

    CHECK_OK(tutti_send_async(name, in, n, TUTTI_FLOAT32, to, self->comm, NULL, &r));
    return r;
}

static tutti_request_t *recv_from(rank_t *self, const char *name, size_t n, int from)
{
    tutti_request_t *r;

    CHECK_OK(tutti_recv_async(name, out, n, TUTTI_FLOAT32, from, self->comm, NULL, &r));
    return r;
}

/* Only two ranks exchange messages; the others make no call of the library. */
static void undisturbed(rank_t *self)
{
    int a = self->size - 2, b = self->size - 1;

    for (int i = 0; i < 100 && self->rank >= a; i++) {
        char name[16];

        snprintf(name, sizeof(name), "m%d", i);
        in[0] = (float)i;
        if (self->rank == (i % 2 ? a : b)) {
            CHECK_OK(tutti_wait(send_to(self, name, 3, i % 2 ? b : a), -1));
        } else {
            CHECK_OK(tutti_wait(recv_from(self, name, 3, i % 2 ? a : b), -1));
            CHECK_INT(out[0], i);
        }
    }
    if (self->rank < a)
        usleep(300000);
    CHECK_OK(tutti_barrier(self->comm));
    still_works(self, "after messages");
}

/* More control messages than a ring holds are sent through ranks that do not read them. */
static void flood(rank_t *self)
{
    enum {
        MANY = 3000
    };
    int a = self->size - 2, b = self->size - 1;
    char name[200];

    for (int i = 0; i < MANY && self->rank >= a; i++) {
        snprintf(name, sizeof(name), "%0150d", i);
        if (self->rank == a)
            CHECK_OK(tutti_wait(send_to(self, name, 1, b), -1));
        else
            CHECK_OK(tutti_wait(recv_from(self, name, 1, a), -1));
    }
    if (self->rank < a)
        usleep(100000);
    still_works(self, "after the flood");
}

/* Counts and types of two ranks differ. At the same time the other ranks use the same name, without
   errors. */
static void message_misfits(rank_t *self)
{
    int a = 0, b = self->size - 1;
    tutti_request_t *r;

    for (int i = 0; i < 3; i++) {
        const char *name = i == 0 ? "short" : i == 1 ? "type" : "way";

        if (self->rank == a) {
            r = send_to(self, name, 5, b);
        } else if (self->rank != b) {
            continue;
        } else if (i == 0) {
            r = recv_from(self, name, 4, a);
        } else if (i == 1) {
            CHECK_OK(tutti_recv_async(name, out, 5, TUTTI_INT32, a, self->comm, NULL, &r));
        } else {
            r = send_to(self, name, 5, a);
        }
        CHECK_STATUS(tutti_wait(r, -1), TUTTI_ERR_MISMATCH);
        last_error_says(name, "rank 0 has a send of 5 elements", i == 2 ? "a send" : "a receive");
        if (self->rank == a)
            CHECK_OK(tutti_wait(send_to(self, name, 5, b), -1));
        else
            CHECK_OK(tutti_wait(recv_from(self, name, 5, a), -1));
    }
    CHECK_OK(tutti_barrier(self->comm));
}

/* One rank submits a message, and the others submit a collective of the same name. So all ranks
   have submitted this name, but the calls cannot match. */
static void message_and_collective(rank_t *self)
{
    float x = 1;
    tutti_request_t *r;

    for (int who = 0; who < self->size; who++) {
        if (self->rank == who)
            r = send_to(self, "mixed", 1, (who + 1) % self->size);
        else
            CHECK_OK(tutti_allreduce_async("mixed", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                           NULL, &r));
        CHECK_STATUS(tutti_wait(r, -1), TUTTI_ERR_MISMATCH);
        last_error_says("'mixed'", "a send", self->size > 1 ? "an allreduce" : NULL);
        still_works(self, "mixed");
    }
}

/* Two ranks first use the name for a message; the other ranks already submit the collective that
   follows. */
static void message_then_collective(rank_t *self)
{
    float x = 1;
    tutti_request_t *r;
    int a = self->size - 2, b = self->size - 1;

    for (int i = 0; i < 5; i++) {
        x = 1;
        if (self->rank == a) {
            usleep(3000);
            CHECK_OK(tutti_wait(send_to(self, "again", 1, b), -1));
        }
        if (self->rank == b)
            CHECK_OK(tutti_wait(recv_from(self, "again", 1, a), -1));
        CHECK_OK(tutti_allreduce_async("again", &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                       NULL, &r));
        CHECK_OK(tutti_wait(r, -1));
        CHECK_INT(x, self->size);
    }
}

/* A mismatch ends a whole ring. */
static void ring_misfit(rank_t *self)
{
    tutti_request_t *r;
    int next = (self->rank + 1) % self->size, before = (self->rank + self->size - 1) % self->size;

    CHECK_OK(tutti_sendrecv_async("ring", in, 2, next, out, is_last(self) ? 3 : 2, before,
                                  TUTTI_FLOAT32, self->comm, NULL, &r));
    CHECK_STATUS(tutti_wait(r, -1), TUTTI_ERR_MISMATCH);
    last_error_says("'ring'", "sendrecv", NULL);
    CHECK_OK(tutti_sendrecv_async("ring", in, 2, next, out, 2, before, TUTTI_FLOAT32, self->comm,
                                  NULL, &r));
    CHECK_OK(tutti_wait(r, -1));
}

static void everything(rank_t *self)
{
    undisturbed(self);
    flood(self);
    message_misfits(self);
    message_and_collective(self);
    message_then_collective(self);
    ring_misfit(self);
}

int main(void)
{
    static const int sizes[] = { 2, 3, 4, 7 };

    return run_on_hosts(everything, sizes, sizeof(sizes) / sizeof(sizes[0]));
}
