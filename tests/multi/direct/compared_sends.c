/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The number of messages between hosts that the comparison of direct calls costs. The comparison is
 * an allreduce of a frame by the leaders of the hosts. A small call's data are in this frame, so
 * the call has only the messages of the frame. Before a larger call the leaders exchange an empty
 * frame; then they exchange the messages that the call has with TUTTI_COMPARE=0.
 *
 * The hosts are pretended. The transport between them is that of shared memory, whose messages this
 * test counts.
 */
#include "multi/direct/coll_case.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
    KINDS = 5,
    SIZES = 5,
    LAST = SIZES - 1,
    FAR = 64
};

static const tutti_call_kind_t kinds[KINDS] = { TUTTI_CALL_ALLREDUCE, TUTTI_CALL_REDUCE_SCATTER,
                                                TUTTI_CALL_ALLGATHER, TUTTI_CALL_ALLTOALL,
                                                TUTTI_CALL_BARRIER };
/* Bytes of the larger buffer. */
static const size_t sizes[SIZES] = { 48, 3072, 24576, 196608, 3145728 };

/* The messages of all ranks: [0] without and [1] with the comparison. */
static atomic_uint (*sent)[2][KINDS][SIZES];

static tutti__xport_ops_t shm;
static const tutti__topo_t *topo;
static tutti__chan_t *far[FAR]; /* ends of channels to other hosts */
static unsigned nfar;
static atomic_uint messages; /* the number that this rank has sent to other hosts */

static int is_far(const tutti__chan_t *chan)
{
    unsigned i = 0;

    while (i < nfar && far[i] != chan)
        i++;
    return i < nfar;
}

static tutti_status_t open_send(tutti__xport_t *xport, const tutti__chan_key_t *key,
                                tutti__chan_t **ret_chan)
{
    tutti_status_t status = shm.open_send(xport, key, ret_chan);

    if (status == TUTTI_OK && topo->host_of[key->peer] != topo->host_of[topo->rank] &&
        !is_far(*ret_chan)) {
        CHECK(nfar < FAR);
        far[nfar++] = *ret_chan;
    }
    return status;
}

static tutti_status_t count_send(tutti__chan_t *chan, const void *data, size_t bytes,
                                 uint32_t signature, int *ret_pending, tutti__hint_t *hint)
{
    tutti_status_t status = shm.send(chan, data, bytes, signature, ret_pending, hint);

    if (status == TUTTI_OK && is_far(chan))
        atomic_fetch_add(&messages, 1);
    return status;
}

static void make_call(const rank_t *self, tutti_call_kind_t kind, size_t bytes, void *from,
                      void *to)
{
    case_t c = { .kind = kind, .dtype = TUTTI_FLOAT32, .op = TUTTI_SUM };
    size_t parts = kind == TUTTI_CALL_ALLREDUCE ? 1 : (size_t)self->size;

    c.count = bytes / sizeof(float) / parts;
    CHECK_OK(kind == TUTTI_CALL_BARRIER ? tutti_barrier(self->comm)
                                        : case_call(&c, from, to, self->comm));
}

static void count_all(rank_t *self)
{
    const int *compares = self->arg;
    tutti__xport_ops_t ops = *self->inside->shm->ops;
    void *from = calloc(1, sizes[LAST]), *to = calloc(1, sizes[LAST]);

    CHECK(from != NULL && to != NULL);
    shm = ops;
    topo = self->inside->topo;
    ops.open_send = open_send;
    ops.send = count_send;
    self->inside->shm->ops = &ops;
    for (int k = 0; k < KINDS; k++) {
        for (int s = 0; s < SIZES; s++) {
            atomic_store(&messages, 0);
            make_call(self, kinds[k], sizes[s], from, to);
            atomic_fetch_add(&(*sent)[*compares][k][s], atomic_load(&messages));
        }
    }
    self->inside->shm->ops = &shm;
    free(from);
    free(to);
}

static void not_compared(tutti__conf_t *conf, int rank)
{
    (void)rank;
    conf->shared.compare = 0;
}

/* frame: the messages of an empty frame. Returns the number of failures. */
static int judge(const char *hosts, unsigned frame)
{
    int failures = 0;

    for (int k = 0; k < KINDS; k++) {
        for (int s = 0; s < SIZES; s++) {
            unsigned without = (*sent)[0][k][s], with = (*sent)[1][k][s];
            int is_small = s == 0 || kinds[k] == TUTTI_CALL_BARRIER,
                is_large = !is_small && s == LAST;

            if ((with == frame && !is_large) || (with == frame + without && !is_small))
                continue;
            fprintf(stderr,
                    "hosts %s, call %d of %zu bytes: %u messages with the comparison, %u without "
                    "it, %u of a frame\n",
                    hosts, (int)kinds[k], sizes[s], with, without, frame);
            failures++;
        }
    }
    return failures;
}

int main(void)
{
    /* Each host except the first sends a frame and receives a frame. */
    static const struct {
        const char *hosts;
        unsigned frame;
    } places[] = { { "ab", 2 }, { "aabb", 2 }, { "abab", 2 }, { "aaabbb", 2 }, { "abc", 4 } };
    int failures = 0;

    if (!ranks_can_fork())
        return 77;
    sent = mmap(NULL, sizeof(*sent), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (sent == MAP_FAILED)
        return 1;
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        memset(sent, 0, sizeof(*sent));
        for (int compares = 0; compares < 2; compares++) {
            job_t job = { .size = (int)strlen(places[i].hosts),
                          .hosts = places[i].hosts,
                          .fn = count_all,
                          .settings = compares ? NULL : not_compared,
                          .arg = &compares };

            RUN_JOB(failures, &job);
        }
        failures += judge(places[i].hosts, places[i].frame);
    }
    return failures != 0;
}
