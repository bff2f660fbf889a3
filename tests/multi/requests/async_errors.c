/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asynchronous calls that differ between ranks. The ranks concerned get MISMATCH, with a text that
 * names the tensor and two ranks; no data are moved, and later calls work.
 */
#include "multi/requests/async_calls.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ROOM = 64
};

static int is_last(const rank_t *self)
{
    return self->rank == self->size - 1;
}

/* ---- collectives, one field after another ---- */

typedef struct {
    const char *name, *one, *other; /* must be in the text */
    tutti_call_t call, last;        /* call: of all ranks but the last; last: of the last rank */
} misfit_t;

static float in[ROOM * 16], out[ROOM * 16];
static size_t some[16], others[16], moved[16]; /* moved: the sum of some */

static tutti_call_t base(const char *name, tutti_call_kind_t kind)
{
    tutti_call_t call = TUTTI_CALL_INIT;

    call.kind = kind;
    call.name = name;
    call.dtype = TUTTI_FLOAT32;
    call.op = TUTTI_SUM;
    call.sendbuf = in;
    call.recvbuf = out;
    call.count = 8;
    return call;
}

static misfit_t misfit(int i, const rank_t *self)
{
    static const tutti_async_options_t scaled = { .size = sizeof(scaled), .prescale = 0.5 };
    static const tutti_async_options_t less = { .size = sizeof(less),
                                                .prescale = 0.5,
                                                .postscale = 0.25 };
    misfit_t m = { "kind", "an allreduce", "a broadcast", base("kind", TUTTI_CALL_ALLREDUCE),
                   base("kind", TUTTI_CALL_ALLREDUCE) };

    switch (i) {
    case 0:
        m.last.kind = TUTTI_CALL_BROADCAST;
        break;
    case 1:
        m = (misfit_t){ "type", "float32", "int32", base("type", TUTTI_CALL_REDUCE),
                        base("type", TUTTI_CALL_REDUCE) };
        m.last.dtype = TUTTI_INT32;
        break;
    case 2:
        m = (misfit_t){ "op", "sum", "max", base("op", TUTTI_CALL_REDUCE_SCATTER),
                        base("op", TUTTI_CALL_REDUCE_SCATTER) };
        m.last.op = TUTTI_MAX;
        break;
    case 3:
        m = (misfit_t){ "count", "8 elements", "7 elements", base("count", TUTTI_CALL_ALLTOALL),
                        base("count", TUTTI_CALL_ALLTOALL) };
        m.last.count = 7;
        break;
    case 4:
        m = (misfit_t){ "root", "root 0", "root 1", base("root", TUTTI_CALL_SCATTER),
                        base("root", TUTTI_CALL_SCATTER) };
        m.last.root = 1;
        break;
    case 5:
        m = (misfit_t){ "scale", "0.5 and 1", "0.5 and 0.25", base("scale", TUTTI_CALL_ALLREDUCE),
                        base("scale", TUTTI_CALL_ALLREDUCE) };
        m.call.options = &scaled;
        m.last.options = &less;
        break;
    case 6:
        m = (misfit_t){ "recvcounts", "recvcounts", "reduce_scatterv",
                        base("recvcounts", TUTTI_CALL_REDUCE_SCATTERV),
                        base("recvcounts", TUTTI_CALL_REDUCE_SCATTERV) };
        m.call.recvcounts = some;
        m.last.recvcounts = moved;
        break;
    case 7:
        m = (misfit_t){ "gatherv all", "recvcounts", "allgatherv",
                        base("gatherv all", TUTTI_CALL_ALLGATHERV),
                        base("gatherv all", TUTTI_CALL_ALLGATHERV) };
        m.call.recvcounts = some;
        m.call.count = some[self->rank];
        m.last.recvcounts = others;
        m.last.count = others[self->size - 1];
        break;
    case 8:
        m = (misfit_t){ "barrier", "a barrier", "a scan", base("barrier", TUTTI_CALL_SCAN),
                        base("barrier", TUTTI_CALL_BARRIER) };
        break;
    case 9: /* no rank can detect this from its own call */
        m = (misfit_t){ "gatherv", "has 3 elements for rank 0", "expects 2",
                        base("gatherv", TUTTI_CALL_GATHERV), base("gatherv", TUTTI_CALL_GATHERV) };
        m.call.recvcounts = some;
        m.call.count = some[self->rank];
        m.last.count = 3;
        break;
    case 10:
        m = (misfit_t){ "scatterv", "rank 0 has 2 elements for rank", "expects 5",
                        base("scatterv", TUTTI_CALL_SCATTERV),
                        base("scatterv", TUTTI_CALL_SCATTERV) };
        m.call.sendcounts = some;
        m.call.count = some[self->rank];
        m.last.count = 5;
        break;
    case 11:
        m = (misfit_t){ "alltoallv", "has 9 elements for rank 0", "expects 2",
                        base("alltoallv", TUTTI_CALL_ALLTOALLV),
                        base("alltoallv", TUTTI_CALL_ALLTOALLV) };
        m.call.sendcounts = m.call.recvcounts = some;
        m.last.sendcounts = others;
        m.last.recvcounts = some;
        break;
    case 12: /* one rank passes the counts, the other ranks ask for them */
        m = (misfit_t){ "told", "has 2 elements", "expects 9", base("told", TUTTI_CALL_ALLGATHERV),
                        base("told", TUTTI_CALL_ALLGATHERV) };
        m.call.recvbuf = NULL;
        m.call.count = some[self->rank];
        m.last.recvcounts = others;
        m.last.count = others[self->size - 1];
        break;
    case 13:
        m = (misfit_t){ "asked", "has 9 elements for rank 0", "expects 2",
                        base("asked", TUTTI_CALL_ALLTOALLV), base("asked", TUTTI_CALL_ALLTOALLV) };
        m.call.sendcounts = m.call.recvcounts = some;
        m.last.sendcounts = others;
        m.last.recvbuf = NULL;
        break;
    default:
        m.name = NULL;
        break;
    }
    return m;
}

static void collectives(rank_t *self)
{
    misfit_t m;

    for (int r = 0; r < 16; r++) {
        some[r] = 2;
        others[r] = r == 0 ? 9 : 2;
        moved[r] = r == 0 ? 3 : r == 1 ? 1 : 2;
    }
    for (int i = 0; (m = misfit(i, self)).name != NULL; i++) {
        tutti_request_t *r;

        for (int k = 0; k < ROOM * 16; k++) {
            in[k] = 1;
            out[k] = 7;
        }
        CHECK_OK(tutti_submit(is_last(self) ? &m.last : &m.call, 1, self->comm, &r));
        CHECK_STATUS(tutti_wait(r, -1), TUTTI_ERR_MISMATCH);
        last_error_says(m.name, m.one, m.other);
        last_error_says(m.name, "rank", NULL);
        for (int k = 0; k < ROOM * 16; k++)
            CHECK(in[k] == 1 && out[k] == 7);
        still_works(self, m.name);
    }
}

/* ---- groups ---- */

/* Submit these names, each a tensor of one element, as groups: "ab c" are two groups. */
static void submit_groups(rank_t *self, const char *groups, float *x, tutti_request_t **r)
{
    tutti_call_t calls[8];
    char names[8][2] = { { 0 } };
    size_t n = 0, from = 0;

    for (const char *at = groups;; at++) {
        if (*at == ' ' || *at == '\0') {
            CHECK_OK(tutti_submit(calls + from, n - from, self->comm, r + from));
            from = n;
            if (*at == '\0')
                return;
            continue;
        }
        names[n][0] = *at;
        calls[n] = base(names[n], TUTTI_CALL_ALLREDUCE);
        calls[n].sendbuf = calls[n].recvbuf = x + (*at - 'a');
        calls[n].count = 1;
        n++;
    }
}

static size_t length(const char *groups)
{
    size_t n = 0;

    for (; *groups; groups++)
        n += *groups != ' ';
    return n;
}

static void groupings(rank_t *self)
{
    /* The groups of all ranks but the last, the groups of the last rank, and a 1 for each tensor
       that is served. */
    static const struct {
        const char *all, *last;
        int served;
    } cases[] = { { "abc", "abc", 1 },    { "ab c", "a bc", 0 }, { "ab", "ba", 0 },
                  { "abc", "a b c", 0 },  { "a b c", "cab", 0 }, { "ab cd", "ab dc", -1 },
                  { "abc d", "abc d", 1 } };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *mine = is_last(self) ? cases[i].last : cases[i].all;
        float x[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
        tutti_request_t *r[8];
        int at = 0;

        submit_groups(self, mine, x, r);
        for (size_t k = 0; k < length(mine); k++, at++) {
            int served = cases[i].served > 0;

            while (mine[at] == ' ')
                at++;
            if (cases[i].served < 0)
                served = mine[at] < 'c';
            CHECK_STATUS(tutti_wait(r[k], -1), served ? TUTTI_OK : TUTTI_ERR_MISMATCH);
            CHECK_INT(x[mine[at] - 'a'], served ? self->size : 1);
            if (!served)
                last_error_says("tensor '", "group", NULL);
        }
        still_works(self, "a");
        still_works(self, "b");
    }
}

/* A mismatch of one tensor ends its whole group, which can be submitted again at once. */
static void group_misfit(rank_t *self)
{
    float x[3] = { 1, 1, 1 };
    tutti_request_t *r[3];
    tutti_call_t calls[3] = { base("g0", TUTTI_CALL_ALLREDUCE), base("g1", TUTTI_CALL_ALLREDUCE),
                              base("g2", TUTTI_CALL_ALLREDUCE) };

    for (int i = 0; i < 3; i++) {
        calls[i].sendbuf = calls[i].recvbuf = &x[i];
        calls[i].count = 1;
    }
    for (int round = 0; round < 3; round++) {
        calls[1].op = is_last(self) && round < 2 ? TUTTI_MIN : TUTTI_SUM;
        CHECK_OK(tutti_submit(calls, 3, self->comm, r));
        for (int i = 0; i < 3; i++)
            CHECK_STATUS(tutti_wait(r[i], -1), round < 2 ? TUTTI_ERR_MISMATCH : TUTTI_OK);
        if (round < 2)
            last_error_says("'g1'", "min", "sum");
        CHECK_INT(x[0], round < 2 ? 1 : self->size);
    }
}

/* If one call is invalid, its whole group is refused, only on this rank. */
static void group_refused(rank_t *self)
{
    float x[3] = { 1, 1, 1 };
    tutti_request_t *r[3] = { NULL, NULL, NULL }, *held = NULL;
    tutti_call_t calls[3] = { base("u", TUTTI_CALL_ALLREDUCE), base("v", TUTTI_CALL_ALLREDUCE),
                              base("u", TUTTI_CALL_ALLREDUCE) };

    for (int i = 0; i < 3; i++) {
        calls[i].sendbuf = calls[i].recvbuf = &x[i];
        calls[i].count = 1;
    }
    CHECK_STATUS(tutti_submit(calls, 3, self->comm, r), TUTTI_ERR_INVALID_ARGUMENT);
    calls[2].name = "w";
    calls[2].kind = (tutti_call_kind_t)77;
    CHECK_STATUS(tutti_submit(calls, 3, self->comm, r), TUTTI_ERR_INVALID_ARGUMENT);
    calls[2].kind = TUTTI_CALL_ALLREDUCE;
    if (self->rank == 0) {
        CHECK_OK(tutti_allreduce_async("w", &x[2], &x[2], 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                       NULL, &held));
        CHECK_STATUS(tutti_submit(calls, 3, self->comm, r), TUTTI_ERR_INVALID_ARGUMENT);
        CHECK(strstr(tutti_last_error(), "'w'") != NULL);
    } else {
        CHECK_OK(tutti_barrier(self->comm));
        CHECK_OK(tutti_allreduce_async("w", &x[2], &x[2], 1, TUTTI_FLOAT32, TUTTI_SUM, self->comm,
                                       NULL, &held));
    }
    CHECK(r[0] == NULL);
    if (self->rank == 0)
        CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_wait(held, -1));
    CHECK_OK(tutti_submit(calls, 3, self->comm, r));
    CHECK_OK(tutti_wait_all(r, 3, -1));
    CHECK_INT(x[0], self->size);
    CHECK_OK(tutti_submit(calls, 0, self->comm, NULL));
}

/* A group is not served before all ranks have submitted all of it. */
static void group_waits(rank_t *self)
{
    float x[2] = { 1, 1 };
    tutti_request_t *r[2];
    tutti_call_t calls[2] = { base("first", TUTTI_CALL_ALLREDUCE),
                              base("second", TUTTI_CALL_ALLREDUCE) };

    for (int i = 0; i < 2; i++) {
        calls[i].sendbuf = calls[i].recvbuf = &x[i];
        calls[i].count = 1;
    }
    if (is_last(self)) {
        CHECK_OK(tutti_barrier(self->comm));
        CHECK_OK(tutti_submit(calls, 2, self->comm, r));
    } else {
        CHECK_OK(tutti_submit(calls, 2, self->comm, r));
        CHECK_STATUS(tutti_wait(r[0], 30), TUTTI_ERR_TIMEOUT);
        CHECK_OK(tutti_barrier(self->comm));
    }
    CHECK_OK(tutti_wait_all(r, 2, -1));
    CHECK_INT(x[1], self->size);
}

/* ---- arguments ---- */

static void arguments(rank_t *self)
{
    tutti_request_t *r = NULL;
    tutti_async_options_t scaled = TUTTI_ASYNC_OPTIONS_INIT;
    size_t counts[16] = { 0 };
    char longest[257];

    memset(longest, 'n', 256);
    longest[256] = '\0';
    scaled.prescale = 2;
    CHECK_STATUS(tutti_barrier_async(longest, self->comm, NULL, &r), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_barrier_async("", self->comm, NULL, &r), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_barrier_async("b", self->comm, NULL, NULL), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_barrier_async("b", self->comm, &scaled, &r), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(
        tutti_allreduce_async("i", in, out, 1, TUTTI_INT32, TUTTI_SUM, self->comm, &scaled, &r),
        TUTTI_ERR_UNSUPPORTED);
    CHECK_STATUS(tutti_broadcast_async("r", in, 1, TUTTI_INT32, self->size, self->comm, NULL, &r),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_send_async("s", in, 1, TUTTI_INT32, self->rank, self->comm, NULL, &r),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(
        tutti_allgatherv_async("v", in, 0, out, NULL, NULL, TUTTI_INT32, self->comm, NULL, &r),
        TUTTI_ERR_INVALID_ARGUMENT);
    longest[255] = '\0';
    CHECK_OK(tutti_barrier_async(longest, self->comm, NULL, &r));
    CHECK_STATUS(tutti_request_recvcounts(r, -1, counts), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_request_receive(r, out, NULL), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_OK(tutti_wait(r, -1));
    CHECK_STATUS(tutti_wait_any(NULL, 0, -1, NULL), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_wait_all(NULL, 1, -1), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_OK(tutti_wait_all(NULL, 0, -1));
    /* First the rank gets the counts; then it passes the buffer, which must not be NULL. */
    counts[0] = 1;
    CHECK_OK(tutti_allgatherv_async("v", in, self->rank == 0, NULL, NULL, NULL, TUTTI_FLOAT32,
                                    self->comm, NULL, &r));
    CHECK_OK(tutti_request_recvcounts(r, -1, counts));
    CHECK_INT(counts[0], 1);
    CHECK_STATUS(tutti_request_receive(r, NULL, NULL), TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(tutti_wait(r, 0), TUTTI_ERR_TIMEOUT);
    CHECK_OK(tutti_request_receive(r, out, NULL));
    CHECK_OK(tutti_request_recvcounts(r, -1, counts));
    CHECK_OK(tutti_wait(r, -1));
}

/* A buffer that is passed later is checked like a direct call's buffer. After an error the request
   still needs a buffer. */
static void later_buffers(rank_t *self)
{
    static int x[64], y[64];
    size_t ones[16], bad[16], counts[16];
    tutti_request_t *r;
    int done = 0;

    for (int i = 0; i < 16; i++) {
        ones[i] = 1;
        bad[i] = 0;
        x[i] = 100 * self->rank + i;
    }
    CHECK_OK(tutti_alltoallv_async("later", x, ones, NULL, NULL, NULL, NULL, TUTTI_INT32,
                                   self->comm, NULL, &r));
    CHECK_OK(tutti_request_recvcounts(r, -1, counts));
    CHECK_STATUS(tutti_request_receive(r, NULL, NULL), TUTTI_ERR_INVALID_ARGUMENT);
    last_error_says("recvbuf is NULL", NULL, NULL);
    if (self->size > 1) {
        CHECK_STATUS(tutti_request_receive(r, x + 1, NULL), TUTTI_ERR_INVALID_ARGUMENT);
        last_error_says("sendbuf", "recvbuf", "overlap");
        CHECK_STATUS(tutti_request_receive(r, y, bad), TUTTI_ERR_INVALID_ARGUMENT);
        last_error_says("recvdispls", "overlap", NULL);
    }
    bad[0] = (size_t)1 << 60;
    CHECK_STATUS(tutti_request_receive(r, y, bad), TUTTI_ERR_INVALID_ARGUMENT);
    last_error_says("recvdispls[0]", "memory", NULL);
    CHECK_OK(tutti_request_receive(r, y, NULL));
    CHECK_STATUS(tutti_request_receive(r, y, NULL), TUTTI_ERR_INVALID_ARGUMENT);
    while (!done)
        CHECK_OK(tutti_test(r, &done));
    CHECK_STATUS(tutti_request_receive(r, y, NULL), TUTTI_ERR_INVALID_ARGUMENT);
    last_error_says("has its buffer already", NULL, NULL);
    CHECK_OK(tutti_wait(r, -1));
    for (int i = 0; i < self->size; i++)
        CHECK_INT(y[i], 100 * i + self->rank);
    /* In place like the direct call. */
    CHECK_OK(tutti_alltoallv_async("later", x, ones, NULL, NULL, NULL, NULL, TUTTI_INT32,
                                   self->comm, NULL, &r));
    CHECK_OK(tutti_request_recvcounts(r, -1, counts));
    CHECK_OK(tutti_request_receive(r, x, NULL));
    CHECK_OK(tutti_wait(r, -1));
    for (int i = 0; i < self->size; i++)
        CHECK_INT(x[i], 100 * i + self->rank);
}

static void everything(rank_t *self)
{
    arguments(self);
    later_buffers(self);
    if (self->size == 1)
        return;
    collectives(self);
    groupings(self);
    group_misfit(self);
    group_refused(self);
    group_waits(self);
    collectives(self);
}

int main(void)
{
    static const int sizes[] = { 1, 2, 3, 4, 7 };

    return run_on_hosts(everything, sizes, sizeof(sizes) / sizeof(sizes[0]));
}
