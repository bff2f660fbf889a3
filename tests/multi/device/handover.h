/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tests of TUTTI_STREAM_WAIT=device: requests with work for the host are handed over to a
 * stream that waits for them on the device.
 */
#ifndef TUTTI_TESTS_HANDOVER_H
#define TUTTI_TESTS_HANDOVER_H

#include "multi/direct/coll_case.h"
#include "multi/device/device_user.h"

#include <stdatomic.h>

enum {
    COUNT = 3000, /* float: several chunks */
    TENSORS = 6,
    SLOT = 4 * COUNT * (int)sizeof(float), /* of four ranks */
    DELAY_US = 300,
    SHORT_MS = 1500,
    LONG_MS = 120000,
    SOON_US = 30000,
    LATER_US = 2400000 /* longer than SHORT_MS with all additions, which must not apply to this
                          wait */
};

/* The settings of all jobs: device_settings with stream_wait. */
void handover_settings(tutti__conf_t *conf, int rank);
/* Run a job with one rank for each letter of `hosts`. ends: bit r set: rank r is killed; then the
   ranks are processes. */
int handover_run(rank_fn_t fn, const char *hosts, void (*settings)(tutti__conf_t *, int),
                 unsigned ends);

void handover_begin(user_t *u, rank_t *self);

/* ---- a gate at which streams wait ---- */

extern atomic_int gate_opened; /* 1: the gate is open, and no stream waits at it */

/* Let the user's stream wait until the gate is open. */
void gate_put(user_t *u);
/* Collective. */
void gate_close(rank_t *self);
/* A thread: opens the gate after LATER_US. */
void *gate_open_later(void *arg);

/* ---- tensors ---- */

/* Tensor t of the user, of COUNT floats: in device memory, and in the host memory `in`. */
void *handover_slot(user_t *u, int t);
float *handover_host_slot(user_t *u, int t);
/* Element i of a rank's tensor t, before a call. */
float handover_value(int rank, int t, size_t i);
/* Copies in the user's stream: fill tensor t, or get its result. */
void handover_put(user_t *u, int t);
void handover_get(user_t *u, int t);
/* Check that the result is `times` the sum of all ranks. */
void handover_verify(user_t *u, int t, float times);
/* Submit the call, and hand it over to the user's stream. */
void hand_over(user_t *u, tutti_call_t *call);

#endif
