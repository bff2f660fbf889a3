/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests: a program with a stream on its pretend device, and calls in that stream. */
#ifndef TUTTI_TESTS_DEVICE_USER_H
#define TUTTI_TESTS_DEVICE_USER_H

#include "multi/device/device_job.h"

#include <tutti/cuda.h>

typedef struct {
    device_job_t job;
    tutti__dstream_t *stream;
    tutti__devent_t *end;
    char *in, *out; /* pinned */
} user_t;

/* bytes: of the device memory, and of `in`; out_bytes 0: no `out`. */
void user_begin(user_t *u, rank_t *self, size_t bytes, size_t out_bytes);
/* Waits for the work in the stream, and frees all. */
void user_end(user_t *u);
/* As user_end, for a communicator that has ended. */
void user_drop(user_t *u);

struct CUstream_st *user_stream(const user_t *u);
/* Is the work that is in the stream now done? */
tutti_status_t user_look(user_t *u);
void user_wait(user_t *u);

/* A callback: checks that the call has succeeded, and adds 1 to *arg, an atomic_int. */
void user_count(void *arg, tutti_status_t status);

#endif
