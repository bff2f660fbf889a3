/* SPDX-License-Identifier: BSD-3-Clause */
/* Jobs whose ranks have separate pretend devices: rank r has device r. */
#ifndef TUTTI_TESTS_DEVICE_JOB_H
#define TUTTI_TESTS_DEVICE_JOB_H

#include "pretend/pretend.h"
#include "ranks.h"

#include "base/status.h"

typedef struct {
    rank_t *self;
    const tutti__device_ops_t *ops;
    char *memory; /* zeroed device memory */
} device_job_t;

/* The functions of a device that are called during calls: X(name, parameters, arguments). Some
   tests wrap each of these functions in a function of their own. */
#define DEVICE_FUNCTIONS(X)                                                                        \
    X(use, (int device), (device))                                                                 \
    X(record, (tutti__devent_t * event, tutti__dstream_t * stream), (event, stream))               \
    X(wait, (tutti__dstream_t * stream, tutti__devent_t * event), (stream, event))                 \
    X(query, (tutti__devent_t * event), (event))                                                   \
    X(copy, (void *dst, const void *src, size_t bytes, tutti__dstream_t *stream),                  \
      (dst, src, bytes, stream))                                                                   \
    X(pack,                                                                                        \
      (const tutti__piece_t *pieces, size_t npieces, tutti_dtype_t from, tutti_dtype_t to,         \
       double scale, tutti__dstream_t *stream),                                                    \
      (pieces, npieces, from, to, scale, stream))                                                  \
    X(sum,                                                                                         \
      (void *dst, const void *const *srcs, size_t nsrcs, size_t count, tutti_dtype_t dtype,        \
       uint32_t divisor, tutti__dstream_t *stream),                                                \
      (dst, srcs, nsrcs, count, dtype, divisor, stream))                                           \
    X(nccl_poll, (tutti__nccl_t * nccl), (nccl))                                                   \
    X(nccl_call,                                                                                   \
      (tutti__nccl_t * nccl, const tutti__nccl_call_t *list, size_t ncalls,                        \
       tutti__dstream_t *stream),                                                                  \
      (nccl, list, ncalls, stream))

/* A job's settings: the pretend device, and little memory for it. */
void device_settings(tutti__conf_t *conf, int rank);
/* device_quiet: the same settings without log; the second function also turns off the comparison of
   calls. */
void device_quiet(tutti__conf_t *conf, int rank);
void device_uncompared(tutti__conf_t *conf, int rank);

/* Run a job; it also fails if an object of the device is left. */
int device_run(rank_fn_t fn, int size, const char *hosts, int threads);
int device_run_job(job_t *job);

/* A rank's memory; the calling thread uses its device. */
void device_begin(device_job_t *job, rank_t *self, size_t bytes);
void device_end(device_job_t *job);

/* If `forbidden` is set, no object may be made or freed on any device until a call with `forbidden`
   0. Collective. */
void device_forbid_alloc(rank_t *self, int forbidden);

#endif
