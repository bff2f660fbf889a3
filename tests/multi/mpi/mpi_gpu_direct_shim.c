/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI that accepts the pretend device's memory. This library is preloaded before a real MPI, and
 * wraps its calls. Messages from and to device memory go through bounce buffers, and are counted.
 * The query for support of the pretend device returns 1, except on the rank that TUTTI_TEST_REFUSES
 * names.
 *
 * With TUTTI_TEST_NO_CANCEL a receive into device memory cannot be cancelled, as if its message
 * were arriving. Data are written into abandoned receives when the program requests this. If the
 * memory has been freed, this write ends the program.
 *
 * With TUTTI_TEST_WAITS it is an MPI that waits for all work on the device before each message of
 * device memory, and at each test of such a message. A real MPI may do this if it copies with the
 * device. The shim counts the waits that included NCCL's work. Some messages then leave LATE_NS
 * late, in a later call, as in an MPI without its own thread.
 */
#include "pretend/opened.h"

#include "base/time.h"

#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>

#pragma GCC visibility push(default)

#define LATE_NS 3000000

/* One message in flight. */
typedef struct bounce {
    struct bounce *next;
    MPI_Request request; /* a send's is persistent. MPI_REQUEST_NULL: abandoned */
    uint64_t starts_ns;  /* when to start the send; 0: it has started */
    const void *buf;     /* on the device */
    void *device;        /* receives: buf; sends: NULL */
    size_t room;
    char bytes[];
} bounce_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects all following variables */
static bounce_t *bounces;
static unsigned sent, received, waits;
static opened_pretend_t pretend;

int MPIX_Query_pretend_support(void);
void gpu_direct_counts(unsigned *ret_sent, unsigned *ret_received);
unsigned gpu_direct_receiving(void);
unsigned gpu_direct_write_abandoned(void);
unsigned gpu_direct_waits(void);

int MPIX_Query_pretend_support(void)
{
    const char *refuses = getenv("TUTTI_TEST_REFUSES");
    int rank;

    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return refuses == NULL || atoi(refuses) != rank;
}

void gpu_direct_counts(unsigned *ret_sent, unsigned *ret_received)
{
    pthread_mutex_lock(&lock);
    *ret_sent = sent;
    *ret_received = received;
    pthread_mutex_unlock(&lock);
}

/* The number of waits that included NCCL's work. */
unsigned gpu_direct_waits(void)
{
    unsigned n;

    pthread_mutex_lock(&lock);
    n = waits;
    pthread_mutex_unlock(&lock);
    return n;
}

/* Receives into device memory that are in flight. */
unsigned gpu_direct_receiving(void)
{
    unsigned n = 0;

    pthread_mutex_lock(&lock);
    for (bounce_t *b = bounces; b != NULL; b = b->next)
        n += b->request != MPI_REQUEST_NULL && b->device != NULL;
    pthread_mutex_unlock(&lock);
    return n;
}

unsigned gpu_direct_write_abandoned(void)
{
    unsigned n = 0;

    pthread_mutex_lock(&lock);
    for (bounce_t *b = bounces; b != NULL; b = b->next) {
        if (b->request != MPI_REQUEST_NULL || b->device == NULL)
            continue;
        pretend.write(b->device, b->bytes, b->room);
        n++;
    }
    pthread_mutex_unlock(&lock);
    return n;
}

static int is_device(const void *ptr)
{
    int is;

    pthread_mutex_lock(&lock);
    opened_pretend_find(&pretend);
    is = pretend.ops->where(ptr).kind == TUTTI__MEM_DEVICE;
    pthread_mutex_unlock(&lock);
    return is;
}

static int does_wait(void)
{
    return getenv("TUTTI_TEST_WAITS") != NULL;
}

static void wait_for_device(const void *ptr)
{
    int had_nccl;

    if (!does_wait())
        return;
    had_nccl = pretend.synchronize(pretend.ops->where(ptr).device);
    pthread_mutex_lock(&lock);
    waits += had_nccl != 0;
    pthread_mutex_unlock(&lock);
}

static bounce_t *make(const void *buf, void *device, size_t room)
{
    bounce_t *b = malloc(sizeof(*b) + room);

    if (b == NULL)
        abort();
    wait_for_device(buf);
    b->buf = buf;
    b->device = device;
    b->room = room;
    b->starts_ns = 0;
    return b;
}

static int keep(bounce_t *b, int code, const MPI_Request *request)
{
    if (code != MPI_SUCCESS)
        abort();
    pthread_mutex_lock(&lock);
    b->request = *request;
    b->next = bounces;
    bounces = b;
    pthread_mutex_unlock(&lock);
    return code;
}

/* Returns NULL if the request is not a message of device memory. take: remove it from the list. */
static bounce_t *find(MPI_Request request, int take)
{
    bounce_t **at = &bounces, *b;

    pthread_mutex_lock(&lock);
    while (*at != NULL && ((*at)->request != request || request == MPI_REQUEST_NULL))
        at = &(*at)->next;
    b = *at;
    if (b != NULL && take)
        *at = b->next;
    pthread_mutex_unlock(&lock);
    return b;
}

/* Start the sends that are due. */
static void start_sends(void)
{
    uint64_t now = tutti__now_ns();

    pthread_mutex_lock(&lock);
    for (bounce_t *b = bounces; b != NULL; b = b->next) {
        if (b->request == MPI_REQUEST_NULL || b->starts_ns == 0 || b->starts_ns > now)
            continue;
        if (MPI_Start(&b->request) != MPI_SUCCESS)
            abort();
        b->starts_ns = 0;
    }
    pthread_mutex_unlock(&lock);
}

/*
 * With three ranks on each of two hosts, one leader first gets the messages of the odd lanes, and
 * the other leader first gets the messages of the even lanes. The same holds for the second and the
 * third ranks. So when a leader is ready to launch its first operation, not all ranks of its host
 * have reached this operation.
 */
static int is_late(int tag)
{
    int rank, lane = tag / 8 % 8; /* as xport/mpi/xport.c makes the tag */

    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return (lane + (rank % 3 == 0 ? rank / 3 : rank % 3)) % 2 == 0;
}

int PMPI_Isend(const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request *request)
{
    bounce_t *b;
    int code;

    if (!is_device(buf))
        return MPI_Isend(buf, count, type, to, tag, comm, request);
    b = make(buf, NULL, (size_t)count); /* the type is MPI_BYTE */
    pretend.read(b->bytes, buf, (size_t)count);
    sent++;
    b->starts_ns = tutti__now_ns();
    if (does_wait() && is_late(tag) && rand() % 2)
        b->starts_ns += LATE_NS;
    code = keep(b, MPI_Send_init(b->bytes, count, type, to, tag, comm, request), request);
    start_sends();
    return code;
}

int PMPI_Irecv(void *buf, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
               MPI_Request *request)
{
    bounce_t *b;

    if (!is_device(buf))
        return MPI_Irecv(buf, count, type, from, tag, comm, request);
    b = make(buf, buf, (size_t)count);
    return keep(b, MPI_Irecv(b->bytes, count, type, from, tag, comm, request), request);
}

int PMPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    bounce_t *b = find(*request, 0);
    MPI_Status about;
    int code, bytes, cancelled;

    if (b != NULL)
        wait_for_device(b->buf);
    start_sends();
    if (b == NULL)
        return MPI_Test(request, flag, status);
    *flag = 0;
    code = b->starts_ns == 0 ? MPI_Test(request, flag, &about) : MPI_SUCCESS;
    if (code != MPI_SUCCESS || !*flag)
        return code;
    find(b->request, 1);
    if (*request != MPI_REQUEST_NULL) /* the request is persistent */
        MPI_Request_free(request);
    MPI_Test_cancelled(&about, &cancelled);
    if (b->device != NULL && !cancelled) {
        MPI_Get_count(&about, MPI_BYTE, &bytes);
        pretend.write(b->device, b->bytes, (size_t)bytes);
        received++;
    }
    free(b);
    if (status != MPI_STATUS_IGNORE)
        *status = about;
    return code;
}

int PMPI_Cancel(MPI_Request *request)
{
    const bounce_t *b = find(*request, 0);

    if (b != NULL && b->device != NULL && getenv("TUTTI_TEST_NO_CANCEL") != NULL)
        return MPI_SUCCESS;
    return MPI_Cancel(request);
}

int PMPI_Request_free(MPI_Request *request)
{
    bounce_t *b = find(*request, 0);

    if (b != NULL)
        b->request = MPI_REQUEST_NULL;
    return MPI_Request_free(request);
}

#pragma GCC visibility pop
