/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device: memory that the processor cannot read, and everything that reaches it.
 *
 * All of CUDA and NCCL stands behind this table. The real one is a module, tutti/cuda.so, opened at
 * run time; the tests bring a pretend device, whose memory no host code can touch unnoticed and
 * whose streams run in other threads.
 *
 * No device or pinned memory is allocated on the way of a call, and no stream is made; memory of
 * malloc may be. alloc, host_alloc, nccl_alloc, stream_make and what undoes them are for set-up
 * only, since they may wait for all of the device's work, also for NCCL's, which waits for other
 * ranks. Making an event waits for nobody: CUDA does not name it among what synchronises.
 *
 * Threads: use() and current() are of the calling thread; all others may be called from any thread
 * that has used the device. But one thread at a time is in nccl_call or nccl_poll with a device,
 * and whatever communicators it has, nccl_call comes in one order on all ranks. What else there is
 * of NCCL may come meanwhile, for other communicators.
 *
 * Errors: SYSTEM: CUDA said no; TRANSPORT: NCCL did; NO_MEMORY. Words come with them, naming the
 * function and the library's own text. What is queued fails later: query says so.
 */
#ifndef TUTTI__MEM_DEVICE_H
#define TUTTI__MEM_DEVICE_H

#include <tutti/tutti.h>

#define TUTTI__DEVICE_ABI 7
#define TUTTI__DEVICE_IDENTITY_BYTES 32

typedef struct tutti__dstream tutti__dstream_t; /* a stream of work: cudaStream_t */
typedef struct tutti__devent tutti__devent_t;   /* a point in one: cudaEvent_t */
typedef struct tutti__nccl tutti__nccl_t;       /* a communicator: ncclComm_t */

typedef struct tutti__nccl_reg tutti__nccl_reg_t; /* a buffer that a communicator knows */

/* What kind of memory a pointer points to. */
typedef enum {
    TUTTI__MEM_HOST,   /* the device does not know it */
    TUTTI__MEM_PINNED, /* host memory that the device reads and writes, too; managed memory */
    TUTTI__MEM_DEVICE
} tutti__mem_kind_t;

typedef struct {
    tutti__mem_kind_t kind;
    int device; /* whose memory; -1: HOST */
} tutti__where_t;

/* A piece of a pack or unpack: `count` elements from src to dst, each in device or pinned memory
   and, unless bits are copied, at a multiple of its element's size. */
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
    uint32_t root; /* or the peer */
} tutti__nccl_call_t;

typedef struct {
    uint32_t abi, unused;
    const char *name; /* "cuda", "pretend" */

    /* ---- the device ---- */
    tutti_status_t (*count)(int *ret_count);
    /* For the calling thread, from here on. */
    tutti_status_t (*use)(int device);
    /* The calling thread's, if it has chosen one or used it; -1: none. */
    int (*current)(void);
    /* What NCCL tells the devices of one machine apart by, as text; "": unknown. Parts of a GPU
       (MIG) share it, and NCCL refuses them, too. */
    void (*identity)(int device, char ret_identity[TUTTI__DEVICE_IDENTITY_BYTES]);

    /* ---- memory ---- */
    /* Any pointer; of none it says HOST. Never fails. */
    tutti__where_t (*where)(const void *ptr);
    tutti_status_t (*alloc)(size_t bytes, void **ret_ptr);
    void (*free)(void *ptr);
    tutti_status_t (*host_alloc)(size_t bytes, void **ret_ptr); /* pinned */
    void (*host_free)(void *ptr);

    /* ---- streams: work in one is done in order ---- */
    /* is_urgent: the highest priority. It does not wait for the legacy default stream. */
    tutti_status_t (*stream_make)(int is_urgent, tutti__dstream_t **ret_stream);
    void (*stream_drop)(tutti__dstream_t *stream);
    /* 1: it is being captured into a graph, so nothing may be queried or waited for. */
    int (*stream_captures)(tutti__dstream_t *stream);
    tutti_status_t (*event_make)(tutti__devent_t **ret_event);
    void (*event_drop)(tutti__devent_t *event);
    tutti_status_t (*record)(tutti__devent_t *event, tutti__dstream_t *stream);
    /* Later work in `stream` waits for the event's last record; the host does not. */
    tutti_status_t (*wait)(tutti__dstream_t *stream, tutti__devent_t *event);
    /* TUTTI_OK: what was recorded is done, or nothing was; TUTTI__AGAIN (base/status.h): not
       yet. */
    tutti_status_t (*query)(tutti__devent_t *event);
    /* An event that can be timed, which costs a little more; else as event_make's. */
    tutti_status_t (*timer_make)(tutti__devent_t **ret_timer);
    /* From what stop's last record stands behind back to start's, by the device's clock;
       TUTTI__AGAIN if not both have come. SYSTEM: not a timer, or never recorded. */
    tutti_status_t (*elapsed)(tutti__devent_t *start, tutti__devent_t *stop, double *ret_us);

    /* ---- words that streams wait for; both NULL, or UNSUPPORTED: it has none ---- */
    /* TUTTI__DEVICE_WORDS of them, TUTTI__DEVICE_WORD_BYTES apart, in pinned memory that lives as
       long as the process: a stream may come to its wait long after a communicator's end. At first
       zeros; from then on always the same. For set-up only. */
    tutti_status_t (*words)(void **ret_words);
    /*
     * Later work in `stream` waits until (int32_t)(*word - value) >= 0. The device's order of work
     * knows nothing of it. UNSUPPORTED, with nothing queued: not in this stream, as it might hold
     * up those of the highest priority, which have to go on meanwhile.
     */
    tutti_status_t (*await)(tutti__dstream_t *stream, const void *word, uint32_t value);

    /* ---- work ---- */
    /* Between any two places; host memory that is not pinned may block. */
    tutti_status_t (*copy)(void *dst, const void *src, size_t bytes, tutti__dstream_t *stream);
    /* All pieces in as few launches as can be: each from `from` elements to `to` elements, times
       `scale` (in float32; in float64 if one of the two is FLOAT64), rounded to nearest even.
       from == to and scale 1 copies bits, of any type; else both are floating point types. The
       array `pieces` is the caller's again at return. */
    tutti_status_t (*pack)(const tutti__piece_t *pieces, size_t npieces, tutti_dtype_t from,
                           tutti_dtype_t to, double scale, tutti__dstream_t *stream);
    /* dst = src0 + src1 + ..., as tutti__reduce_find's kernel of SUM folds: in that order, narrow
       floats in float32; divisor as there. UNSUPPORTED: other types than FLOAT16, BFLOAT16,
       FLOAT32, FLOAT64 and integers. At most TUTTI__DEVICE_SRCS sources; all arrays at multiples
       of the element's size, else INVALID_ARGUMENT. dst may be a source. */
    tutti_status_t (*sum)(void *dst, const void *const *srcs, size_t nsrcs, size_t count,
                          tutti_dtype_t dtype, uint32_t divisor, tutti__dstream_t *stream);

    /* ---- NCCL ---- */
    /* 1: the library that is loaded has this type and operation. */
    int (*nccl_serves)(tutti_dtype_t dtype, tutti_op_t op);
    tutti_status_t (*nccl_id)(tutti__nccl_id_t *ret_id);
    /* Collective over `size` ranks. Returns at once: nccl_poll says when it stands. is_blocking: as
       most programs use NCCL, to compare with; it and its calls return when they are through, and
       may wait for other ranks. */
    tutti_status_t (*nccl_open)(const tutti__nccl_id_t *id, uint32_t rank, uint32_t size,
                                int is_blocking, tutti__nccl_t **ret_nccl);
    /* 1: who opens or calls must then, before anything else of NCCL, poll in the same thread until
       it is not TUTTI__AGAIN, or the communicator is to be aborted. NCCL before 2.27. */
    int (*nccl_binds)(void);
    /* TUTTI_OK: the last call is queued; TUTTI__AGAIN: not yet; else what went wrong, then or
       since. To be called until it is OK before the next call on this communicator, and before
       anything else is queued in that call's stream, an event too. */
    tutti_status_t (*nccl_poll)(tutti__nccl_t *nccl);
    /* Queue one operation, or several as one (they run together; sends and receives need it). What
       only moves elements takes any type; what reduces: nccl_serves. */
    tutti_status_t (*nccl_call)(tutti__nccl_t *nccl, const tutti__nccl_call_t *calls, size_t ncalls,
                                tutti__dstream_t *stream);
    /* Device memory that NCCL can register, in pages of its own; nccl_free frees it. As alloc.
       UNSUPPORTED: this NCCL registers nothing. */
    tutti_status_t (*nccl_alloc)(size_t bytes, void **ret_ptr);
    void (*nccl_free)(void *ptr);
    /*
     * Let a communicator that stands use nccl_alloc's memory without copies: for set-up, between
     * calls. From here on each of its calls has registered buffers only, on all ranks, each rank's
     * the one it registered as the same number and as far behind its begin (a rank's own part of a
     * buffer in place counts as the whole), or none. Else it may hang. UNSUPPORTED: it does not
     * register, or was told not to.
     */
    tutti_status_t (*nccl_register)(tutti__nccl_t *nccl, void *ptr, size_t bytes,
                                    tutti__nccl_reg_t **ret_reg);
    /* When all of its work is done here, before close, and before the memory is freed. Not after
       abort, which ends registrations, too. */
    void (*nccl_deregister)(tutti__nccl_t *nccl, tutti__nccl_reg_t *reg);
    /* All local ranks close it, when all of their work is done. May be called once. Waits for them
       some 0.2 s at most. */
    void (*nccl_close)(tutti__nccl_t *nccl);
    /* End its work wherever it is, on this rank: others end their own. Instead of close. It may
       never return (node/nccl/abort.c). */
    void (*nccl_abort)(tutti__nccl_t *nccl);
} tutti__device_ops_t;

#define TUTTI__DEVICE_SRCS 8
#define TUTTI__DEVICE_WORDS 64
#define TUTTI__DEVICE_WORD_BYTES 64

/* What a device's module, tutti/cuda.so, exports as tutti_module (boot/module.h). */
typedef struct {
    uint32_t abi; /* TUTTI__MODULE_ABI */
    uint32_t unused;
    const char *name; /* "cuda" */
    /*
     * Find what the device needs. `core` is a tutti__core_t, of a room above this one. May be
     * called again: then it answers as before. UNSUPPORTED, with words: what is missing, what is
     * too old, or that there is no device. ret_versions: the libraries that were loaded, in words;
     * without NCCL the device opens all the same, and the reason is in there. Starts the device's
     * driver, so a process that is forked later cannot use the device.
     */
    tutti_status_t (*open)(const void *core, const tutti__device_ops_t **ret_ops,
                           const char **ret_versions);
} tutti__device_module_t;

#endif
