/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine: named tensors from any thread in any order, agreed on by all ranks, fused and
 * reduced. Also the watch over peers: who is dead, who has left, what is late.
 *
 * Threads. All work is done in steps by whoever owns the token: a thread that submits, a thread
 * that waits (it helps), or the engine's own thread, which sleeps on the bell and the sockets and
 * is there for progress while nobody waits. Nothing is timed: a step is taken because a tensor was
 * submitted, a peer rang, or a message came.
 *
 *      submit ---> queue ---> announce ---> merge at the host's leader ---> merge at rank 0
 *                                                                              |
 *      done  <--- unpack <--- run a lane's schedule <--- pack <--- bucket <----+
 */
#ifndef TUTTI__ENGINE_ENGINE_H
#define TUTTI__ENGINE_ENGINE_H

#include "boot/machine.h"
#include "coll/cache.h"
#include "exec/exec.h"

typedef struct tutti__engine tutti__engine_t;

/* What it is made of; all of it outlives the engine. */
typedef struct {
    tutti__boot_t *boot;
    const tutti__machine_t *machine;
    const tutti__exec_env_t *exec;
    const tutti__shape_t *shape;
    const tutti__conf_shared_t *conf;
} tutti__engine_env_t;

/* Collective over all ranks of boot. */
tutti_status_t tutti__engine_open(const tutti__engine_env_t *env, tutti__engine_t **ret_engine);

/* Local: say goodbye, end what is pending with TUTTI_ERR_SHUTDOWN, stop the thread. Requests stay
   valid for wait; `env` is not used any more when this returns. */
void tutti__engine_close(tutti__engine_t *engine);

/* Start an allreduce. Arguments were checked, except for a name that is pending. Any thread. */
tutti_status_t tutti__engine_submit(tutti__engine_t *engine, const char *name, const void *sendbuf,
                                    void *recvbuf, size_t count, tutti_dtype_t dtype, tutti_op_t op,
                                    tutti_request_t **ret_request);

/* See tutti_test and tutti_wait. */
tutti_status_t tutti__engine_test(tutti_request_t *request, int *ret_done);
tutti_status_t tutti__engine_wait(tutti_request_t *request, int timeout_ms);

/* ---- for direct calls, which run beside the engine ---- */

/* TUTTI_OK, or why the communicator can do nothing any more, with the thread's last error set. */
tutti_status_t tutti__engine_alive(tutti__engine_t *engine);

/* Has this peer called tutti_finalize? */
int tutti__engine_has_left(tutti__engine_t *engine, uint32_t rank);

/* End the communicator on all ranks: every pending and later call answers `status` with `text`.
   The first reason wins. Returns `status`, with the thread's last error set. Any thread. */
tutti_status_t tutti__engine_kill(tutti__engine_t *engine, tutti_status_t status, const char *text);

#endif
