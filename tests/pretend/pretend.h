/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A pretend device: mem/device.h for tests on machines without a GPU.
 *
 * Device memory is mapped twice: at the callers' addresses any access faults; the device's
 * own threads have another view. Streams are threads, so work really is done later. NCCL is a
 * shared mapping through which the ranks' streams copy, in pieces; it reports errors on which
 * the real NCCL would hang. Ranks are threads of one process, each with a device of its own,
 * or forked processes.
 *
 *      main: pretend_prepare(size), then start the ranks;
 *      rank: pretend_device()->use(rank), ...; after all ranks: pretend_reset()
 *
 * Options hold for the whole process and all devices, until pretend_reset. Any thread may set
 * and read them.
 */
#ifndef TUTTI_TESTS_PRETEND_H
#define TUTTI_TESTS_PRETEND_H

#include "mem/device.h"

#define PRETEND_DEVICES 16
/* Most ranks of a NCCL communicator. */
#define PRETEND_RANKS 16

/* Also in a module: see module.c. */
#pragma GCC visibility push(default)

const tutti__device_ops_t *pretend_device(void);

/* Prepare for communicators of at most `nranks` ranks, before the ranks start. A repeated call
   forgets everything before. 0: success. */
int pretend_prepare(int nranks);

/* The same with a file that all ranks name, for jobs without a common parent: the first rank makes
   it. It serves one job only. 0: success. */
int pretend_attach(const char *file);

/* Call it after all ranks have ended: forgets all options, counts and errors, and allows a fork
   again. Returns the number of allocations, streams, events and communicators that were left; frees
   only memory. */
int pretend_reset(void);

/* ---- kernels ---- */

/* Queue `run` with a copy of `args`, like a program's own kernel. */
tutti_status_t pretend_launch(tutti__dstream_t *stream, void (*run)(void *args), const void *args,
                              size_t bytes);
/* For such a kernel: the device's view of an address; NULL: not in its memory. */
void *pretend_view(const void *ptr);

/* ---- options ---- */

/* A stream sleeps up to `most_us` before each piece of work; the seed determines the times. */
void pretend_delays(unsigned seed, unsigned most_us);
/* Work takes the time that its bytes need at this rate, in each stream separately. 0: no limit. */
void pretend_rates(double copy_bytes_per_s, double nccl_bytes_per_s);
/* From here on each making or freeing of an object is an error with a text, and is counted. */
void pretend_forbid_alloc(int forbidden);
/* The stream is being captured into a graph: nothing may be queued there. */
void pretend_capture(tutti__dstream_t *stream, int captures);
/* After the next `calls` calls a device's NCCL work never ends, until it is aborted. -1: off. */
void pretend_hang(int device, int calls);
/* From here on a device's NCCL reports a failure, independent of its work; -1: off. */
void pretend_sick(int device);
/* From here on nccl_abort never returns on a device, and ends nothing, until this is off: -1. */
void pretend_hang_abort(int device);
/* A device's NCCL finds no space in /dev/shm when it connects: it reports this, and the other
   ranks' NCCL waits; -1: off. */
void pretend_no_space(int device);
/* A device's NCCL lacks this type for reductions; 0: it lacks none. */
void pretend_lacks(int device, tutti_dtype_t dtype);
/* Later registrations are refused on a device; -1: off. */
void pretend_refuse_register(int device);
/* NCCL is too old for registrations, on all devices. */
void pretend_lack_register(int lacks);
/* A NCCL call belongs to its thread: only this thread may poll until the call is complete. */
void pretend_bind_calls(int binds);
/* Each NCCL call takes this long, so that a second thread's call can overlap it. */
void pretend_slow_calls(unsigned us);

/* Wait for all work that is queued on a device, as a library does that is unaware of NCCL's work;
   no thread can queue anything there meanwhile. 1: NCCL had work there. */
int pretend_synchronize(int device);

/* ---- counts ---- */

typedef enum {
    PRETEND_ALLOCS,        /* alloc, host_alloc and their frees */
    PRETEND_MADE,          /* streams and events */
    PRETEND_SYNCS_IN_NCCL, /* waits while NCCL had work: a deadlock on a real device */
    PRETEND_FORBIDDEN,     /* forbidden by pretend_forbid_alloc, even if they return no status */
    PRETEND_COPIES,
    PRETEND_BLOCKING_COPIES, /* from or to unpinned host memory */
    PRETEND_AWAITS,          /* of semaphores */
    PRETEND_PACKS,
    PRETEND_SUMS,
    PRETEND_NCCL_CALLS,
    PRETEND_OTHER_STREAM,  /* calls in another stream than the communicator's last */
    PRETEND_CLOSED_BUSY,   /* nccl_close before its work was complete */
    PRETEND_REGISTERED,    /* collectives whose buffers were registered */
    PRETEND_MISREGISTERED, /* registrations that NCCL does not allow: text on stderr */
    PRETEND_COUNTS
} pretend_count_t;

unsigned pretend_counts(int device, pretend_count_t what);

typedef struct {
    unsigned allocation; /* counted from 0 in the order of the allocations */
    int device;
    size_t bytes;
    size_t offset; /* of the address; `bytes` or more: behind the end */
    int was_freed;
} pretend_fault_t;

/* 1: a fault at `address` is an access of host code to device memory. For a signal handler. */
int pretend_is_device_fault(const void *address, pretend_fault_t *ret_fault);

/* Read or write device memory, at once and without any stream. Ends the test if the address is not
   in device memory. */
void pretend_read(void *dst, const void *device_src, size_t bytes);
void pretend_write(void *device_dst, const void *src, size_t bytes);

#pragma GCC visibility pop

#endif
