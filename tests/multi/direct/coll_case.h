/* SPDX-License-Identifier: BSD-3-Clause */
/* One direct call with equal parts, and a check of all its effects and of unchanged memory. */
#ifndef TUTTI_TESTS_COLL_CASE_H
#define TUTTI_TESTS_COLL_CASE_H

#include "ranks.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* For job_t.settings: pieces are small, so that little data executes every code path. */
enum {
    CHUNK_BYTES = 4096,
    AREA_BYTES = 1 << 20
};
void small_pieces(tutti__conf_t *conf, int rank);
/* small_one_piece: the same with one piece in flight. small_uncompared: the same without comparison
   of calls. */
void small_one_piece(tutti__conf_t *conf, int rank);
void small_uncompared(tutti__conf_t *conf, int rank);

enum {
    MOST_RANKS = 8
};

/* Run a job; returns 1 if it has failed. settings: as in job_t. */
int run_job_with(rank_fn_t fn, int size, const char *hosts, int threads,
                 void (*settings)(tutti__conf_t *conf, int rank));
/* The same in small pieces. */
int run_small(rank_fn_t fn, int size, const char *hosts, int threads);

/* Check that all calls still work, without effects of earlier calls. */
void case_works(rank_t *self);
/* Check that the status is the status of a mismatch, and that the mismatch has ended the
   communicator. */
void case_is_dead(rank_t *self, tutti_status_t status);

/* The collectives with equal parts. */
enum {
    CASE_KINDS = 10
};
extern const tutti_call_kind_t case_kinds[CASE_KINDS];

/* The places of results and operands. */
typedef enum {
    APART,
    IN_PLACE,
    MIXED,        /* in place on odd ranks */
    IN_PLACE_MPI, /* reduce_scatter: recvbuf is sendbuf; others: as IN_PLACE */
    PLACES
} place_t;

typedef enum {
    PRIVATE, /* at odd addresses */
    SHARED,  /* from tutti_mem_alloc, with a different offset in each rank's memory */
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
    size_t bytes; /* of own and of shared, each */
    unsigned salt;
    const size_t
        *offsets; /* [2] offsets in a cache line, below 64, of sendbuf and recvbuf; NULL: as
                     memory_t defines */
    char *device; /* the caller's device memory, of `bytes`; read and write access it */
    void (*read)(void *dst, const void *device_src, size_t bytes);
    void (*write)(void *device_dst, const void *src, size_t bytes);
} area_t;

void area_open(area_t *area, rank_t *self, size_t bytes);
void area_close(area_t *area);

/* Make the call `c` with these arguments; returns its status. */
tutti_status_t case_call(const case_t *c, const void *sendbuf, void *recvbuf, tutti_comm_t *comm);

/* Fill buffers, call, and compare every element; also check that sendbuf, and the memory around
   recvbuf, are unchanged. wanted: the status; if not TUTTI_OK, no recvbuf may change. */
void case_run(area_t *area, const case_t *c, tutti_status_t wanted);

/* case_run in all places and memories, with all roots. */
void case_ways(area_t *area, tutti_call_kind_t kind, tutti_dtype_t dtype, tutti_op_t op,
               size_t count);
/* case_ways with some types and operations, for small counts and for counts of several chunks. */
void case_in_all_ways(area_t *area, tutti_call_kind_t kind);
/* The same for all kinds. */
void case_all_ways(rank_t *self);
/* case_run with a root, place and memory that follow from `turn`. Consecutive turns go through all
   combinations of these. */
void case_turn(area_t *area, tutti_call_kind_t kind, tutti_dtype_t dtype, tutti_op_t op,
               size_t count, unsigned turn);
/* A number of elements that is more than two chunks for each rank. */
size_t case_several_chunks(const rank_t *self, size_t esize);

/* In run_each_algorithm, the arg of the ranks that run fn. */
typedef struct {
    const tutti__algorithm_t *algorithm;
    int ordered; /* the algorithm, and its sub-algorithm if it has one, keep the order of ranks */
} forced_t;

/* Run fn with each algorithm of the table that serves these hosts, forced by TUTTI_ALGORITHM, in
   small pieces; returns the number of failed jobs. */
int run_each_algorithm(rank_fn_t fn, int size, const char *hosts, int threads);

int case_is_rooted(tutti_call_kind_t kind);
int case_reduces(tutti_call_kind_t kind);

#endif
