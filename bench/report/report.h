/* SPDX-License-Identifier: BSD-3-Clause */
/* tutti_report: dumps of all ranks' flight recorders, and the verdict on each communicator. */
#ifndef TUTTI_BENCH_REPORT_H
#define TUTTI_BENCH_REPORT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define REPORT_TEXT 512
#define NO_RANK (-1)

/* A pending tensor of a rank. */
typedef struct {
    char name[80], hash[20], call[24], dtype[24], op[24];
    int64_t since_ns, count;
    int is_agreed;  /* it is in a bucket */
    int is_lacking; /* judge.c: some ranks have not submitted it */
    int64_t bucket;
} tensor_t;

/* A bucket in flight in a lane. */
typedef struct {
    char name[80], doing[40];
    int64_t since_ns;                        /* 0: it does not wait */
    int64_t bucket, tensors, peer, step, of; /* peer: NO_RANK: not known */
    int64_t received, sent;                  /* messages from or to `peer` so far; -1: not known */
    int64_t messages, bytes;                 /* all of them; bytes of the next one */
} lane_t;

/* A rank's part of a communicator. */
typedef struct {
    char kind[16]; /* "world" or "group" */
    char id[20];   /* of the communicator; "": an older library, whose dumps have `ordinal` */
    int64_t first, ordinal, size, rank, world_rank;
    char host[80];
    int64_t offset_ns, now_ns; /* now: of the dump, on the common clock */
    int64_t status;            /* 0: it has not ended */
    char text[REPORT_TEXT];
    tensor_t *tensors;
    size_t ntensors;
    int64_t lost; /* submissions that the recorder has no entry for */
    lane_t *lanes;
    size_t nlanes;
    int is_direct; /* a direct call waits */
    char direct_call[24], direct_dtype[24];
    int64_t direct_since_ns, direct_count, direct_peer;
    int waits; /* threads in tutti_wait */
    /* The last event before the end of the communicator. */
    char last_kind[16], last_name[80];
    int64_t last_ns; /* 0: none */
} part_t;

/* All parts of all dumps. */
typedef struct {
    part_t *parts;
    size_t nparts;
} dumps_t;

/* read.c: add one dump of a file: the dump of a failure, or if there is none, the last dump. 0: the
   file was not read, and an error was printed. */
int read_dump(const char *path, dumps_t *dumps);
void free_dumps(dumps_t *dumps);

/* The verdict on one communicator. */
typedef enum {
    VERDICT_NOTHING, /* no rank waits, and there is no failure */
    VERDICT_FAILED,  /* only the reason is known */
    VERDICT_NO_DUMP, /* some ranks left no dump; the others wait */
    VERDICT_TENSOR,  /* a tensor that some ranks have not submitted */
    VERDICT_ORDER,   /* the ranks wait for different tensors */
    VERDICT_BUCKET,  /* a bucket in flight makes no progress */
    VERDICT_DIRECT,  /* a direct call that some ranks do not make */
    VERDICTS
} verdict_t;

typedef struct {
    const part_t **part; /* [size]: by rank; NULL: no dump */
    int64_t size, now_ns;
    const part_t *any; /* one of the parts, of a failed rank if there is one */
    verdict_t verdict;
    int *culprit;  /* [size] */
    int *waiting;  /* [size] */
    int *lacking;  /* [size] */
    tensor_t what; /* TENSOR, ORDER: the tensor; BUCKET: the first tensor of the bucket */
    const lane_t *lane;
    int64_t since_ns; /* of the wait, on the common clock; 0: none */
} judged_t;

/* judge.c: judge the communicator of dumps->parts[at]. 0: an earlier part belongs to the same
   communicator. */
int judge(const dumps_t *dumps, size_t at, judged_t *ret_judged);
void free_judged(judged_t *judged);
/* The lane of a rank with the bucket of judged->lane; NULL: it has none. */
const lane_t *judged_lane(const judged_t *judged, int64_t rank);

/* trace.c: make a trace of parts that were left behind. 0: some were not read; errors were
   printed. */
int join_parts(const char *path, char **parts, int nparts);

/* print.c: a paragraph, or one line of JSON. */
void print_judged(FILE *out, const judged_t *judged, int json);

#endif
