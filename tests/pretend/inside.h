/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the files of the pretend device. Lock order: driver, device, stream, point or trouble;
 * a communicator's slot and the list of allocations are last.
 */
#ifndef TUTTI_TESTS_PRETEND_INSIDE_H
#define TUTTI_TESTS_PRETEND_INSIDE_H

#include "pretend/pretend.h"

#include "base/compiler.h"
#include "base/status.h"

#include <pthread.h>
#include <stdatomic.h>

#define WORDS_BYTES 320

/* An error on a thread that cannot return it. */
typedef struct {
    tutti_status_t status;
    const void *owner; /* the communicator that failed, or NULL */
    char words[WORDS_BYTES];
} trouble_t;

typedef struct {
    int number;
    pthread_mutex_t driver; /* held during a wait for the device, so that nothing is queued */
    pthread_mutex_t lock;   /* protects streams, legacy */
    tutti__dstream_t *streams;
    tutti__dstream_t *legacy; /* the stream for NULL; made when needed */
    pthread_mutex_t trouble_lock;
    trouble_t trouble; /* permanent, like CUDA's errors */
    atomic_uint counts[PRETEND_COUNTS];
    atomic_uint nccl_in_flight;
    atomic_int nccl_callers, hang_after;
    atomic_int lacks; /* the type that NCCL lacks; 0: none */
} device_t;

/* ---- pretend.c ---- */

typedef struct {
    atomic_uint seed, delay_us, slow_us;
    _Atomic double copy_rate, nccl_rate; /* bytes/s; 0: no limit */
    atomic_int forbidden, lacks_register, binds;
    atomic_int refuses_register;            /* a device's number plus 1; 0: none */
    atomic_int sick, hangs_abort, no_space; /* each a device's number plus 1; 0: none */
} options_t;

extern options_t pretend_options;

/* The calling thread's device. An error if the thread has none, or the device is broken. */
tutti_status_t device_mine(const char *what, device_t **ret_device);
device_t *device_at(int number);
/* The type that the device's NCCL lacks. */
int device_lacks(void);
/* Set the calling thread's device. The threads of streams call this function. */
void device_set_mine(device_t *device);
void device_count(device_t *device, pretend_count_t what);
/* Store an error, unless there is one already. */
void device_trouble(device_t *device, const char *fmt, ...) TUTTI__PRINTF(2, 3);
/* Returns the stored status. Its text becomes the thread's last error. */
tutti_status_t device_say(device_t *device);
/* Count an object that is made or freed. Returns an error if this is forbidden. */
tutti_status_t device_changes(device_t *device, pretend_count_t what, const char *name);
/* Streams, events and communicators that exist. */
extern atomic_int pretend_left;

/* ---- memory.c ---- */

typedef enum {
    VIEW_KERNEL,
    VIEW_COPY
} view_use_t;

tutti__where_t memory_where(const void *ptr);
/* Get the device's view of a range; NULL if the range is empty. A kernel can access pinned memory
   and the memory of its own device; a copy can access any memory. The error text names the
   fault. */
tutti_status_t memory_view(const device_t *device, view_use_t use, const void *ptr, size_t bytes,
                           char **ret_view, char words[WORDS_BYTES]);
/* Free all memory; returns the number of allocations that were not freed. */
int memory_reset(void);
tutti_status_t memory_alloc(size_t bytes, void **ret_ptr);
tutti_status_t memory_host_alloc(size_t bytes, void **ret_ptr);
void memory_free(void *ptr);
void memory_host_free(void *ptr);
/* Like alloc and free, for memory that may be registered. */
tutti_status_t memory_nccl_alloc(size_t bytes, void **ret_ptr);
void memory_nccl_free(void *ptr);
/* Count a registration (by 1) or its end (by -1). Returns 0 if the memory is not from
   memory_nccl_alloc. */
int memory_register(const void *ptr, size_t bytes, int by);

/* ---- stream.c ---- */

/* A piece of work. The stream owns and frees it. */
typedef struct item {
    struct item *next;
    void (*run)(struct item *item, tutti__dstream_t *stream);
} item_t;

/* Resolve NULL to the calling thread's legacy stream. Each function with a stream argument calls
   this first. */
tutti_status_t stream_find(const char *what, tutti__dstream_t **stream);
/* An item of `bytes` bytes, zeroed. */
tutti_status_t stream_item(size_t bytes, void (*run)(item_t *, tutti__dstream_t *), void *ret_item);
/* Queue the item, and take ownership of it, even on failure. */
tutti_status_t stream_push(const char *what, tutti__dstream_t *stream, void *item);
/* Store an error of the stream. Items that run in the stream call it. */
void stream_trouble(tutti__dstream_t *stream, const trouble_t *trouble);
/* The stream's first error. */
trouble_t stream_its_trouble(tutti__dstream_t *stream);
device_t *stream_device(const tutti__dstream_t *stream);
int stream_is_urgent(const tutti__dstream_t *stream);
/* Wait for all work that is queued now. */
void stream_drain(tutti__dstream_t *stream);
/* Drop the errors of a communicator that was freed. */
void streams_forget(device_t *device, const void *owner);
/* Wait for the whole device, as alloc does. */
void device_drain(device_t *device);
/* Note that nccl has a launch in the stream that nccl_poll has not completed yet; nccl NULL: the
   launch is complete. Returns an error if another launch is incomplete. */
tutti_status_t stream_launching(tutti__dstream_t *stream, tutti__nccl_t *nccl);
void stream_end_legacy(device_t *device);
/* Sleep until `bytes` bytes would have passed at this rate since begin_ns. */
void stream_pace(uint64_t begin_ns, size_t bytes, double rate);

tutti_status_t stream_make(int is_urgent, tutti__dstream_t **ret_stream);
void stream_drop(tutti__dstream_t *stream);
int stream_captures(tutti__dstream_t *stream);

/* ---- event.c ---- */

tutti_status_t event_make(tutti__devent_t **ret_event);
void event_drop(tutti__devent_t *event);
tutti_status_t event_record(tutti__devent_t *event, tutti__dstream_t *stream);
tutti_status_t event_wait(tutti__dstream_t *stream, tutti__devent_t *event);
tutti_status_t event_query(tutti__devent_t *event);
tutti_status_t event_timer(tutti__devent_t **ret_timer);
tutti_status_t event_elapsed(tutti__devent_t *start, tutti__devent_t *stop, double *ret_us);

/* ---- word.c ---- */

tutti_status_t word_all(void **ret_words);
tutti_status_t word_await(tutti__dstream_t *stream, const void *word, uint32_t value);

/* ---- work.c ---- */

tutti_status_t work_copy(void *dst, const void *src, size_t bytes, tutti__dstream_t *stream);
tutti_status_t work_pack(const tutti__piece_t *pieces, size_t npieces, tutti_dtype_t from,
                         tutti_dtype_t to, double scale, tutti__dstream_t *stream);
tutti_status_t work_sum(void *dst, const void *const *srcs, size_t nsrcs, size_t count,
                        tutti_dtype_t dtype, uint32_t divisor, tutti__dstream_t *stream);

/* ---- cast.c ---- */

/* Returns 1 if pack converts this type. */
int cast_serves(tutti_dtype_t dtype);
void cast(void *dst, tutti_dtype_t to, const void *src, tutti_dtype_t from, size_t count,
          double scale);

/* ---- nccl.c ---- */

int nccl_serves(tutti_dtype_t dtype, tutti_op_t op);
tutti_status_t nccl_id(tutti__nccl_id_t *ret_id);
tutti_status_t nccl_open(const tutti__nccl_id_t *id, uint32_t rank, uint32_t size, int is_blocking,
                         tutti__nccl_t **ret_nccl);
int nccl_binds(void);
tutti_status_t nccl_poll(tutti__nccl_t *nccl);
tutti_status_t nccl_call(tutti__nccl_t *nccl, const tutti__nccl_call_t *calls, size_t ncalls,
                         tutti__dstream_t *stream);
void nccl_close(tutti__nccl_t *nccl);
tutti_status_t nccl_register(tutti__nccl_t *nccl, void *ptr, size_t bytes,
                             tutti__nccl_reg_t **ret_reg);
void nccl_deregister(tutti__nccl_t *nccl, tutti__nccl_reg_t *reg);
void nccl_abort(tutti__nccl_t *nccl);
/* Fail the whole communicator, on all ranks. */
tutti_status_t nccl_fail(tutti__nccl_t *nccl, const char *fmt, ...) TUTTI__PRINTF(2, 3);

#endif
