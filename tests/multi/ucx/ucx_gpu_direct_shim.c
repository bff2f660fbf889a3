/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A UCX that accepts the pretend device's memory, on a machine with RDMA. This library is preloaded
 * before a real UCX, and wraps its calls. The pretend device replaces a memory type of UCX, except
 * on the rank that TUTTI_TEST_REFUSES names. With TUTTI_TEST_NO_RDMA the machine has no RDMA.
 *
 * Messages from and to device memory go through bounce buffers, and are counted. The memory type
 * of each message must be right, because UCX would not detect it.
 *
 * With TUTTI_TEST_NO_CANCEL a receive into device memory cannot be cancelled, as if its message
 * were arriving. If receives are still in flight at the end, data are written into them when the
 * program requests this. If the memory has been freed, this write ends the program.
 */
#include "pretend/opened.h"

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#pragma GCC visibility push(default)

/* One message in flight. */
typedef struct bounce {
    struct bounce *next, **link;
    ucp_worker_h worker; /* receives only */
    void *device;        /* receives only */
    size_t room;
    const void *request;
    ucp_request_param_t param; /* of the caller */
    char bytes[];
} bounce_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects all following variables */
static bounce_t *bounces;
static unsigned sent, received;
static opened_pretend_t pretend;

/* UCX's own table. The pretend device replaces a memory type that no default of UCX's settings
   names. */
#define PRETEND UCS_MEMORY_TYPE_ROCM_MANAGED
extern const char *ucs_memory_type_names[];
const char *ucs_memory_type_names[] = {
    [UCS_MEMORY_TYPE_HOST] = "host",
    [UCS_MEMORY_TYPE_CUDA] = "cuda",
    [UCS_MEMORY_TYPE_CUDA_MANAGED] = "cuda-managed",
    [UCS_MEMORY_TYPE_ROCM] = "rocm",
    [PRETEND] = "pretend",
    [PRETEND + 1 ... UCS_MEMORY_TYPE_LAST] = "unknown",
    [UCS_MEMORY_TYPE_LAST + 1] = NULL,
};

void gpu_direct_counts(unsigned *ret_sent, unsigned *ret_received);
unsigned gpu_direct_receiving(void);
unsigned gpu_direct_write_abandoned(void);

void gpu_direct_counts(unsigned *ret_sent, unsigned *ret_received)
{
    pthread_mutex_lock(&lock);
    *ret_sent = sent;
    *ret_received = received;
    pthread_mutex_unlock(&lock);
}

/* Receives into device memory that are in flight. */
unsigned gpu_direct_receiving(void)
{
    unsigned n = 0;

    pthread_mutex_lock(&lock);
    for (bounce_t *b = bounces; b != NULL; b = b->next)
        n += b->device != NULL;
    pthread_mutex_unlock(&lock);
    return n;
}

unsigned gpu_direct_write_abandoned(void)
{
    unsigned n = 0;

    pthread_mutex_lock(&lock);
    for (bounce_t *b = bounces; b != NULL; b = b->next) {
        if (b->device == NULL)
            continue;
        pretend.write(b->device, b->bytes, b->room);
        n++;
    }
    pthread_mutex_unlock(&lock);
    return n;
}

/* ---- what is wrapped ---- */

/* The module's UCX is not in the global scope, so RTLD_NEXT does not find it. */
static void *find_real(const char *name)
{
    void *ucp = dlopen("libucp.so.0", RTLD_NOW | RTLD_NOLOAD), *found = NULL;

    if (ucp != NULL)
        found = dlsym(ucp, name);
    if (found == NULL)
        abort();
    return found;
}

#define REAL(function) ((__typeof__(function) *)find_real(#function))

/* Is this device memory? The memory type in the parameters must be correct in both cases. */
static int is_device(const void *ptr, const ucp_request_param_t *param)
{
    ucs_memory_type_t type = UCS_MEMORY_TYPE_UNKNOWN;
    int is;

    pthread_mutex_lock(&lock);
    opened_pretend_find(&pretend);
    is = pretend.ops->where(ptr).kind == TUTTI__MEM_DEVICE;
    pthread_mutex_unlock(&lock);
    if (param->op_attr_mask & UCP_OP_ATTR_FIELD_MEMORY_TYPE)
        type = param->memory_type;
    if (type != (is ? PRETEND : UCS_MEMORY_TYPE_HOST) ||
        (is && (param->op_attr_mask & UCP_OP_ATTR_FIELD_MEMH))) {
        fprintf(stderr, "%s memory is passed as type %d, mask 0x%x\n", is ? "device" : "host",
                (int)type, param->op_attr_mask);
        abort();
    }
    return is;
}

/* ---- bounce buffers ---- */

static bounce_t *make(size_t room, const ucp_request_param_t *param)
{
    bounce_t *b = calloc(1, sizeof(*b) + room);

    if (b == NULL)
        abort();
    b->room = room;
    b->param = *param;
    pthread_mutex_lock(&lock);
    b->next = bounces;
    b->link = &bounces;
    if (bounces != NULL)
        bounces->link = &b->next;
    bounces = b;
    pthread_mutex_unlock(&lock);
    return b;
}

/* Under the lock. */
static void drop(bounce_t *b)
{
    *b->link = b->next;
    if (b->next != NULL)
        b->next->link = b->link;
    free(b);
}

static void end(bounce_t *b)
{
    pthread_mutex_lock(&lock);
    drop(b);
    pthread_mutex_unlock(&lock);
}

static void on_sent(void *request, ucs_status_t status, void *arg)
{
    bounce_t *b = arg;

    b->param.cb.send(request, status, b->param.user_data);
    end(b);
}

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                        void *arg)
{
    bounce_t *b = arg;

    if (status == UCS_OK) {
        pretend.write(b->device, b->bytes, info->length);
        pthread_mutex_lock(&lock);
        received++;
        pthread_mutex_unlock(&lock);
    }
    b->param.cb.recv(request, status, info, b->param.user_data);
    end(b);
}

/* ---- UCX ---- */

ucs_status_t ucp_context_query(ucp_context_h context, ucp_context_attr_t *attr)
{
    const char *refuses = getenv("TUTTI_TEST_REFUSES");
    ucs_status_t status = REAL(ucp_context_query)(context, attr);

    if (status == UCS_OK && (attr->field_mask & UCP_ATTR_FIELD_MEMORY_TYPES) &&
        (refuses == NULL || strcmp(refuses, getenv("RANK")) != 0))
        attr->memory_types |= UCS_BIT(PRETEND);
    return status;
}

/* UCX may report a message from a device as complete while its own buffers have a part of it. */
ucs_status_ptr_t ucp_tag_send_nbx(ucp_ep_h ep, const void *buffer, size_t count, ucp_tag_t tag,
                                  const ucp_request_param_t *param)
{
    if (is_device(buffer, param)) {
        fprintf(stderr, "device memory is not sent synchronously\n");
        abort();
    }
    return REAL(ucp_tag_send_nbx)(ep, buffer, count, tag, param);
}

ucs_status_ptr_t ucp_tag_send_sync_nbx(ucp_ep_h ep, const void *buffer, size_t count, ucp_tag_t tag,
                                       const ucp_request_param_t *param)
{
    ucp_request_param_t other = *param;
    ucs_status_ptr_t request;
    bounce_t *b;

    if (!is_device(buffer, param))
        return REAL(ucp_tag_send_sync_nbx)(ep, buffer, count, tag, param);
    b = make(count, param);
    pretend.read(b->bytes, buffer, count);
    pthread_mutex_lock(&lock);
    sent++;
    pthread_mutex_unlock(&lock);
    other.memory_type = UCS_MEMORY_TYPE_HOST;
    other.cb.send = on_sent;
    other.user_data = b;
    request = REAL(ucp_tag_send_sync_nbx)(ep, b->bytes, count, tag, &other);
    if (!UCS_PTR_IS_PTR(request))
        end(b);
    return request;
}

/* The module's receives never complete immediately: the callback always reports their
   completion. */
ucs_status_ptr_t ucp_tag_recv_nbx(ucp_worker_h worker, void *buffer, size_t count, ucp_tag_t tag,
                                  ucp_tag_t tag_mask, const ucp_request_param_t *param)
{
    ucp_request_param_t other = *param;
    bounce_t *b;

    if (!is_device(buffer, param))
        return REAL(ucp_tag_recv_nbx)(worker, buffer, count, tag, tag_mask, param);
    b = make(count, param);
    b->worker = worker;
    b->device = buffer;
    b->request = param->request;
    other.memory_type = UCS_MEMORY_TYPE_HOST;
    other.cb.recv = on_received;
    other.user_data = b;
    return REAL(ucp_tag_recv_nbx)(worker, b->bytes, count, tag, tag_mask, &other);
}

void ucp_request_cancel(ucp_worker_h worker, void *request)
{
    int is_bounce = 0;

    pthread_mutex_lock(&lock);
    for (bounce_t *b = bounces; b != NULL; b = b->next)
        is_bounce |= b->request == request;
    pthread_mutex_unlock(&lock);
    if (!is_bounce || getenv("TUTTI_TEST_NO_CANCEL") == NULL)
        REAL(ucp_request_cancel)(worker, request);
}

/* A destroyed worker does not write to its receives, so drop them. */
void ucp_worker_destroy(ucp_worker_h worker)
{
    bounce_t *b, *next;

    REAL(ucp_worker_destroy)(worker);
    pthread_mutex_lock(&lock);
    for (b = bounces; b != NULL; b = next) {
        next = b->next;
        if (b->worker == worker)
            drop(b);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- the machine ---- */

DIR *opendir(const char *name)
{
    DIR *(*real)(const char *) = (DIR * (*)(const char *)) dlsym(RTLD_NEXT, "opendir");
    int has_rdma = getenv("TUTTI_TEST_NO_RDMA") == NULL;

    return real(has_rdma && strcmp(name, "/sys/class/infiniband") == 0 ? "/proc/self" : name);
}

#pragma GCC visibility pop
