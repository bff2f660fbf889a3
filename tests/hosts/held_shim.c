/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI that reports short messages as complete before they have left, as Open MPI over UCX over
 * TCP does if the socket is full. This library is preloaded before a real MPI. Every HOLD_EVERY-th
 * short message of the transport is only copied, on each rank another one, at most MOST_HOLDS. It
 * leaves at this rank's first call of MPI after HOLD_NS.
 * With TUTTI_TEST_FUNNELED only the main thread may call MPI.
 */
#include "base/time.h"

#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)

#define HOLD_EVERY 5
#define MOST_HOLDS 2 /* of a rank, so the last message of a test is not held */
#define HOLD_NS 20000000
#define MOST_BYTES 1024

/* Messages that were copied, in order. */
typedef struct held {
    struct held *next;
    MPI_Request request; /* MPI_REQUEST_NULL: it has not left */
    MPI_Comm comm;
    uint64_t since_ns;
    int count, to, tag;
    char bytes[MOST_BYTES];
} held_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects all following variables */
static held_t *held;
static unsigned messages, holds;

/* Send the messages that are due; with `all`, each message. Forget those that are complete. */
static void let_go(int all)
{
    uint64_t now = tutti__now_ns();
    held_t **at = &held, *h;
    int done;

    pthread_mutex_lock(&lock);
    for (h = held; h != NULL && (all || now - h->since_ns > HOLD_NS); h = h->next)
        if (h->request == MPI_REQUEST_NULL && MPI_Isend(h->bytes, h->count, MPI_BYTE, h->to, h->tag,
                                                        h->comm, &h->request) != MPI_SUCCESS)
            abort();
    while ((h = *at) != NULL) {
        done = 0;
        if (h->request != MPI_REQUEST_NULL && MPI_Test(&h->request, &done, MPI_STATUS_IGNORE))
            abort();
        if (done) {
            *at = h->next;
            free(h);
        } else {
            at = &h->next;
        }
    }
    pthread_mutex_unlock(&lock);
}

int PMPI_Isend(const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request *request)
{
    held_t *h = NULL;
    int rank;

    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    let_go(1); /* MPI keeps the order of messages */
    pthread_mutex_lock(&lock);
    if (count <= MOST_BYTES && holds < MOST_HOLDS && ++messages % HOLD_EVERY == (unsigned)rank)
        h = malloc(sizeof(*h));
    if (h != NULL) {
        *h = (held_t){ .next = held,
                       .request = MPI_REQUEST_NULL,
                       .comm = comm,
                       .since_ns = tutti__now_ns(),
                       .count = count,
                       .to = to,
                       .tag = tag };
        memcpy(h->bytes, buf, (size_t)count);
        held = h;
        holds++;
    }
    pthread_mutex_unlock(&lock);
    if (h == NULL)
        return MPI_Isend(buf, count, type, to, tag, comm, request);
    *request = MPI_REQUEST_NULL; /* complete */
    return MPI_SUCCESS;
}

int PMPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    let_go(0);
    return MPI_Test(request, flag, status);
}

int PMPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status)
{
    let_go(0);
    return MPI_Iprobe(source, tag, comm, flag, status);
}

int PMPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    if (getenv("TUTTI_TEST_FUNNELED") != NULL)
        required = MPI_THREAD_FUNNELED;
    return MPI_Init_thread(argc, argv, required, provided);
}

int PMPI_Comm_free(MPI_Comm *comm)
{
    let_go(1);
    return MPI_Comm_free(comm);
}

int PMPI_Finalize(void)
{
    printf("held %u messages\n", holds);
    fflush(stdout);
    return MPI_Finalize();
}
