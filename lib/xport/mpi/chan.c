/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One end of a channel over MPI.
 *
 * A sender passes the block of the caller's buffer to MPI_Isend. At most one message is in flight,
 * because the executor completes a SEND before it starts the channel's next SEND (exec/sends.c).
 *
 * A receiver owns `credits` staging slots. The receiver posts receives into these slots in order,
 * but only for messages that the current call still expects. An extra receive would take the first
 * message of the next call on this lane.
 *
 *      slots   | 0 | 1 | 2 | 3 |       expected: messages not posted yet
 *                    ^head              posted = 2: slots 1 and 2; view() returns slot 1
 *
 * A message never exceeds a slot: all ranks have slots of one size (rank 0's setting), and the
 * sender refuses longer messages. A truncation would be detected too late: Open MPI 4.1.4 writes a
 * message of 4 KiB or more past the end of a shorter receive (seen over shared memory and TCP).
 *
 * A GPU-direct end (xport.h) works in the same way on device memory. Only MPI accesses this memory.
 * MPI may then use the device at the same time as NCCL: see the hazard in call/device_gpu_direct.c.
 *
 * One thread at a time uses an end. The lock is still needed, because MPI is called under it, and
 * because the application may finalize MPI at any time.
 */
#include "xport/mpi/mpi_module.h"

#include <stdlib.h>

tutti_status_t tutti__mpi_chan_open(tutti__mpi_xport_t *xport, const tutti__chan_key_t *key,
                                    int receives, tutti__chan_t **ret_chan)
{
    tutti__chan_t *chan = calloc(1, sizeof(*chan));
    int is_gpu_direct = key->slot_bytes > 0;
    size_t bytes = TUTTI__ROUND_UP(xport->slot_bytes, (size_t)TUTTI__LINE_BYTES) * xport->credits;

    if (chan == NULL)
        goto no_memory;
    chan->xport = xport;
    chan->key = *key;
    chan->receives = receives;
    chan->sending = MPI_REQUEST_NULL;
    chan->slot_bytes = is_gpu_direct ? key->slot_bytes : xport->slot_bytes;
    if (receives && !is_gpu_direct) {
        chan->slots = aligned_alloc(TUTTI__LINE_BYTES, bytes);
        chan->posted_request = malloc(xport->credits * sizeof(MPI_Request));
        if (chan->slots == NULL || chan->posted_request == NULL)
            goto no_memory;
        chan->credits = chan->capacity = xport->credits;
    }
    *ret_chan = chan;
    return TUTTI_OK;

no_memory:
    tutti__mpi_chan_free(chan);
    return tutti__mpi_fail(TUTTI_ERR_NO_MEMORY, "mpi: no memory for a channel of %zu bytes", bytes);
}

void tutti__mpi_chan_free(tutti__chan_t *chan)
{
    if (chan == NULL)
        return;
    free(chan->posted_request);
    if (chan->key.slot_bytes == 0)
        free(chan->slots);
    free(chan);
}

tutti_status_t tutti__mpi_chan_lend(tutti__chan_t *chan, const tutti__chan_key_t *key)
{
    MPI_Request *requests;

    /* If the end has posted receives, or an error for its next use, do not change its slots. */
    if (chan->posted > 0 || chan->status != TUTTI_OK)
        return TUTTI_OK;
    if (key->slot_bytes != chan->slot_bytes || key->credits == 0)
        return tutti__mpi_fail(TUTTI_ERR_INTERNAL,
                               "mpi: %u slots of %zu bytes for peer %u, not %zu", key->credits,
                               key->slot_bytes, key->peer, chan->slot_bytes);
    if (chan->capacity < key->credits) {
        requests = realloc(chan->posted_request, key->credits * sizeof(*requests));
        if (requests == NULL)
            return tutti__mpi_fail(TUTTI_ERR_NO_MEMORY, "mpi: no memory for a channel");
        chan->posted_request = requests;
        chan->capacity = key->credits;
    }
    chan->slots = (unsigned char *)key->slots;
    chan->credits = key->credits;
    chan->head = 0;
    return TUTTI_OK;
}

static unsigned char *slot(const tutti__chan_t *chan, uint32_t index)
{
    size_t stride = TUTTI__ROUND_UP(chan->slot_bytes, (size_t)TUTTI__LINE_BYTES);

    return chan->slots + stride * index;
}

/* Take the lock, at the beginning of a channel's function. After an error the lock is not taken. */
static tutti_status_t enter(tutti__chan_t *chan)
{
    if (TUTTI__UNLIKELY(chan->status != TUTTI_OK))
        return tutti__mpi_fail(chan->status, "mpi: the channel with peer %u has failed before",
                               chan->key.peer);
    return tutti__mpi_enter(chan->xport->meet->rank);
}

/* Release the lock, then make the error text for MPI's `code`. */
static tutti_status_t leave(tutti__chan_t *chan, int code, const char *what)
{
    tutti__mpi_leave();
    if (TUTTI__LIKELY(code == MPI_SUCCESS))
        return TUTTI_OK;
    chan->status = tutti__mpi_fail_code(code, "%s with peer %u", what, chan->key.peer);
    return chan->status;
}

static tutti_status_t again(const tutti__chan_t *chan, tutti__hint_t *hint)
{
    *hint = (tutti__hint_t){ .peer = (int32_t)chan->key.peer };
    return TUTTI__AGAIN;
}

/* Test whether the message in flight is sent. *ret_done 1: no message is in flight any more. */
static int test_send(tutti__chan_t *chan, int *ret_done)
{
    *ret_done = 1;
    if (chan->sending == MPI_REQUEST_NULL)
        return MPI_SUCCESS;
    return PMPI_Test(&chan->sending, ret_done, MPI_STATUS_IGNORE);
}

tutti_status_t tutti__mpi_chan_send(tutti__chan_t *chan, const void *data, size_t bytes,
                                    uint32_t signature, int *ret_pending, tutti__hint_t *hint)
{
    tutti__mpi_meet_t *meet = chan->xport->meet;
    tutti_status_t status;
    int sent = 0;
    int done = 0;
    int code;

    (void)signature; /* MPI messages have no signature: see xport.c */
    if (TUTTI__UNLIKELY(bytes > chan->slot_bytes))
        return tutti__mpi_fail(TUTTI_ERR_INTERNAL, "mpi: a message of %zu bytes, slots have %zu",
                               bytes, chan->slot_bytes);
    status = enter(chan);
    if (status != TUTTI_OK)
        return status;
    code = test_send(chan, &done);
    if (code == MPI_SUCCESS && done) {
        code = PMPI_Isend(data, (int)bytes, MPI_BYTE, chan->mpi_rank, chan->tag, meet->comm,
                          &chan->sending);
        sent = code == MPI_SUCCESS;
        if (sent)
            code = test_send(chan, &done);
    }
    status = leave(chan, code, "sending");
    if (status != TUTTI_OK)
        return status;
    if (!sent)
        return again(chan, hint);
    *ret_pending = !done;
    return TUTTI_OK;
}

tutti_status_t tutti__mpi_chan_flush(tutti__chan_t *chan, tutti__hint_t *hint)
{
    tutti_status_t status = enter(chan);
    int done = 0;
    int code;

    if (status != TUTTI_OK)
        return status;
    code = test_send(chan, &done);
    status = leave(chan, code, "sending");
    if (status != TUTTI_OK)
        return status;
    return done ? TUTTI_OK : again(chan, hint);
}

/* Post receives, as many as there are free slots and expected messages. Under the lock. */
static int post(tutti__chan_t *chan)
{
    MPI_Comm comm = chan->xport->meet->comm;

    while (chan->expected > 0 && chan->posted < chan->credits) {
        uint32_t index = (chan->head + chan->posted) % chan->credits;
        int code = PMPI_Irecv(slot(chan, index), (int)chan->slot_bytes, MPI_BYTE, chan->mpi_rank,
                              chan->tag, comm, &chan->posted_request[index]);

        if (code != MPI_SUCCESS)
            return code;
        chan->posted++;
        chan->expected--;
    }
    return MPI_SUCCESS;
}

tutti_status_t tutti__mpi_chan_expect(tutti__chan_t *chan, size_t messages)
{
    tutti_status_t status = enter(chan);

    if (status != TUTTI_OK)
        return status;
    chan->expected += messages;
    return leave(chan, post(chan), "posting a receive");
}

static tutti_status_t wrong_length(tutti__chan_t *chan, size_t bytes, const char *came_with,
                                   size_t came)
{
    chan->status = TUTTI_ERR_MISMATCH;
    if (bytes == TUTTI__ANY_BYTES)
        return tutti__mpi_fail(TUTTI_ERR_MISMATCH,
                               "mpi: peer %u sent %s%zu bytes: the ranks made different calls",
                               chan->key.peer, came_with, came);
    return tutti__mpi_fail(TUTTI_ERR_MISMATCH,
                           "mpi: peer %u sent %s%zu bytes where this rank expects %zu: the ranks "
                           "made different calls",
                           chan->key.peer, came_with, came, bytes);
}

/* Test whether the head slot's message has arrived. Under the lock. */
static int test_head(tutti__chan_t *chan)
{
    MPI_Status about;
    int count = 0;
    int code;

    code = PMPI_Test(&chan->posted_request[chan->head], &chan->arrived, &about);
    if (code == MPI_SUCCESS && chan->arrived)
        code = PMPI_Get_count(&about, MPI_BYTE, &count);
    chan->arrived_bytes = (size_t)count;
    return code;
}

static int is_truncation(int code)
{
    int error_class = MPI_SUCCESS;

    if (code != MPI_SUCCESS)
        PMPI_Error_class(code, &error_class);
    return error_class == MPI_ERR_TRUNCATE;
}

tutti_status_t tutti__mpi_chan_view(tutti__chan_t *chan, size_t bytes, uint32_t signature,
                                    const void **ret_data, tutti__hint_t *hint)
{
    tutti_status_t status = enter(chan);
    int code = MPI_SUCCESS;

    (void)signature;
    if (status != TUTTI_OK)
        return status;
    if (TUTTI__UNLIKELY(chan->posted == 0)) {
        tutti__mpi_leave();
        return tutti__mpi_fail(TUTTI_ERR_INTERNAL, "mpi: nothing is expected from peer %u",
                               chan->key.peer);
    }
    if (!chan->arrived)
        code = test_head(chan);
    if (TUTTI__UNLIKELY(is_truncation(code))) {
        tutti__mpi_leave();
        return wrong_length(chan, bytes, "more than ", chan->slot_bytes);
    }
    status = leave(chan, code, "receiving");
    if (status != TUTTI_OK)
        return status;
    if (!chan->arrived)
        return again(chan, hint);
    if (TUTTI__UNLIKELY(chan->arrived_bytes != bytes && bytes != TUTTI__ANY_BYTES))
        return wrong_length(chan, bytes, "", chan->arrived_bytes);
    *ret_data = slot(chan, chan->head);
    return TUTTI_OK;
}

size_t tutti__mpi_chan_length(const tutti__chan_t *chan)
{
    return chan->arrived_bytes;
}

/* If posting a receive fails, the channel ends, and the next function on it returns the error. */
void tutti__mpi_chan_release(tutti__chan_t *chan)
{
    if (enter(chan) != TUTTI_OK)
        return;
    chan->arrived = 0;
    chan->head = (chan->head + 1) % chan->credits;
    chan->posted--;
    leave(chan, post(chan), "posting a receive");
}

void tutti__mpi_chan_cancel(tutti__chan_t *chan)
{
    int may_call = tutti__mpi_may_call(0);

    chan->expected = 0;
    for (uint32_t i = 0; i < chan->posted && may_call; i++) {
        uint32_t index = (chan->head + i) % chan->credits;

        if (chan->posted_request[index] != MPI_REQUEST_NULL)
            PMPI_Cancel(&chan->posted_request[index]);
    }
}

/* Returns the number of requests in flight. MPI sets a failed request to MPI_REQUEST_NULL, so it is
   not counted. The thread that closes a communicator may be one that must not call MPI. Such a
   thread cannot test requests, so it counts all of them. */
uint32_t tutti__mpi_chan_pending(tutti__chan_t *chan)
{
    int done, may_call = tutti__mpi_may_call(0);
    uint32_t pending = 0;

    if (may_call)
        test_send(chan, &done);
    pending += chan->sending != MPI_REQUEST_NULL;
    for (uint32_t i = 0; i < chan->posted; i++) {
        uint32_t index = (chan->head + i) % chan->credits;

        if (chan->posted_request[index] == MPI_REQUEST_NULL)
            continue;
        if (may_call)
            PMPI_Test(&chan->posted_request[index], &done, MPI_STATUS_IGNORE);
        pending += chan->posted_request[index] != MPI_REQUEST_NULL;
    }
    if (pending == 0)
        chan->posted = 0;
    return pending;
}

/* Drop a request. If this thread must not call MPI, MPI's memory of the request stays allocated. */
static void forget(MPI_Request *request)
{
    if (tutti__mpi_may_call(0))
        PMPI_Request_free(request);
    *request = MPI_REQUEST_NULL;
}

void tutti__mpi_chan_abandon(tutti__chan_t *chan)
{
    int sending = chan->sending != MPI_REQUEST_NULL, receiving = 0;

    if (sending)
        forget(&chan->sending);
    for (uint32_t i = 0; i < chan->posted; i++) {
        uint32_t index = (chan->head + i) % chan->credits;

        if (chan->posted_request[index] == MPI_REQUEST_NULL)
            continue;
        forget(&chan->posted_request[index]);
        receiving = 1;
    }
    chan->posted = 0;
    chan->xport->keeps |= sending | (receiving && chan->key.slot_bytes > 0);
    if (!receiving)
        return;
    /* Do not free the slots: a message may still arrive there. */
    if (chan->key.slot_bytes == 0)
        tutti__mpi_keep(chan->slots);
    chan->slots = NULL;
}
