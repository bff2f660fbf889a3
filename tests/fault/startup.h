/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs whose ranks meet by tutti_init while a test disturbs them. Each rank is a process; it
 * reports the result of its tutti_init and of a first barrier in shared memory.
 *
 * startup_calls.c replaces the calls that use sockets; each first calls on_call.
 */
#ifndef TUTTI_TESTS_STARTUP_H
#define TUTTI_TESTS_STARTUP_H

#include <tutti/tutti.h>

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    MOST_RANKS = 64,
    MOST_PORTS = 16
};

typedef enum {
    BY_NAME,  /* TUTTI_BOOT=local:NAME */
    BY_ID,    /* an id made by a rank */
    BY_OTHER, /* an id made by another process */
    BY_STORE,
    BY_ENV, /* env://, with a job secret */
    WAYS
} way_t;

extern const char *const way_names[WAYS];

typedef struct {
    way_t way;
    int size;
    const char *hosts; /* one letter per rank; NULL: one host */
    int maker;         /* BY_ID */
    int timeout_s;     /* TUTTI_TIMEOUT */
    int limit_s;       /* limit of the whole job; after this time its processes are killed */
    /* Called in rank `rank` at its start, and just before tutti_init. May be NULL. */
    void (*at_start)(int rank);
    void (*before)(int rank);
} startup_t;

typedef struct {
    atomic_int ended; /* this rank has written the other fields */
    int status;       /* of tutti_init, or of the barrier after it */
    char text[300];
    atomic_ullong ended_ns;
} outcome_t;

/* Shared by all processes of a job; zeroed before each job. */
typedef struct {
    atomic_int ready;       /* ranks about to call tutti_init */
    atomic_ullong fault_ns; /* when a rank died */
    /* For ranks with an on_call. calls: calls that the test counts; sent, accepted: successful
       calls. */
    atomic_int calls, sent, accepted;
    atomic_int got[MOST_RANKS];  /* pieces that each rank has received in tutti_init */
    atomic_int fate;             /* see startup_seal_fate */
    atomic_int port[MOST_PORTS]; /* TCP ports on which a process listens */
    atomic_int nports;
    atomic_int has_id, has_value;
    tutti_unique_id_t id;
    char value[2048]; /* the value in the store */
    size_t value_bytes;
    outcome_t outcome[MOST_RANKS];
} hall_t;

extern hall_t *hall;
extern int startup_rank; /* of this process, after it has called tutti_init; before: -1 */

/* Map the hall; once, by main. */
void startup_open(void);

/* Run a job. 0: all processes have ended before limit_s. */
int startup_run(const startup_t *job);

/* If a rank sets this, it is called before each call that uses a socket, by any thread during
   tutti_init. */
extern void (*on_call)(const char *name);

/* The fate of the rank with an on_call: it dies in tutti_init, or leaves tutti_init alive. The
   first call of startup_seal_fate sets the fate; a later call returns 0 if its fate differs. */
enum {
    DIES = 1,
    LIVES
};
int startup_seal_fate(int fate);

double now_s(void);

#endif
