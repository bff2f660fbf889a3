/* SPDX-License-Identifier: BSD-3-Clause */
/* Declarations shared by the files of this room; no other room includes this file. */
#ifndef TUTTI__STATS_STATS_INSIDE_H
#define TUTTI__STATS_STATS_INSIDE_H

#include "stats/stats.h"

/* ---- counting.c ---- */

void tutti__stats_free(tutti__stats_t *stats);

/* ---- phase.c ---- */

/* by 1: one more thread waits; -1: one fewer. Returns the time now. */
uint64_t tutti__phase_wait(tutti__stats_phases_t *phases, int by);
/* Read the times of the phases, until now. */
void tutti__phase_read(tutti__stats_phases_t *phases, tutti_stats_t *ret_stats);

/* ---- metrics.c and summary.c ---- */

/* A text that grows. If there is no memory, the text stays as it is, and `failed` is set. */
typedef struct {
    char *at; /* ends with 0; NULL: empty */
    size_t bytes, capacity;
    int failed;
} tutti__stats_text_t;

void tutti__stats_append(tutti__stats_text_t *text, const char *fmt, ...) TUTTI__PRINTF(2, 3);
/* Write all statistics of a list in the Prometheus text format. */
void tutti__stats_metrics(tutti__stats_t *list, tutti__stats_text_t *text);
/* Write the table of one communicator, for people. */
void tutti__stats_summary(tutti__stats_t *stats, tutti__stats_text_t *text);
/* The name of a kind of call, such as "allreduce"; static. */
const char *tutti__stats_call_name(tutti_call_kind_t kind);

/* ---- http.c: the endpoint; called by the thread of output.c ---- */

#define TUTTI__HTTP_CLIENTS 8
#define TUTTI__HTTP_BYTES 2048 /* of a request */

typedef struct {
    int fd; /* -1: no client */
    int is_answered;
    uint64_t until_ns; /* when the connection is closed at the latest */
    size_t got, sent;
    char request[TUTTI__HTTP_BYTES];
    tutti__stats_text_t answer;
} tutti__http_client_t;

/* The result of parsing a request. */
typedef enum {
    TUTTI__HTTP_MORE, /* the request is not complete */
    TUTTI__HTTP_METRICS,
    TUTTI__HTTP_NOT_FOUND,
    TUTTI__HTTP_METHOD, /* another method than GET */
    TUTTI__HTTP_BAD
} tutti__http_asks_t;

/* Listen at 127.0.0.1; returns a descriptor, or -1 and errno. */
int tutti__http_listen(int port);
/* Parse the beginning of a request. is_full 1: there is no space for more bytes. */
tutti__http_asks_t tutti__http_parse(const char *request, size_t bytes, int is_full);
/* Make the answer. metrics: the body of the answer to METRICS. */
void tutti__http_answer(tutti__http_asks_t asks, const tutti__stats_text_t *metrics,
                        tutti__stats_text_t *answer);

#endif
