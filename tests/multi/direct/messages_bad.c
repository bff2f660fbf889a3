/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct messages that mismatch. Both ranks get MISMATCH and a text with both calls, no buffer is
 * touched, and the next call works; the other ranks are not affected. With TUTTI_COMPARE=0, or if
 * one of the two is in a collective call, the communicator ends on all ranks.
 */
#include "multi/direct/coll_case.h"

#include <string.h>

enum {
    MOST = 3000 /* elements: several pieces */
};

static void fill(int32_t *buf, size_t n, int32_t value)
{
    for (size_t i = 0; i < n; i++)
        buf[i] = value;
}

static void is_filled(const int32_t *buf, size_t n, int32_t value)
{
    for (size_t i = 0; i < n; i++)
        CHECK_INT(buf[i], value);
}

/* ---- two ranks ---- */

#define NONE SIZE_MAX

/* A rank's call: elements to the other rank, and elements from it. NONE: this rank does not send,
   or does not receive. */
typedef struct {
    size_t out, in;
    tutti_dtype_t dtype;
} part_t;

static tutti_status_t make_part(const rank_t *self, const part_t *part, int peer, int32_t *recv)
{
    int32_t send[MOST];

    fill(send, MOST, self->rank);
    if (part->in == NONE)
        return tutti_send(send, part->out, part->dtype, peer, self->comm);
    if (part->out == NONE)
        return tutti_recv(recv, part->in, part->dtype, peer, self->comm);
    return tutti_sendrecv(send, part->out, peer, recv, part->in, peer, part->dtype, self->comm);
}

/* Ranks 0 and 1; the others take no part. */
static void misfit(rank_t *self, part_t zero, part_t one, const char *words)
{
    int32_t recv[MOST], x = 7;

    fill(recv, MOST, -1);
    if (self->rank < 2) {
        CHECK_STATUS(make_part(self, self->rank == 0 ? &zero : &one, !self->rank, recv),
                     TUTTI_ERR_MISMATCH);
        CHECK_WORDS(words);
        CHECK_WORDS(self->inside->world_rank != NULL ? "in a group of " : "rank 0");
    }
    is_filled(recv, MOST, -1);
    /* The same two ranks can exchange a message at once. */
    if (self->rank == 0)
        CHECK_OK(tutti_send(&x, 1, TUTTI_INT32, 1, self->comm));
    if (self->rank == 1) {
        CHECK_OK(tutti_recv(recv, 1, TUTTI_INT32, 0, self->comm));
        CHECK_INT(recv[0], x);
    }
    case_works(self);
}

static void misfits(rank_t *self)
{
    const tutti_dtype_t f32 = TUTTI_FLOAT32, i32 = TUTTI_INT32;
    const size_t piece = CHUNK_BYTES / sizeof(float);

    misfit(self, (part_t){ 10, NONE, f32 }, (part_t){ NONE, 20, f32 },
           "rank 0 sends 10 elements of float32 to rank 1, which expects 20 of float32");
    misfit(self, (part_t){ NONE, 20, i32 }, (part_t){ 20, NONE, f32 },
           "rank 1 sends 20 elements of float32 to rank 0, which expects 20 of int32");
    /* The message is too long by one or more whole pieces. */
    misfit(self, (part_t){ 2 * piece, NONE, f32 }, (part_t){ NONE, piece, f32 },
           "rank 0 sends 2048 elements of float32 to rank 1, which expects 1024 of float32");
    misfit(self, (part_t){ 20, 30, f32 }, (part_t){ 29, 19, f32 },
           "rank 0 sends 20 elements of float32 to rank 1, which expects 19 of float32");
    misfit(self, (part_t){ MOST, MOST, f32 }, (part_t){ MOST, MOST, i32 },
           "rank 0 sends 3000 elements of float32 to rank 1, which expects 3000 of int32");
    /* An empty message is a message as well. */
    misfit(self, (part_t){ 0, NONE, f32 }, (part_t){ NONE, 5, f32 },
           "rank 0 sends 0 elements of float32 to rank 1, which expects 5 of float32");
    misfit(self, (part_t){ 5, NONE, f32 }, (part_t){ NONE, 0, f32 },
           "rank 0 sends 5 elements of float32 to rank 1, which expects 0 of float32");
    misfit(self, (part_t){ 0, NONE, f32 }, (part_t){ NONE, 0, i32 },
           "rank 0 sends 0 elements of float32 to rank 1, which expects 0 of int32");
    misfit(self, (part_t){ 0, 5, f32 }, (part_t){ 6, 0, f32 },
           "rank 1 sends 6 elements of float32 to rank 0, which expects 5 of float32");
}

/* One direction matches, so its data are moved; the other direction does not match. */
static void half(rank_t *self)
{
    int32_t send[MOST], recv[MOST];
    size_t mine = self->rank == 0 ? 20 : 30, its = 50 - mine;

    fill(send, MOST, self->rank);
    fill(recv, MOST, -1);
    if (self->rank < 2) {
        CHECK_STATUS(tutti_sendrecv(send, mine, !self->rank, recv, self->rank == 0 ? its : its - 1,
                                    !self->rank, TUTTI_INT32, self->comm),
                     TUTTI_ERR_MISMATCH);
        CHECK_WORDS("rank 0 sends 20 elements of int32 to rank 1, which expects 19 of int32");
    }
    if (self->rank == 0)
        is_filled(recv, its, 1);
    else
        is_filled(recv, MOST, -1);
    case_works(self);
}

/* ---- calls that match, which is not visible from one call alone ---- */

/* A sendrecv may match two calls of its peer, in either order. */
static void one_and_two(rank_t *self, int sends_first)
{
    int32_t send[MOST], recv[MOST];

    fill(send, MOST, self->rank);
    if (self->rank == 0) {
        CHECK_OK(tutti_sendrecv(send, MOST, 1, recv, MOST, 1, TUTTI_INT32, self->comm));
        is_filled(recv, MOST, 1);
    } else if (self->rank == 1) {
        if (sends_first)
            CHECK_OK(tutti_send(send, MOST, TUTTI_INT32, 0, self->comm));
        CHECK_OK(tutti_recv(recv, MOST, TUTTI_INT32, 0, self->comm));
        if (!sends_first)
            CHECK_OK(tutti_send(send, MOST, TUTTI_INT32, 0, self->comm));
        is_filled(recv, MOST, 0);
    }
}

/* Rank 0 sends to rank 1 only after rank 2 has sent to rank 1. Rank 2 does this only after it has
   sent to rank 0. */
static void chain(rank_t *self, size_t count)
{
    int32_t send[MOST], recv[MOST];

    fill(send, MOST, self->rank);
    if (self->rank == 0) {
        CHECK_OK(tutti_sendrecv(send, count, 1, recv, count, 2, TUTTI_INT32, self->comm));
        is_filled(recv, count, 2);
    } else if (self->rank == 2) {
        CHECK_OK(tutti_send(send, count, TUTTI_INT32, 0, self->comm));
        CHECK_OK(tutti_send(send, count, TUTTI_INT32, 1, self->comm));
    } else if (self->rank == 1) {
        CHECK_OK(tutti_recv(recv, count, TUTTI_INT32, 2, self->comm));
        is_filled(recv, count, 2);
        CHECK_OK(tutti_recv(recv, count, TUTTI_INT32, 0, self->comm));
        is_filled(recv, count, 0);
    }
}

/* Calls that match, also on a communicator that no message has used yet. */
static void fits(rank_t *self)
{
    if (self->size > 2) {
        chain(self, 1);
        chain(self, MOST);
    }
    one_and_two(self, 0);
    one_and_two(self, 1);
    case_works(self);
}

/* ---- a ring ---- */

/* Rank `odd` sends too few elements: this rank and its receiver get the error, and all other
   messages arrive. If odd < 0, each rank sends too few elements, so no message arrives. */
static void ring(rank_t *self, int odd, size_t count)
{
    int me = self->rank, size = self->size, next = (me + 1) % size, last = (me + size - 1) % size;
    int32_t send[MOST], recv[MOST];
    tutti_status_t status;

    fill(send, count, me);
    fill(recv, count, -1);
    status = tutti_sendrecv(send, me == odd || odd < 0 ? count - 1 : count, next, recv, count, last,
                            TUTTI_INT32, self->comm);
    CHECK_INT(status, me == odd || last == odd || odd < 0 ? TUTTI_ERR_MISMATCH : TUTTI_OK);
    is_filled(recv, count, last == odd || odd < 0 ? -1 : last);
    case_works(self);
}

static void all(rank_t *self)
{
    misfits(self);
    half(self);
    for (int odd = -1; odd < self->size && self->size > 2; odd++) {
        ring(self, odd, 1); /* an empty message where data are expected */
        ring(self, odd, 2);
        ring(self, odd, MOST);
    }
}

/* The error's text uses the ranks' numbers in the group. */
static void in_part(rank_t *self)
{
    rank_t member = *self;

    CHECK_OK(tutti_comm_split(self->comm, 0, -self->rank, &member.comm));
    member.rank = tutti_rank(member.comm);
    all(&member);
    CHECK_OK(tutti_comm_free(member.comm));
    case_works(self);
}

/* ---- mismatches that end the communicator ---- */

/* The receiver detects the mismatch, and the sender detects it in its next call. */
static void uncompared(rank_t *self, size_t count, tutti_dtype_t dtype)
{
    float a[20] = { 0 };

    if (self->rank == 0) {
        CHECK_OK(tutti_send(a, 20, TUTTI_FLOAT32, 1, self->comm));
        for (int i = 0; i < 1000 && tutti_barrier(self->comm) == TUTTI_OK; i++)
            ;
        case_is_dead(self, tutti_barrier(self->comm));
    } else {
        case_is_dead(self, tutti_recv(a, count, dtype, 0, self->comm));
        CHECK_WORDS("rank 0");
    }
}

static void uncompared_counts(rank_t *self)
{
    uncompared(self, 19, TUTTI_FLOAT32);
}

static void uncompared_types(rank_t *self)
{
    uncompared(self, 20, TUTTI_INT32);
}

/* On one host the two ranks wait until the timeout. Between hosts the two calls exchange different
   messages (frames and heads, see call/pairs.c), so the length of a message reveals the
   mismatch. */
static void and_collective(rank_t *self)
{
    float a[5] = { 0 };
    tutti_status_t status = self->rank == 0
                                ? tutti_allreduce(a, a, 5, TUTTI_FLOAT32, TUTTI_SUM, self->comm)
                                : tutti_send(a, 5, TUTTI_FLOAT32, 0, self->comm);

    CHECK(status == TUTTI_ERR_MISMATCH || status == TUTTI_ERR_TIMEOUT ||
          status == TUTTI_ERR_PEER_LOST);
    CHECK_STATUS(tutti_barrier(self->comm), status);
}

/* ---- settings ---- */

static void impatient(tutti__conf_t *conf, int rank)
{
    small_pieces(conf, rank);
    conf->shared.timeout_ms = 1000;
}

static int run(rank_fn_t fn, const char *hosts, void (*settings)(tutti__conf_t *, int))
{
    return run_job_with(fn, (int)strlen(hosts), hosts, !ranks_can_fork(), settings);
}

int main(void)
{
    static const char *const places[] = { "aa", "aaaa", "ab", "aab", "abc" };
    int failures = 0;

    for (size_t i = 0; i < COUNT_OF(places); i++) {
        failures += run(all, places[i], small_pieces);
        failures += run(all, places[i], small_one_piece);
        failures += run(fits, places[i], small_pieces);
        failures += run(fits, places[i], small_one_piece);
    }
    failures += run(in_part, "aab", small_pieces);
    failures += run(uncompared_counts, "aa", small_uncompared);
    failures += run(uncompared_types, "aa", small_uncompared);
    failures += run(and_collective, "aa", impatient);
    failures += run(and_collective, "ab", impatient);
    return failures != 0;
}
