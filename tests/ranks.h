/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several ranks in one test, without mpirun: as forked processes, or as threads of one process,
 * where TSan checks all ranks.
 *
 * A job is a function that every rank runs with its communicator. A failed CHECK prints both
 * values, with rank and place, and ends the rank; the job then fails.
 */
#ifndef TUTTI_TESTS_RANKS_H
#define TUTTI_TESTS_RANKS_H

#include "api/comm_state.h"

#include <stdio.h>
#include <string.h>
#include <sys/types.h>

/* The argument of a rank's function. */
typedef struct {
    int rank, size;
    tutti_comm_t *comm;
    tutti__comm_t *inside; /* the object that comm leads to */
    void *arg;
} rank_t;

typedef void (*rank_fn_t)(rank_t *self);

typedef struct {
    int size;
    const char *hosts;     /* one letter per rank names its host: "aabbb"; NULL: one host */
    int threads;           /* 1: ranks are threads; 0: processes */
    int timeout_s;         /* for the whole job; 0: 300 s. Long forms have six times as much */
    const char *algorithm; /* TUTTI_ALGORITHM */
    /* Adjusts the settings of a rank; may be NULL. Its deadline begins to apply when all ranks have
       opened the communicator. */
    void (*settings)(tutti__conf_t *conf, int rank);
    rank_fn_t fn;
    void *arg;
    /* Bit r: rank r is expected to die by a signal (processes only). */
    unsigned killed;
} job_t;

/* The object that a handle leads to. */
tutti__comm_t *ranks_inside(const tutti_comm_t *handle);

/* Run a job. Returns 0 if all ranks ended well; otherwise prints which rank did not, and how. */
int ranks_run(const job_t *job);

/* Wait until all ranks of the job have called this. Then set the deadline of a communicator. So no
   rank's deadline can pass while another rank is still in an earlier call. */
void ranks_set_deadline(const rank_t *self, tutti_comm_t *comm, uint64_t ms);

/* The number that makes the name of a job's meeting unique (tag() in tag.h). Tests also use it for
   the names of further meetings of the job's ranks. */
int ranks_tag(void);

/* Print the text, and end this rank as failed. */
void ranks_fail(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), noreturn));

#define CHECK_INT(a, b)                                                                            \
    do {                                                                                           \
        long long a_ = (long long)(a), b_ = (long long)(b);                                        \
        if (a_ != b_)                                                                              \
            ranks_fail(__FILE__, __LINE__, "%s is %lld, %s is %lld", #a, a_, #b, b_);              \
    } while (0)

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond))                                                                               \
            ranks_fail(__FILE__, __LINE__, "not true: %s", #cond);                                 \
    } while (0)

/* Make a call, which must return `want`. */
#define CHECK_STATUS(call, want)                                                                   \
    do {                                                                                           \
        tutti_status_t s_ = (call);                                                                \
        if (s_ != (want))                                                                          \
            ranks_fail(__FILE__, __LINE__, "%s: %s (%s), wanted %s", #call, tutti_strerror(s_),    \
                       s_ == TUTTI_OK ? "" : tutti_last_error(), tutti_strerror(want));            \
    } while (0)

#define CHECK_OK(call) CHECK_STATUS(call, TUTTI_OK)

/* tutti_last_error() must contain `words`. */
#define CHECK_WORDS(words)                                                                         \
    do {                                                                                           \
        if (strstr(tutti_last_error(), (words)) == NULL)                                           \
            ranks_fail(__FILE__, __LINE__, "'%s' does not say '%s'", tutti_last_error(), (words)); \
    } while (0)

/*
 * From now on the transport of pretended hosts, which is shared memory, counts as a transport that
 * advances only when polled, like transports between machines. At this call nothing may be in
 * flight.
 *
 * ops  receives the transport's functions, and must live until the end; the caller may then replace
 *      some of them
 */
void ranks_poll_far(tutti__comm_t *comm, tutti__xport_ops_t *ops);

/* Returns the arguments of an in-place allreduce: float32, sum. */
tutti_call_t ranks_sum(const char *name, void *x, size_t count);

/* Run a job from main. If it fails, print its parameters, and add 1 to `failures`. */
#define RUN_JOB(failures, job)                                                                     \
    do {                                                                                           \
        if (ranks_run(job) != 0) {                                                                 \
            fprintf(stderr, "FAILED: %s:%d: size %d, hosts %s, %s, algorithm %s\n", __FILE__,      \
                    __LINE__, (job)->size, (job)->hosts ? (job)->hosts : "one",                    \
                    (job)->threads ? "threads" : "processes",                                      \
                    (job)->algorithm ? (job)->algorithm : "default");                              \
            (failures)++;                                                                          \
        }                                                                                          \
    } while (0)

/*
 * fork() by a rank, after flushing stdio's streams. In the child the stacks of the rank's other
 * threads belong to no thread, so LeakSanitizer is turned off there.
 */
pid_t ranks_fork(void);

/* 1 if ranks can be processes. With TSan they cannot: it checks only the threads of one process,
   and does not support threads that a process starts after fork. */
int ranks_can_fork(void);

#endif
