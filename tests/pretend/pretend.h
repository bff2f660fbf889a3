/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A pretend device: mem/device.h for tests on machines without a GPU.
 *
 * Device memory is mapped twice: callers hold addresses at which any access faults, the device's
 * own threads have another view. Streams are threads, so work is really done later. NCCL is a
 * shared mapping through which the ranks' streams copy, in pieces; it says what NCCL would hang on.
 * Ranks are threads of one process, each with a device of its own, or forked processes.
 *
 *      main: pretend_prepare(size), then start the ranks;
 *      rank: pretend_device()->use(rank), ...; after all ranks: pretend_reset()
 *
 * Options hold for the process, for all devices, until pretend_reset. Any thread may set and see.
 */
#ifndef TUTTI_TESTS_PRETEND_H
#define TUTTI_TESTS_PRETEND_H

#include "mem/device.h"

#define PRETEND_DEVICES 16
/* Most ranks of a NCCL communicator. */
#define PRETEND_RANKS 16

/* In a module, too: see module.c. */
#pragma GCC visibility push(default)

const tutti__device_ops_t *pretend_device(void);

/* Make room for communicators of at most `nranks` ranks, before they start; again: forget all that
   is there. 0 if it worked. */
int pretend_prepare(int nranks);

/* The same by a file that all ranks name, of jobs that nobody could prepare: whoever comes first
   makes it. It is no use to another job. 0 if it worked. */
int pretend_attach(const char *file);

/* Once all ranks have ended: forget all options, counts and errors, and make forking right again.
   Returns how many allocations, streams, events and communicators were left; frees memory only. */
int pretend_reset(void);

/* ---- kernels ---- */

/* Queue `run`, with a copy of `args`: what a program's own kernel is. */
tutti_status_t pretend_launch(tutti__dstream_t *stream, void (*run)(void *args), const void *args,
                              size_t bytes);
/* For what runs there: the device's view of an address, NULL if it is not in its memory. */
void *pretend_view(const void *ptr);

/* ---- options ---- */

/* Before each piece of work a stream sleeps up to `most_us`, as the seed says. */
void pretend_delays(unsigned seed, unsigned most_us);
/* Work takes as long as `bytes` of it need, in each stream for itself. 0: as fast as it goes. */
void pretend_rates(double copy_bytes_per_s, double nccl_bytes_per_s);
/* From here on making or freeing anything is an error, with words, and counted. */
void pretend_forbid_alloc(int forbidden);
/* The stream is being captured into a graph: nothing may be queued there. */
void pretend_capture(tutti__dstream_t *stream, int captures);
/* A device's NCCL work never ends after the next `calls` of them, until it is aborted. -1: off. */
void pretend_hang(int device, int calls);
/* From here on a device's NCCL says that it has failed, whatever becomes of its work; -1: off. */
void pretend_sick(int device);
/* From here on nccl_abort never returns on a device, and ends nothing, until this is off: -1. */
void pretend_hang_abort(int device);
/* A device's NCCL finds no room in /dev/shm when it connects: it says so, the others' NCCL waits;
   -1: off. */
void pretend_no_space(int device);
/* A device's NCCL has not this type, for reductions; 0: it has all. */
void pretend_lacks(int device, tutti_dtype_t dtype);
/* What is registered later is refused on a device; -1: off. */
void pretend_refuse_register(int device);
/* NCCL is too old to register anything, on all devices. */
void pretend_lack_register(int lacks);
/* A NCCL call belongs to the thread that makes it: only that one may poll until it is through. */
void pretend_bind_calls(int binds);
/* Each NCCL call takes so long, so that a second thread's can come in between. */
void pretend_slow_calls(unsigned us);

/* Wait for all that is queued on a device, as a library does that knows nothing of NCCL's work; no
   thread can queue anything there meanwhile. 1: NCCL had work there. */
int pretend_synchronize(int device);

/* ---- what happened ---- */

typedef enum {
    PRETEND_ALLOCS,        /* alloc, host_alloc and their freeing */
    PRETEND_MADE,          /* streams and events */
    PRETEND_SYNCS_IN_NCCL, /* waited for the device while NCCL had work: deadlocks on real ones */
    PRETEND_FORBIDDEN,     /* what pretend_forbid_alloc refused, or could not refuse */
    PRETEND_COPIES,
    PRETEND_BLOCKING_COPIES, /* from or to host memory that is not pinned */
    PRETEND_AWAITS,          /* of words */
    PRETEND_PACKS,
    PRETEND_SUMS,
    PRETEND_NCCL_CALLS,
    PRETEND_OTHER_STREAM,  /* those in another stream than the communicator's last */
    PRETEND_CLOSED_BUSY,   /* nccl_close before its work was done */
    PRETEND_REGISTERED,    /* collectives whose buffers were registered */
    PRETEND_MISREGISTERED, /* registered or not when NCCL does not like it: words on stderr */
    PRETEND_COUNTS
} pretend_count_t;

unsigned pretend_counts(int device, pretend_count_t what);

typedef struct {
    unsigned allocation; /* counted from 0 in the order in which they were made */
    int device;
    size_t bytes;
    size_t offset; /* of the address; from `bytes` on: behind its end */
    int was_freed;
} pretend_fault_t;

/* 1: a fault at `address` is host code that reached for device memory. For a signal handler. */
int pretend_is_device_fault(const void *address, pretend_fault_t *ret_fault);

/* Look into device memory, or change it, at once and behind all streams' backs. Ends the test if
   it is none. */
void pretend_read(void *dst, const void *device_src, size_t bytes);
void pretend_write(void *device_dst, const void *src, size_t bytes);

#pragma GCC visibility pop

#endif
