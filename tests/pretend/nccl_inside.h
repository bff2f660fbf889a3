/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the files of the pretended NCCL: the mapping that all ranks share, and the private data
 * of a rank.
 *
 * A rank that waits in the mapping polls with short sleeps, and does not sleep on a futex. So if a
 * rank dies in such a wait, it blocks no other rank.
 */
#ifndef TUTTI_TESTS_PRETEND_NCCL_INSIDE_H
#define TUTTI_TESTS_PRETEND_NCCL_INSIDE_H

#include "pretend/inside.h"

#define SLOTS 64
#define SHARED_DEVICES 64
#define LAUNCHES 128
/* Ranks copy through pieces of this many bytes. The number is a multiple of the size of every
   type. */
#define PIECE_BYTES 32768

/* The place of a buffer. number: the number of its registration, from 1; 0: not registered. */
typedef struct {
    uint64_t number;
    int64_t offset;
} at_t;

/* The properties of a call that must be equal on all ranks. */
typedef struct {
    int kind, dtype, op;
    uint32_t root;
    size_t count, index, ncalls;
    int has_src, has_dst;
    at_t src, dst;
} desc_t;

typedef struct {
    uint64_t begun; /* number of collectives that this rank has begun */
    uint64_t step;
    desc_t desc; /* the last collective begun */
    int joined, device;
    uint64_t host; /* hash of NCCL_HOSTID */
    /* Remaining sends and receives of the rank's current group, by peer. */
    unsigned sends[PRETEND_RANKS], recvs[PRETEND_RANKS];
} member_t;

/* Messages from one rank to another, one at a time. */
typedef struct {
    uint64_t sent, received;  /* numbers begun by the sender, and ended by the receiver */
    size_t count, taken, len; /* taken, len: bytes received, and bytes in the piece */
    int dtype, is_registered;
} chan_t;

/* A communicator. */
typedef struct {
    pthread_mutex_t lock;        /* protects the fields below */
    uint64_t serial;             /* 0: free; under the mapping's lock */
    uint32_t size, joined, left; /* joined: ranks that connect */
    uint32_t finalized;          /* counted by tests/cuda_libs/ */
    atomic_int is_failed;
    char words[WORDS_BYTES];
    member_t members[PRETEND_RANKS];
    chan_t chans[PRETEND_RANKS][PRETEND_RANKS];
} slot_t;

typedef struct {
    uint64_t serial, first; /* the communicator, and the number of its first collective */
} launch_t;

typedef struct {
    int pid, device; /* pid 0: free */
    uint64_t n;
    launch_t ring[LAUNCHES];
} launches_t;

typedef struct {
    pthread_mutex_t lock; /* protects serials, devices */
    uint64_t serials;
    size_t bytes; /* of the whole mapping */
    uint32_t nranks;
    launches_t devices[SHARED_DEVICES];
    slot_t slots[SLOTS];
} shared_t;

#define REGISTERED 8

struct tutti__nccl_reg {
    const char *begin; /* NULL: free */
    size_t bytes;
    uint64_t number;
};

struct tutti__nccl {
    slot_t *slot;
    uint64_t serial;
    uint32_t rank, size;
    device_t *device;
    launches_t *launches;
    int is_blocking;
    int is_bound;     /* only `caller` may poll, until nccl_poll is OK */
    pthread_t caller; /* the thread of the last open or call */
    int stands;       /* 1: nccl_poll has reported it as connected */
    int no_space;     /* 1: this rank never connects, so the other ranks never connect */
    unsigned polls;
    struct group *launching;      /* the call that nccl_poll has not queued yet */
    tutti__dstream_t *stream;     /* of the last call */
    uint64_t groups, collectives; /* number of calls */
    atomic_ullong groups_done;
    atomic_uint in_flight;
    atomic_int in_use;         /* 1: a thread is in one of the communicator's functions */
    atomic_int is_aborted;     /* 1: this rank has aborted; the other ranks are not informed */
    pthread_mutex_t regs_lock; /* protects the fields below; taken after the slot's lock */
    tutti__nccl_reg_t regs[REGISTERED];
    uint64_t nregistered; /* number of all registrations so far */
};

/* One nccl_call. */
typedef struct group {
    item_t item;
    tutti__nccl_t *nccl;
    uint64_t number;
    int hangs;
    size_t ncalls;
    tutti__nccl_call_t calls[];
} group_t;

/* ---- nccl_shared.c ---- */

extern shared_t *pretend_shared; /* NULL: not prepared */

void shared_lock(pthread_mutex_t *lock);
/* The memory for the pieces of rank `rank` of a communicator, or for its pieces to rank `to`. */
char *shared_window(const tutti__nccl_t *nccl, uint32_t rank);
char *shared_channel(const tutti__nccl_t *nccl, uint32_t rank, uint32_t to);
/* The entry of this process's device in the mapping. */
launches_t *shared_launches(int device);
/* Record a launch of collectives. Returns 0 if another device has launched this collective and a
   collective of another communicator in the opposite order. words: a text that names both. */
int shared_launch(const tutti__nccl_t *nccl, char words[WORDS_BYTES]);
/* Sleep for a short time, which grows with `tries`. */
void shared_nap(unsigned *tries);

/* ---- nccl_register.c ---- */

at_t register_find(tutti__nccl_t *nccl, const void *ptr);
/* Find the places of this rank's buffers. In place, the rank's part of a buffer counts as the whole
   buffer. */
void register_describe(tutti__nccl_t *nccl, const tutti__nccl_call_t *call, desc_t *desc);
/* Returns the reason why the calls of two ranks do not match, or why one call is inconsistent.
   NULL: the calls are correct. */
const char *register_mixes(const desc_t *a, const desc_t *b);
/* End all registrations, because the communicator closes or is aborted. */
void register_end(tutti__nccl_t *nccl, int is_aborted);

/* nccl.c. Has the communicator failed, or was it aborted on this rank? */
int nccl_is_over(const tutti__nccl_t *nccl);

/* ---- nccl_run.c, nccl_messages.c: 0: the communicator has failed ---- */

int nccl_collective(tutti__nccl_t *nccl, const tutti__nccl_call_t *call, size_t index,
                    size_t ncalls);
int nccl_messages(tutti__nccl_t *nccl, const tutti__nccl_call_t *calls, size_t ncalls);
/* Get the device's view of a call's buffer. An error breaks the device and the communicator. */
int nccl_view(tutti__nccl_t *nccl, const char *what, const void *ptr, size_t bytes,
              char **ret_view);

#endif
