/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the pretended NCCL's files share: the mapping that all ranks have, and a rank's side.
 *
 * Who waits in the mapping polls with short sleeps instead of sleeping on a word, so that a rank
 * which dies there harms nobody.
 */
#ifndef TUTTI_TESTS_PRETEND_NCCL_INSIDE_H
#define TUTTI_TESTS_PRETEND_NCCL_INSIDE_H

#include "pretend/inside.h"

#define SLOTS 64
#define SHARED_DEVICES 64
#define LAUNCHES 128
/* Ranks copy through pieces of so many bytes; a multiple of every element's size. */
#define PIECE_BYTES 32768

/* Where a buffer is: number 0: not registered; else of the registration, counted from 1. */
typedef struct {
    uint64_t number;
    int64_t offset;
} at_t;

/* What ranks must agree on. */
typedef struct {
    int kind, dtype, op;
    uint32_t root;
    size_t count, index, ncalls;
    int has_src, has_dst;
    at_t src, dst;
} desc_t;

typedef struct {
    uint64_t begun; /* collectives that it has begun */
    uint64_t step;
    desc_t desc; /* the last one begun */
    int joined, device;
    uint64_t host; /* hash of NCCL_HOSTID */
    /* Sends and receives that are left of the group it is in, by peer. */
    unsigned sends[PRETEND_RANKS], recvs[PRETEND_RANKS];
} member_t;

/* Messages from one rank to another, one at a time. */
typedef struct {
    uint64_t sent, received;  /* messages begun by the sender, ended by the receiver */
    size_t count, taken, len; /* taken, len: bytes received, and in the piece */
    int dtype, is_registered;
} chan_t;

/* A communicator. */
typedef struct {
    pthread_mutex_t lock;        /* all below */
    uint64_t serial;             /* 0: free; under the mapping's lock */
    uint32_t size, joined, left; /* joined: those that connect */
    uint32_t finalized;          /* counted by tests/cuda_libs/ */
    atomic_int is_failed;
    char words[WORDS_BYTES];
    member_t members[PRETEND_RANKS];
    chan_t chans[PRETEND_RANKS][PRETEND_RANKS];
} slot_t;

typedef struct {
    uint64_t serial, first; /* the communicator, and the number of the first collective */
} launch_t;

typedef struct {
    int pid, device; /* pid 0: free */
    uint64_t n;
    launch_t ring[LAUNCHES];
} launches_t;

typedef struct {
    pthread_mutex_t lock; /* serials, devices */
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
    int is_bound;     /* to the thread that opened or called, until nccl_poll is OK */
    pthread_t caller; /* that one */
    int stands;       /* nccl_poll has said so */
    int no_space;     /* it will never stand, and others never with it */
    unsigned polls;
    struct group *launching;      /* the call that nccl_poll still has to queue */
    tutti__dstream_t *stream;     /* of the last call */
    uint64_t groups, collectives; /* called */
    atomic_ullong groups_done;
    atomic_uint in_flight;
    atomic_int in_use;         /* a thread is in it */
    atomic_int is_aborted;     /* by this rank: the others do not hear of it */
    pthread_mutex_t regs_lock; /* what follows; taken after the slot's */
    tutti__nccl_reg_t regs[REGISTERED];
    uint64_t nregistered; /* ever */
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
/* Where rank `rank` of a communicator puts its pieces, or those for rank `to`. */
char *shared_window(const tutti__nccl_t *nccl, uint32_t rank);
char *shared_channel(const tutti__nccl_t *nccl, uint32_t rank, uint32_t to);
/* This process's device in the mapping. */
launches_t *shared_launches(int device);
/* Note a launch of collectives. 0: another device has launched this and another communicator's in
   the other order; words say which. */
int shared_launch(const tutti__nccl_t *nccl, char words[WORDS_BYTES]);
/* Sleep a little, longer as tries become more. */
void shared_nap(unsigned *tries);

/* ---- nccl_register.c ---- */

at_t register_find(tutti__nccl_t *nccl, const void *ptr);
/* Where the ranks' buffers are; also of a rank's own part of one, in place. */
void register_describe(tutti__nccl_t *nccl, const tutti__nccl_call_t *call, desc_t *desc);
/* Why two ranks' calls do not go together, or one in itself; NULL: they do. */
const char *register_mixes(const desc_t *a, const desc_t *b);
/* It closes, or is aborted, which forgets all. */
void register_end(tutti__nccl_t *nccl, int is_aborted);

/* nccl.c. It has failed, or was aborted on this rank. */
int nccl_is_over(const tutti__nccl_t *nccl);

/* ---- nccl_run.c, nccl_messages.c: 0: the communicator has failed ---- */

int nccl_collective(tutti__nccl_t *nccl, const tutti__nccl_call_t *call, size_t index,
                    size_t ncalls);
int nccl_messages(tutti__nccl_t *nccl, const tutti__nccl_call_t *calls, size_t ncalls);
/* The device's view of a call's buffer; what is wrong breaks device and communicator. */
int nccl_view(tutti__nccl_t *nccl, const char *what, const void *ptr, size_t bytes,
              char **ret_view);

#endif
