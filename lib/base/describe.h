/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptions of calls for messages to users: "an allreduce of 8 elements of float32, sum". */
#ifndef TUTTI__BASE_DESCRIBE_H
#define TUTTI__BASE_DESCRIBE_H

#include <stddef.h>
#include <stdint.h>

#include <tutti/tutti.h>

/* Parts of a description, in `has`. */
enum {
    TUTTI__HAS_TYPE = 1,
    TUTTI__HAS_COUNT = 2,  /* only with TYPE */
    TUTTI__HAS_IN_ALL = 4, /* the count is a total; the caller passed the count of one block */
    TUTTI__HAS_OP = 8,
    TUTTI__HAS_ROOT = 16,
    TUTTI__HAS_HOST_ROOT = 32, /* with ROOT: `root` is a number among this host's ranks */
    TUTTI__HAS_TO = 64,        /* to rank `root` */
    TUTTI__HAS_FROM = 128,     /* from rank `source`; with TO: `received` elements from `source` */
    TUTTI__HAS_SCALES = 256,
    TUTTI__HAS_DEVICE = 512
};

typedef struct {
    const char *name; /* "a reduce" */
    unsigned has;
    tutti_dtype_t dtype;
    tutti_op_t op;
    uint32_t root, source;
    uint64_t count, received;
    uint32_t recvcounts; /* the hash of recvcounts; 0: the call has no recvcounts */
    double prescale, postscale;
    tutti_dtype_t wire;              /* element type between hosts; 0: the same as dtype */
    uint32_t group_size, group_hash; /* of the submission group; size 0: no group */
} tutti__description_t;

/* Write a description of `call` into `text`, which has room for `bytes`. Any thread. */
void tutti__describe(char *text, size_t bytes, const tutti__description_t *call);

/* "rank 0 has a scan of 10 elements of float32, sum; rank 2 has a barrier" */
void tutti__describe_both(char *text, size_t bytes, uint32_t rank, const tutti__description_t *call,
                          uint32_t other_rank, const tutti__description_t *other);

#endif
