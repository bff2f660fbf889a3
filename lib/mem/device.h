/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device: memory that the processor cannot read, and all functions that access this memory.
 *
 * CUDA and NCCL are used only through this table. The real device is a module, tutti/cuda.so,
 * opened at run time. The tests provide a pretend device: any access of host code to its memory is
 * detected, and its streams run in other threads.
 *
 * During a collective call no device or pinned memory is allocated, and no stream is made; malloc
 * is allowed. alloc, host_alloc, nccl_alloc, stream_make and their inverses are for set-up only,
 * because they may wait for all work of the device. NCCL's work in turn waits for other ranks.
 * event_make does not wait: CUDA does not list its function among those that synchronise.
 *
 * Threads: use() and current() are per thread; all other functions may be called from any thread
 * that has used the device. But only one thread at a time may be in nccl_call or nccl_poll of a
 * device. All ranks must make their calls of nccl_call in the same order, over all communicators of
 * the device. Other NCCL functions may run meanwhile, for other communicators.
 *
 * Errors: SYSTEM: from CUDA; TRANSPORT: from NCCL; NO_MEMORY. Each error text has the function and
 * the library's own text. If queued work fails, `query` reports the failure later.
 */
#ifndef TUTTI__MEM_DEVICE_H
#define TUTTI__MEM_DEVICE_H

#include <tutti/tutti.h>

#define TUTTI__DEVICE_ABI 7
#define TUTTI__DEVICE_IDENTITY_BYTES 32

typedef struct tutti__dstream tutti__dstream_t; /* a CUDA stream: cudaStream_t */
typedef struct tutti__devent tutti__devent_t;   /* a point in a CUDA stream: cudaEvent_t */
typedef struct tutti__nccl tutti__nccl_t;       /* a communicator: ncclComm_t */

typedef struct tutti__nccl_reg tutti__nccl_reg_t; /* a registered buffer of a communicator */

/* The kind of memory of a pointer. */
typedef enum {
    TUTTI__MEM_HOST,   /* the device cannot access it */
    TUTTI__MEM_PINNED, /* host memory that the device can access; managed memory */
    TUTTI__MEM_DEVICE
} tutti__mem_kind_t;

typedef struct {
    tutti__mem_kind_t kind;
    int device; /* the memory's device; -1 if kind is HOST */
} tutti__where_t;

/* A piece of a pack or unpack: `count` elements from src to dst, both in device or pinned memory.
   Unless bits are copied, each address is a multiple of the element's size. */
typedef struct {
    const void *src;
    void *dst;
    size_t count;
} tutti__piece_t;

typedef struct {
    char bytes[128];
} tutti__nccl_id_t;

typedef enum {
    TUTTI__NCCL_ALLREDUCE,
    TUTTI__NCCL_REDUCE_SCATTER, /* src: size x count elements, dst: count */
    TUTTI__NCCL_ALLGATHER,      /* src: count elements, dst: size x count */
    TUTTI__NCCL_BROADCAST,
    TUTTI__NCCL_REDUCE,
    TUTTI__NCCL_SEND, /* src, to `root` */
    TUTTI__NCCL_RECV  /* dst, from `root` */
} tutti__nccl_kind_t;

typedef struct {
    tutti__nccl_kind_t kind;
    const void *src;
    void *dst;
    size_t count;
    tutti_dtype_t dtype;
    tutti_op_t op; /* SUM, PROD, MIN, MAX; AVG divides by the communicator's size */
    uint32_t root; /* root; of SEND and RECV: the peer */
} tutti__nccl_call_t;

typedef struct {
    uint32_t abi, unused;
    const char *name; /* "cuda", "pretend" */

    /* ---- the device ---- */
    tutti_status_t (*count)(int *ret_count);
    /* Selects the device of the calling thread. */
    tutti_status_t (*use)(int device);
    /* The calling thread's device, if it has selected or used one; -1: none. */
    int (*current)(void);
    /* A text by which NCCL distinguishes the devices of one machine; "": unknown. Parts of a GPU
       (MIG) have the same text: NCCL refuses two ranks on parts of one GPU, as on one device. */
    void (*identity)(int device, char ret_identity[TUTTI__DEVICE_IDENTITY_BYTES]);

    /* ---- memory ---- */
    /* The kind of any pointer's memory. Unknown memory is HOST. Never fails. */
    tutti__where_t (*where)(const void *ptr);
    tutti_status_t (*alloc)(size_t bytes, void **ret_ptr);
    void (*free)(void *ptr);
    tutti_status_t (*host_alloc)(size_t bytes, void **ret_ptr); /* pinned */
    void (*host_free)(void *ptr);

    /* ---- CUDA streams: work in a stream is executed in order ---- */
    /* is_urgent 1: highest priority. The stream does not wait for the legacy default stream. */
    tutti_status_t (*stream_make)(int is_urgent, tutti__dstream_t **ret_stream);
    void (*stream_drop)(tutti__dstream_t *stream);
    /* Returns 1 if the stream is being captured into a graph: queries and waits are not allowed. */
    int (*stream_captures)(tutti__dstream_t *stream);
    tutti_status_t (*event_make)(tutti__devent_t **ret_event);
    void (*event_drop)(tutti__devent_t *event);
    tutti_status_t (*record)(tutti__devent_t *event, tutti__dstream_t *stream);
    /* Later work in `stream` waits for the event's last record; the host does not wait. */
    tutti_status_t (*wait)(tutti__dstream_t *stream, tutti__devent_t *event);
    /* TUTTI_OK: the work before the event's last record is complete, or there was no record;
       TUTTI__AGAIN (base/status.h): this work is not complete. */
    tutti_status_t (*query)(tutti__devent_t *event);
    /* Make an event with a time stamp. It costs a little more than an event of event_make;
       otherwise both are alike. */
    tutti_status_t (*timer_make)(tutti__devent_t **ret_timer);
    /* The time from start's last record to stop's last record, by the device's clock. TUTTI__AGAIN:
       one of the two records is not complete. SYSTEM: an event is no timer, or was not recorded. */
    tutti_status_t (*elapsed)(tutti__devent_t *start, tutti__devent_t *stop, double *ret_us);

    /* ---- semaphores that streams wait on ---- */
    /* If a device has no semaphores, both functions are NULL, or `words` returns UNSUPPORTED. */
    /* Get TUTTI__DEVICE_WORDS words, TUTTI__DEVICE_WORD_BYTES apart, initially 0, in pinned memory.
       The memory is never freed, because a stream may begin its wait long after a communicator's
       end. Each call returns the same memory. For set-up only. */
    tutti_status_t (*words)(void **ret_words);
    /*
     * Later work in `stream` waits until (int32_t)(*word - value) >= 0. CUDA does not know of this
     * dependence. UNSUPPORTED: nothing was queued, because a wait in this stream could block
     * streams of the highest priority, which must continue meanwhile.
     */
    tutti_status_t (*await)(tutti__dstream_t *stream, const void *word, uint32_t value);

    /* ---- work ---- */
    /* Copy between any two kinds of memory. May block if host memory is not pinned. */
    tutti_status_t (*copy)(void *dst, const void *src, size_t bytes, tutti__dstream_t *stream);
    /* Convert all pieces from type `from` to type `to`, multiplied by `scale` and rounded to
       nearest even, in as few launches as possible. The product is computed in float32, or in
       float64 if one of the types is FLOAT64. If from == to and scale is 1, the bits are copied,
       and any type is allowed. Otherwise `from` and `to` must be floating point types. The caller
       may reuse `pieces` after the return. */
    tutti_status_t (*pack)(const tutti__piece_t *pieces, size_t npieces, tutti_dtype_t from,
                           tutti_dtype_t to, double scale, tutti__dstream_t *stream);
    /* dst = src0 + src1 + ..., with the same bits as the kernel that tutti__reduce_find returns for
       SUM: this function adds in the same order, adds narrow floats in float32, and uses `divisor`
       in the same way. UNSUPPORTED: other types than FLOAT16, BFLOAT16, FLOAT32, FLOAT64 and
       integers. At most TUTTI__DEVICE_SRCS sources. INVALID_ARGUMENT: an array's address is not a
       multiple of the element's size. dst may be a source. */
    tutti_status_t (*sum)(void *dst, const void *const *srcs, size_t nsrcs, size_t count,
                          tutti_dtype_t dtype, uint32_t divisor, tutti__dstream_t *stream);

    /* ---- NCCL ---- */
    /* Returns 1 if the loaded NCCL has this type and operation. */
    int (*nccl_serves)(tutti_dtype_t dtype, tutti_op_t op);
    tutti_status_t (*nccl_id)(tutti__nccl_id_t *ret_id);
    /* Open a communicator. All `size` ranks must call this function. It returns at once; nccl_poll
       reports when the communicator is ready. is_blocking 1: the mode of most programs that use
       NCCL, for comparison. In this mode nccl_open and the communicator's calls return only when
       they are complete, and may wait for other ranks. */
    tutti_status_t (*nccl_open)(const tutti__nccl_id_t *id, uint32_t rank, uint32_t size,
                                int is_blocking, tutti__nccl_t **ret_nccl);
    /* Returns 1 for NCCL before 2.27. With such a version, the thread that has called nccl_open or
       nccl_call must then call only nccl_poll, until nccl_poll does not return TUTTI__AGAIN. The
       thread may stop polling if the communicator is to be aborted. */
    int (*nccl_binds)(void);
    /* TUTTI_OK: the last nccl_call is queued; TUTTI__AGAIN: it is not queued yet; otherwise the
       first error since that call. nccl_poll must return OK before the next call on this
       communicator, and before other work, such as an event, is queued in that call's stream. */
    tutti_status_t (*nccl_poll)(tutti__nccl_t *nccl);
    /* Queue one operation, or several that run together. Sends and receives must run together.
       Operations that only move elements take any type; for operations that reduce see
       nccl_serves. */
    tutti_status_t (*nccl_call)(tutti__nccl_t *nccl, const tutti__nccl_call_t *calls, size_t ncalls,
                                tutti__dstream_t *stream);
    /* Like alloc, but NCCL can register the memory, which has pages of its own. nccl_free frees it.
       UNSUPPORTED: this NCCL cannot register memory. */
    tutti_status_t (*nccl_alloc)(size_t bytes, void **ret_ptr);
    void (*nccl_free)(void *ptr);
    /*
     * Let a ready communicator use memory of nccl_alloc without copies. For set-up, between calls.
     * After that the buffers of each call must be registered either on no rank or on all ranks. In
     * the second case all ranks must pass the same registration, at the same offset. A call that
     * breaks these rules may hang. The ranks must register their buffers in the same order: the
     * n-th registrations of all ranks count as the same registration. In a call in place, a rank's
     * own part of a buffer counts as the whole buffer. UNSUPPORTED: this NCCL cannot register, or
     * registration is disabled.
     */
    tutti_status_t (*nccl_register)(tutti__nccl_t *nccl, void *ptr, size_t bytes,
                                    tutti__nccl_reg_t **ret_reg);
    /* Call this after all work of the communicator on this rank is done, before nccl_close and
       before the memory is freed. Do not call this after nccl_abort, which ends registrations. */
    void (*nccl_deregister)(tutti__nccl_t *nccl, tutti__nccl_reg_t *reg);
    /* All ranks must close the communicator, after all of its work is done. Call this at most once.
       Waits for the other ranks, about 0.2 s at most. */
    void (*nccl_close)(tutti__nccl_t *nccl);
    /* Called instead of nccl_close, in any state: ends the communicator's work on this rank. The
       other ranks must end their own work. nccl_abort may never return (node/nccl/abort.c). */
    void (*nccl_abort)(tutti__nccl_t *nccl);
} tutti__device_ops_t;

#define TUTTI__DEVICE_SRCS 8
#define TUTTI__DEVICE_WORDS 64
#define TUTTI__DEVICE_WORD_BYTES 64

/* The table that a device's module, tutti/cuda.so, exports as tutti_module (boot/module.h). */
typedef struct {
    uint32_t abi; /* TUTTI__MODULE_ABI */
    uint32_t unused;
    const char *name; /* "cuda" */
    /*
     * Find the libraries that the device needs. `core` is a tutti__core_t, a type of a higher room.
     * Repeated calls return the same result. UNSUPPORTED, with a text: a library is missing or too
     * old, or there is no device. ret_versions: the loaded libraries, as text. Without NCCL the
     * device still opens, and the text has the reason. Starts the device's driver, so a process
     * that is forked later cannot use the device.
     */
    tutti_status_t (*open)(const void *core, const tutti__device_ops_t **ret_ops,
                           const char **ret_versions);
} tutti__device_module_t;

#endif
