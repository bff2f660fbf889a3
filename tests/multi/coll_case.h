/* SPDX-License-Identifier: BSD-3-Clause */
/* One direct call with equal parts, and the check of all that it should do and should not. */
#ifndef TUTTI_TESTS_COLL_CASE_H
#define TUTTI_TESTS_COLL_CASE_H

#include "ranks.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Small pieces, so that little data takes every road: for job_t.settings. */
enum {
    CHUNK_BYTES = 4096,
    AREA_BYTES = 1 << 20
};
void small_pieces(tutti__conf_t *conf, int rank);

enum {
    MOST_RANKS = 8
};

/* Does everything still work, and is nothing left over from before? */
void case_works(rank_t *self);
/* tutti_last_error() says them. */
void check_words(const char *words);

/* The collectives with equal parts. */
enum {
    CASE_KINDS = 10
};
extern const tutti_call_kind_t case_kinds[CASE_KINDS];

/* Where results and operands are. */
typedef enum {
    APART,
    IN_PLACE,
    MIXED,        /* in place on ranks with odd numbers */
    IN_PLACE_MPI, /* reduce_scatter: recvbuf is sendbuf; others: as IN_PLACE */
    PLACES
} place_t;

typedef enum {
    PRIVATE, /* at odd addresses */
    SHARED,  /* from tutti_mem_alloc, at another offset on each rank */
    SOME_SHARED,
    MEMORIES,
    DEVICE = MEMORIES /* needs area->device */
} memory_t;

typedef struct {
    tutti_call_kind_t kind; /* BROADCAST to EXSCAN, but no v forms */
    tutti_dtype_t dtype;
    tutti_op_t op;
    size_t count;
    int root;
    place_t place;
    memory_t memory;
} case_t;

/* A rank's memory for cases. */
typedef struct {
    rank_t *self;
    char *own, *shared;
    size_t bytes; /* of each */
    unsigned salt;
    const size_t
        *offsets; /* [2] bytes behind a cache line, below 64, of sendbuf and recvbuf; NULL: as
                              memory_t says */
    char *device; /* as large, the caller's; and how it is looked into */
    void (*read)(void *dst, const void *device_src, size_t bytes);
    void (*write)(void *device_dst, const void *src, size_t bytes);
} area_t;

void area_open(area_t *area, rank_t *self, size_t bytes);
void area_close(area_t *area);

/* Make the call that `c` says with what is in the argument; the status. */
tutti_status_t case_call(const case_t *c, const void *sendbuf, void *recvbuf, tutti_comm_t *comm);

/* Fill buffers, call, and compare every element; also that sendbuf, and what is around recvbuf,
   stayed as it was. wanted: the status; with others than TUTTI_OK, no recvbuf was touched. */
void case_run(area_t *area, const case_t *c, tutti_status_t wanted);

/* The same in all places and memories, with all roots. */
void case_ways(area_t *area, tutti_call_kind_t kind, tutti_dtype_t dtype, tutti_op_t op,
               size_t count);
/* Some types and operations in all ways, small and of several chunks. */
void case_in_all_ways(area_t *area, tutti_call_kind_t kind);
/* How many elements are more than two chunks for each rank. */
size_t case_several_chunks(const rank_t *self, size_t esize);

/* What fn gets as its rank's arg. */
typedef struct {
    const tutti__algorithm_t *algorithm;
    int ordered; /* with its sub, if it has one */
} forced_t;

/* Run fn with each algorithm of the table that serves these hosts forced by TUTTI_ALGORITHM, in
   small pieces; how many jobs failed. */
int run_each_algorithm(rank_fn_t fn, int size, const char *hosts, int threads);

int case_is_rooted(tutti_call_kind_t kind);
int case_reduces(tutti_call_kind_t kind);

#endif
