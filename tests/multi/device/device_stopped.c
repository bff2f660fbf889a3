/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank is stopped (SIGSTOP) during calls on device memory: at its n-th call of a function of the
 * device, for each function. The other ranks end within the deadline and a bound, with an error
 * that names the stopped rank, and may then free their memory at once. When the stopped rank
 * continues, it ends with an error as well. If it is stopped only for a short while, calls are only
 * delayed.
 *
 * With TUTTI_TEST_SEEN=1 the test prints the phases that occurred.
 */
#include "multi/direct/coll_case.h"
#include "long.h"
#include "multi/device/device_job.h"

#include "base/time.h"
#include "node/nccl/nccl.h"

#include <tutti/cuda.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    RANKS = 3,
    COUNT = 3000,
    TENSORS = 6,
#ifdef TUTTI__SANITIZED
    TIMEOUT_MS = 2000,
#else
    TIMEOUT_MS = 400,
#endif
    /* The longest time from the deadline to the error, on a busy machine. 0.3 to 1 s of it are
       waits for reports. */
    BOUND_MS = 30000
};

/* ---- a device that stops its process ---- */

#define NUMBER(name, params, args) F_##name,
#define NAME(name, params, args) #name,
enum {
    DEVICE_FUNCTIONS(NUMBER) NFUNCTIONS
};
static const char *const names[] = { DEVICE_FUNCTIONS(NAME) };

/* The parameters of a job; set before it starts. */
static struct {
    int function, victim, is_short;
    unsigned at;
    const char *hosts;
} plan;

/* Shared by all ranks. */
static struct {
    atomic_int pid, ended, phases, went_on, victim_ended;
    _Atomic uint64_t stopped_ns, failed_ns; /* failed_ns: when the first call failed */
} * board;

static const tutti__device_ops_t *real;
static atomic_int counts; /* 1: calls are counted from here on */
static atomic_uint calls;
static tutti__comm_t *its_comm;

/* The phases of the victim's lanes: a bit for each phase of nccl.h, and of staged calls. */
static int phases(void)
{
    const tutti__nccl_node_t *node = (const tutti__nccl_node_t *)its_comm->device.node;
    int seen = 0;

    for (int i = 0; i < TUTTI__DEVICE_LANES; i++)
        seen |= 1 << node->lane[i].phase;
    return seen;
}

static void hit(int function)
{
    if (!atomic_load(&counts) || function != plan.function ||
        atomic_fetch_add(&calls, 1) != plan.at)
        return;
    atomic_store(&board->phases, phases());
    atomic_store(&board->stopped_ns, tutti__now_ns());
    raise(SIGSTOP); /* kill() may deliver it to another thread, and return */
    atomic_store(&board->went_on, 1);
}

#define PASS(name, params, args)                                                                   \
    static tutti_status_t stopping_##name params                                                   \
    {                                                                                              \
        hit(F_##name);                                                                             \
        return real->name args;                                                                    \
    }

DEVICE_FUNCTIONS(PASS)

static const tutti__device_ops_t *stopping_device(void)
{
    static tutti__device_ops_t ops;

    real = pretend_device();
    ops = *real;
#define PUT(name, params, args) ops.name = stopping_##name;
    DEVICE_FUNCTIONS(PUT)
    return &ops;
}

/* ---- the ranks' calls ---- */

/* Calls by NCCL, by NCCL in pieces, staged, and in the stream. */
static tutti_status_t direct(tutti_comm_t *comm, float *a)
{
    float *b = a + 8 * COUNT;
    tutti_status_t status;

    status = tutti_allreduce(a, b, COUNT, TUTTI_INT32, TUTTI_AVG, comm);
    if (status == TUTTI_OK)
        status = tutti_reduce_scatter(a, a, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm);
    if (status == TUTTI_OK)
        status = tutti_alltoall(a, a, COUNT, TUTTI_FLOAT32, comm);
    if (status == TUTTI_OK)
        status = tutti_scan(a, b, COUNT, TUTTI_INT16, TUTTI_BXOR, comm);
    if (status == TUTTI_OK)
        status = tutti_cuda_allreduce(a, b, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm, NULL);
    return status;
}

static tutti_status_t asynchronous(tutti_comm_t *comm, float *a)
{
    tutti_request_t *requests[TENSORS];
    tutti_status_t status = TUTTI_OK, waited;
    char words[256] = "", name[16];
    int n = 0;

    for (; n < TENSORS && status == TUTTI_OK; n++) {
        tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;

        snprintf(name, sizeof(name), "t%d", n);
        options.prescale = n == 1 ? 0.5 : 0;
        status =
            tutti_allreduce_async(name, a + n * COUNT, a + (TENSORS + n) * COUNT, COUNT / 4,
                                  n == 3 ? TUTTI_INT16 : TUTTI_FLOAT32,
                                  n == 3 ? TUTTI_BXOR : TUTTI_SUM, comm, &options, &requests[n]);
        if (status != TUTTI_OK)
            break;
    }
    for (int i = 0; i < n; i++) {
        waited = tutti_wait(requests[i], -1);
        if (status == TUTTI_OK && waited != TUTTI_OK)
            snprintf(words, sizeof(words), "%s", tutti_last_error());
        if (status == TUTTI_OK)
            status = waited;
    }
    return words[0] == '\0' ? status : tutti__fail(status, "%s", words);
}

/*
 * Lets the victim continue: after a while, or when the others have ended. Sends no more SIGCONTs
 * than needed: a SIGCONT during LeakSanitizer's own stop, at the end of the process, would undo
 * that stop, and LeakSanitizer would wait for ever.
 */
static void *wake_victim(void *arg)
{
    (void)arg;
    while (!atomic_load(&board->went_on) && !atomic_load(&board->victim_ended)) {
        if (atomic_load(&board->stopped_ns) == 0) {
            usleep(1000);
            continue;
        }
        if (plan.is_short)
            usleep(100000);
        while (!plan.is_short && atomic_load(&board->ended) < RANKS - 1)
            usleep(1000);
        kill(atomic_load(&board->pid), SIGCONT);
        usleep(5000); /* the victim may stop some instructions later */
    }
    return NULL;
}

static void check_end(rank_t *self, tutti_status_t status, const char *words)
{
    uint64_t stopped = atomic_load(&board->stopped_ns);
    char victim[16];

    /* On a busy machine the deadline may pass before the victim stops. */
    if (stopped == 0 && !plan.is_short && status == TUTTI_ERR_TIMEOUT)
        return;
    if (stopped == 0 || plan.is_short) {
        if (status != TUTTI_OK)
            ranks_fail(__FILE__, __LINE__, "%s", words);
        return;
    }
    CHECK(status != TUTTI_OK);
    /* A call may also have failed shortly before the victim was stopped. */
    if (self->rank == plan.victim || atomic_load(&board->failed_ns) < stopped)
        return;
    snprintf(victim, sizeof(victim), "rank %d", plan.victim);
    /* The text must name the victim, but not at its beginning, where the reporting rank is
       named. */
    if (strstr(words, victim) == NULL || strncmp(words, victim, strlen(victim)) == 0 ||
        (status != TUTTI_ERR_TIMEOUT && status != TUTTI_ERR_TRANSPORT))
        ranks_fail(__FILE__, __LINE__, "\"%s\" (%s) does not name rank %d", words,
                   tutti_strerror(status), plan.victim);
    CHECK(tutti__now_ns() - stopped < (TIMEOUT_MS + BOUND_MS) * 1000000ull);
}

static void stopped(rank_t *self)
{
    tutti_status_t status = TUTTI_OK;
    uint64_t none = 0;
    int is_victim = self->rank == plan.victim;
    device_job_t job;
    pthread_t waker;
    char words[512] = "";

    its_comm = self->inside;
    device_begin(&job, self, (size_t)COUNT * 64);
    if (is_victim)
        atomic_store(&board->pid, getpid());
    CHECK_OK(tutti_barrier(self->comm));
    /* Opening the communicator may take longer on a busy machine. */
    if (!plan.is_short)
        self->inside->conf.shared.timeout_ms = TIMEOUT_MS;
    if (self->rank == (plan.victim + 1) % RANKS)
        CHECK_INT(pthread_create(&waker, NULL, wake_victim, NULL), 0);
    atomic_store(&counts, is_victim);
    for (int i = 0; i < 3 && status == TUTTI_OK; i++) {
        status = direct(self->comm, (float *)(void *)job.memory);
        if (status == TUTTI_OK)
            status = asynchronous(self->comm, (float *)(void *)job.memory);
    }
    if (status == TUTTI_OK)
        status = tutti_barrier(self->comm);
    if (status != TUTTI_OK)
        atomic_compare_exchange_strong(&board->failed_ns, &none, tutti__now_ns());
    snprintf(words, sizeof(words), "%s", status != TUTTI_OK ? tutti_last_error() : "");
    atomic_store(&counts, 0);
    if (is_victim)
        atomic_store(&board->victim_ended, 1);
    job.ops->free(job.memory);
    check_end(self, status, words);
    if (!is_victim)
        atomic_fetch_add(&board->ended, 1);
    if (self->rank == (plan.victim + 1) % RANKS)
        CHECK_INT(pthread_join(waker, NULL), 0);
}

static void settings(tutti__conf_t *conf, int rank)
{
    device_settings(conf, rank);
    conf->shared.timeout_ms = 20000;
}

/* ---- jobs ---- */

/* Returns the number of failures. *ret_came: was the victim stopped at all? */
static int run_one(int *ret_came)
{
    job_t job = { .size = RANKS, .hosts = plan.hosts, .fn = stopped, .settings = settings };
    int failures = pretend_prepare(RANKS) != 0;

    memset(board, 0, sizeof(*board));
    atomic_store(&counts, 0);
    atomic_store(&calls, 0);
    RUN_JOB(failures, &job);
    (void)pretend_reset();
    *ret_came = atomic_load(&board->stopped_ns) != 0;
    if (failures != 0)
        fprintf(stderr, "FAILED: rank %d stopped at call %u of %s, hosts %s, %s\n", plan.victim,
                plan.at, names[plan.function], plan.hosts != NULL ? plan.hosts : "one",
                plan.is_short ? "short" : "long");
    return failures;
}

/* The quick form tests every third function; each run_all begins one function later. */
static int whole, turn;

static int run_all(int victim, const char *hosts, int is_short, unsigned step)
{
    static const char *const phase[] = { "idle", "meet", "turn", "launch", "flight" };
    int failures = 0, came = 0, seen[5] = { 0 }, n = 0;

    plan.victim = victim;
    plan.hosts = hosts;
    plan.is_short = is_short;
    for (plan.function = whole ? 0 : turn++ % 3; plan.function < NFUNCTIONS;
         plan.function += whole ? 1 : 3) {
        plan.at = 0;
        do {
            failures += run_one(&came);
            n += came;
            for (int i = 0; i < 5 && came; i++)
                seen[i] += atomic_load(&board->phases) >> i & 1;
            plan.at += 1 + step * plan.at;
        } while (came && plan.at < 40);
    }
    if (getenv("TUTTI_TEST_SEEN") != NULL) {
        printf("rank %d, hosts %s, %s: %d stops;", victim, hosts != NULL ? hosts : "one",
               is_short ? "short" : "long", n);
        for (int i = 0; i < 5; i++)
            printf(" %s %d", phase[i], seen[i]);
        printf("\n");
    }
    return failures;
}

int main(void)
{
    int failures = 0;

    if (!ranks_can_fork())
        return 77;
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 1;
    tutti__module_lend_device(stopping_device());
    whole = test_is_long("two of three functions for each rank and place");
    failures += run_all(1, NULL, 0, 3);
    failures += run_all(0, NULL, 0, 9);
    failures += run_all(1, "aab", 0, 9);
    failures += run_all(2, "aab", 0, 9);
    failures += run_all(1, "aab", 1, 9);
    return failures != 0;
}
