/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A pretend device: mem/device.h for tests on machines without a GPU.
 *
 * Device memory is mapped twice: at the callers' addresses any access faults, and the device's own
 * threads have another view. Streams are threads, so work is really done later. NCCL is a shared
 * mapping through which the ranks' streams copy, in pieces. It reports errors that would make the
 * real NCCL hang. Ranks are threads of one process, each with its own device, or forked processes.
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
/* The largest number of ranks of an NCCL communicator. */
#define PRETEND_RANKS 16

/* These functions are visible in a module as well: see module.c. */
#pragma GCC visibility push(default)

const tutti__device_ops_t *pretend_device(void);

/* Prepare for communicators of at most `nranks` ranks, before the ranks start. A repeated call
   forgets all earlier communicators. Returns 0 on success. */
int pretend_prepare(int nranks);

/* Like pretend_prepare, with a file that all ranks name, for jobs without a common parent process.
   The first rank makes the file, which serves one job only. Returns 0 on success. */
int pretend_attach(const char *file);

/* Call it after all ranks have ended. It forgets all options, counts and errors, and allows a fork
   again. It returns the number of allocations, streams, events and communicators that were not
   freed. Of these it frees only the memory. */
int pretend_reset(void);

/* ---- kernels ---- */

/* Queue `run` with a copy of `args`, like a program's own kernel. */
tutti_status_t pretend_launch(tutti__dstream_t *stream, void (*run)(void *args), const void *args,
                              size_t bytes);
/* For such a kernel: returns the device's view of an address, or NULL if the address is not in the
   device's memory. */
void *pretend_view(const void *ptr);

/* ---- options ---- */

/* A stream sleeps up to `most_us` before each piece of work; the seed determines the times. */
void pretend_delays(unsigned seed, unsigned most_us);
/* Work takes the time that its bytes need at this rate, in each stream separately. 0: no limit. */
void pretend_rates(double copy_bytes_per_s, double nccl_bytes_per_s);
/* After this call, making or freeing an object is an error with a text, and is counted. */
void pretend_forbid_alloc(int forbidden);
/* captures 1: the stream is being captured into a graph, so no work may be queued there. */
void pretend_capture(tutti__dstream_t *stream, int captures);
/* After the next `calls` calls, a device's NCCL work does not end until it is aborted. calls -1:
   off. */
void pretend_hang(int device, int calls);
/* After this call a device's NCCL reports a failure, independent of its work. device -1: off. */
void pretend_sick(int device);
/* After this call nccl_abort does not return on a device, and does not end the work, until this
   option is off. device -1: off. */
void pretend_hang_abort(int device);
/* A device's NCCL finds no space in /dev/shm when it connects. It reports this, and the NCCL of the
   other ranks waits. device -1: off. */
void pretend_no_space(int device);
/* A device's NCCL lacks this type for reductions; 0: it lacks none. */
void pretend_lacks(int device, tutti_dtype_t dtype);
/* Later registrations are refused on a device. device -1: off. */
void pretend_refuse_register(int device);
/* NCCL is too old for registrations, on all devices. */
void pretend_lack_register(int lacks);
/* binds 1: an NCCL call belongs to its thread: only this thread may poll until the call is
   complete. */
void pretend_bind_calls(int binds);
/* Each NCCL call takes this long, so that a second thread's call can overlap it. */
void pretend_slow_calls(unsigned us);

/* Wait for all work that is queued on a device, like a library that does not take NCCL's work into
   account. During the wait no thread can queue work there. Returns 1 if NCCL had work there. */
int pretend_synchronize(int device);

/* ---- counts ---- */

typedef enum {
    PRETEND_ALLOCS,        /* alloc, host_alloc and their frees */
    PRETEND_MADE,          /* streams and events */
    PRETEND_SYNCS_IN_NCCL, /* waits while NCCL had work: a deadlock on a real device */
    PRETEND_FORBIDDEN,     /* calls that pretend_forbid_alloc forbids, even without a status */
    PRETEND_COPIES,
    PRETEND_BLOCKING_COPIES, /* from or to unpinned host memory */
    PRETEND_AWAITS,          /* waits on semaphores */
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

/* For a signal handler: returns 1 if a fault at `address` is an access of host code to device
   memory. */
int pretend_is_device_fault(const void *address, pretend_fault_t *ret_fault);

/* Read or write device memory, at once and without any stream. Ends the test if the address is not
   in device memory. */
void pretend_read(void *dst, const void *device_src, size_t bytes);
void pretend_write(void *device_dst, const void *src, size_t bytes);

#pragma GCC visibility pop

#endif
