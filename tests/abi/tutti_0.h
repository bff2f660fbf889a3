/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tutti's interface in version 0 of its structures, as far as version_0.c uses it. This file is
 * frozen: no number and no field in it may change, even if include/tutti/ changes.
 */
#ifndef TUTTI_TESTS_TUTTI_0_H
#define TUTTI_TESTS_TUTTI_0_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
    TUTTI_OK = 0,
    TUTTI_STATUS_FORCE_INT = 0x7fffffff
} tutti_status_t;
typedef enum {
    TUTTI_FLOAT32 = 11,
    TUTTI_DTYPE_FORCE_INT = 0x7fffffff
} tutti_dtype_t;
typedef enum {
    TUTTI_SUM = 1,
    TUTTI_OP_FORCE_INT = 0x7fffffff
} tutti_op_t;
typedef enum {
    TUTTI_CALL_ALLREDUCE = 1,
    TUTTI_CALL_BROADCAST = 3,
    TUTTI_CALL_FORCE_INT = 0x7fffffff
} tutti_call_kind_t;

typedef struct tutti_comm tutti_comm_t;
typedef struct tutti_request tutti_request_t;
typedef struct tutti_unique_id tutti_unique_id_t;

#define TUTTI_API_VERSION 0x000100

typedef struct {
    size_t size;
    void *context;
    const char *prefix;
    int (*set)(void *context, const char *key, const void *value, size_t bytes);
    int (*get)(void *context, const char *key, void *value, size_t room, size_t *ret_bytes,
               int timeout_ms);
} tutti_store_t;

typedef struct {
    size_t size;
    uint32_t api_version;
    uint32_t reserved;
    const void *mpi_comm;
    const tutti_unique_id_t *unique_id;
    const tutti_store_t *store;
    int rank, nranks;
} tutti_options_t;

#define TUTTI_OPTIONS_INIT                                                                         \
    {                                                                                              \
        sizeof(tutti_options_t), TUTTI_API_VERSION, 0, NULL, NULL, NULL, 0, 0                      \
    }

typedef void (*tutti_callback_t)(void *arg, tutti_status_t status);

typedef struct {
    size_t size;
    tutti_callback_t callback;
    void *callback_arg;
    double prescale, postscale;
} tutti_async_options_t;

#define TUTTI_ASYNC_OPTIONS_INIT                                                                   \
    {                                                                                              \
        sizeof(tutti_async_options_t), NULL, NULL, 0, 0                                            \
    }

typedef struct {
    size_t size;
    tutti_call_kind_t kind;
    tutti_dtype_t dtype;
    tutti_op_t op;
    int root;
    int source;
    const char *name;
    const void *sendbuf;
    void *recvbuf;
    size_t count;
    size_t recvcount;
    const size_t *sendcounts, *senddispls;
    const size_t *recvcounts, *recvdispls;
    const tutti_async_options_t *options;
} tutti_call_t;

#define TUTTI_CALL_INIT                                                                            \
    {                                                                                              \
        sizeof(tutti_call_t), (tutti_call_kind_t)0, (tutti_dtype_t)0, (tutti_op_t)0, 0, 0, NULL,   \
            NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL                                         \
    }

_Static_assert(sizeof(tutti_store_t) == 40, "frozen");
_Static_assert(sizeof(tutti_options_t) == 48, "frozen");
_Static_assert(sizeof(tutti_async_options_t) == 40, "frozen");
_Static_assert(sizeof(tutti_call_t) == 112, "frozen");

tutti_status_t tutti_init(const tutti_options_t *options);
tutti_status_t tutti_finalize(void);
tutti_comm_t *tutti_world(void);
const char *tutti_last_error(void);
tutti_status_t tutti_allreduce_async(const char *name, const void *sendbuf, void *recvbuf,
                                     size_t count, tutti_dtype_t dtype, tutti_op_t op,
                                     tutti_comm_t *comm, const tutti_async_options_t *options,
                                     tutti_request_t **ret_request);
tutti_status_t tutti_submit(const tutti_call_t *calls, size_t ncalls, tutti_comm_t *comm,
                            tutti_request_t **ret_request);
tutti_status_t tutti_persistent_create(const tutti_call_t *call, tutti_comm_t *comm,
                                       tutti_request_t **ret_request);
tutti_status_t tutti_start(tutti_request_t *request);
tutti_status_t tutti_request_free(tutti_request_t *request);
tutti_status_t tutti_wait(tutti_request_t *request, int timeout_ms);
tutti_status_t tutti_wait_all(tutti_request_t **requests, size_t nrequests, int timeout_ms);

#endif
