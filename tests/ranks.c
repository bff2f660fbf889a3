/* SPDX-License-Identifier: BSD-3-Clause */
/* Running jobs of several ranks. See ranks.h. */
#include "ranks.h"

#include "base/log.h"
#include "base/time.h"
#include "engine/state.h"
#include "tag.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAILED 1
/* The deadline of the set-up, and of all waits of jobs without one of their own. On a busy machine
   a rank may start long after the others. */
#define SETUP_MS 120000

static __thread int my_rank = -1;
/* The calls of await_all by all ranks of the job, and by this rank. */
static atomic_int *calls;
static __thread int my_calls;

void ranks_fail(const char *file, int line, const char *fmt, ...)
{
    char text[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    fprintf(stderr, "%s:%d: rank %d: %s\n", file, line, my_rank, text);
    /* End the whole process: if only this thread ended, other threads would wait for it for
       ever. */
    _exit(FAILED);
}

tutti__comm_t *ranks_inside(const tutti_comm_t *handle)
{
    tutti__comm_t *comm;

    CHECK_OK(tutti__comm_of(handle, &comm));
    return comm;
}

tutti_call_t ranks_sum(const char *name, void *x, size_t count)
{
    tutti_call_t call = TUTTI_CALL_INIT;

    call.kind = TUTTI_CALL_ALLREDUCE;
    call.name = name;
    call.sendbuf = call.recvbuf = x;
    call.count = count;
    call.dtype = TUTTI_FLOAT32;
    call.op = TUTTI_SUM;
    return call;
}

int ranks_can_fork(void)
{
#if defined(__SANITIZE_THREAD__)
    return 0;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
    return 0;
#endif
#endif
    return 1;
}

typedef struct {
    const job_t *job;
    int rank;
    char name[64];
    pthread_barrier_t *end; /* threads share mappings, so they close together; NULL: processes */
} member_t;

/* Wait until all ranks of the job have called this. The library has no part in it. */
static void await_all(int size)
{
    int wanted = ++my_calls * size;

    atomic_fetch_add(calls, 1);
    for (int i = 0; i < SETUP_MS && atomic_load(calls) < wanted; i++)
        usleep(1000);
    CHECK(atomic_load(calls) >= wanted);
}

/* The library's thread of a rank with a device may read the deadline at the same time. This is no
   error of the library, so TSan must not see it. */
__attribute__((noinline, no_sanitize("thread"))) static void set_deadline(tutti__comm_t *comm,
                                                                          uint64_t ms)
{
    comm->conf.shared.timeout_ms = ms;
}

void ranks_set_deadline(const rank_t *self, tutti_comm_t *comm, uint64_t ms)
{
    await_all(self->size);
    set_deadline(ranks_inside(comm), ms);
}

static void run_rank(const member_t *m)
{
    rank_t self = { m->rank, m->job->size, NULL, NULL, m->job->arg };
    tutti__conf_t conf;
    tutti__meet_t meet;
    uint64_t wanted_ms;

    my_rank = m->rank;
    my_calls = 0;
    tutti__conf_defaults(&conf);
    conf.shared.timeout_ms = SETUP_MS;
    if (m->job->hosts != NULL)
        snprintf(conf.host_id, sizeof(conf.host_id), "host-%c", m->job->hosts[m->rank]);
    if (m->job->algorithm != NULL)
        snprintf(conf.shared.algorithm, sizeof(conf.shared.algorithm), "%s", m->job->algorithm);
    if (m->job->settings != NULL)
        m->job->settings(&conf, m->rank);
    wanted_ms = conf.shared.timeout_ms;
    conf.shared.timeout_ms = TUTTI__MAX(wanted_ms, SETUP_MS);
    CHECK_OK(tutti__meet_local(m->name, (uint32_t)m->rank, (uint32_t)m->job->size,
                               conf.shared.timeout_ms, &meet));
    CHECK_OK(tutti__comm_open(&meet, NULL, &conf, &self.inside));
    self.comm = self.inside->handle;
    if (wanted_ms < SETUP_MS)
        ranks_set_deadline(&self, self.comm, wanted_ms);
    m->job->fn(&self);
    if (m->end != NULL)
        pthread_barrier_wait(m->end);
    tutti__comm_close(self.inside);
}

static void *thread_main(void *arg)
{
    run_rank(arg);
    return NULL;
}

static int run_threads(const job_t *job, member_t *members)
{
    pthread_barrier_t end;
    pthread_t *threads = calloc((size_t)job->size, sizeof(*threads));

    pthread_barrier_init(&end, NULL, (unsigned)job->size);
    for (int r = 0; r < job->size; r++) {
        members[r].end = &end;
        pthread_create(&threads[r], NULL, thread_main, &members[r]);
    }
    for (int r = 0; r < job->size; r++)
        pthread_join(threads[r], NULL);
    pthread_barrier_destroy(&end);
    free(threads);
    return 0;
}

/* Did a rank end as the job expects? */
static int judge(const job_t *job, int rank, int status)
{
    int expected = (job->killed >> rank & 1) != 0;

    if (WIFSIGNALED(status)) {
        if (!expected)
            fprintf(stderr, "rank %d was ended by signal %d\n", rank, WTERMSIG(status));
        return expected ? 0 : 1;
    }
    if (expected)
        fprintf(stderr, "rank %d ended by itself with %d\n", rank, WEXITSTATUS(status));
    return expected || WEXITSTATUS(status) != 0;
}

/* Wait for all children; after the time limit, kill the remaining ones. In long forms the limit is
   six times as long, as in limit.sh, because they also run with sanitizers, beside other tests. */
static int reap(const job_t *job, const pid_t *pids)
{
    uint64_t times = getenv("TUTTI_TEST_LONG") != NULL ? 6 : 1;
    uint64_t limit = (uint64_t)(job->timeout_s ? job->timeout_s : 300) * times * 1000000000u;
    uint64_t begin = tutti__now_ns();
    int failures = 0, left = job->size, late = 0;

    while (left > 0) {
        int status;
        pid_t pid = waitpid(-1, &status, late ? 0 : WNOHANG);

        if (pid == 0 && tutti__now_ns() - begin > limit) {
            fprintf(stderr, "time limit: %d ranks still run\n", left);
            for (int r = 0; r < job->size; r++)
                if (waitpid(pids[r], &status, WNOHANG) == 0)
                    kill(pids[r], SIGKILL);
            late = failures = 1;
        }
        if (pid == 0)
            usleep(1000);
        if (pid < 0)
            break;
        for (int r = 0; r < job->size; r++) {
            if (pid == pids[r]) {
                left--;
                failures += late || judge(job, r, status);
            }
        }
    }
    return failures;
}

static int is_child;

/* LeakSanitizer calls this function: a result that is not 0 turns off the check of this process. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);

int __lsan_is_turned_off(void)
{
    return is_child;
}

pid_t ranks_fork(void)
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    is_child |= pid == 0;
    return pid;
}

static int run_processes(const job_t *job, member_t *members)
{
    pid_t *pids = calloc((size_t)job->size, sizeof(*pids));
    int failures;

    fflush(NULL);
    for (int r = 0; r < job->size; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            free(pids);
            run_rank(&members[r]);
            free(members);
            exit(0);
        }
    }
    failures = reap(job, pids);
    free(pids);
    return failures;
}

static tutti_status_t nothing(tutti__xport_t *xport)
{
    (void)xport;
    return TUTTI_OK;
}

void ranks_poll_far(tutti__comm_t *comm, tutti__xport_ops_t *ops)
{
    *ops = *comm->shm->ops;
    ops->progress = nothing;
    comm->shm->ops = ops;
    /* Set the lanes as if they had found such a transport when they were opened. */
    for (int i = 1; i < TUTTI__LANES; i++) {
        comm->engine->its_owners.lanes.lane[i].op.far = comm->shm;
        comm->engine->its_owners.lanes.lane[i].op.may_be_far = 1;
    }
}

int ranks_tag(void)
{
    return tag();
}

int ranks_run(const job_t *job)
{
    static int number;
    member_t *members = calloc((size_t)job->size, sizeof(*members));
    int failures;

    if (calls == NULL)
        calls =
            mmap(NULL, sizeof(*calls), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(calls != MAP_FAILED);
    atomic_store(calls, 0);
    number++;
    for (int r = 0; r < job->size; r++) {
        members[r].job = job;
        members[r].rank = r;
        snprintf(members[r].name, sizeof(members[r].name), "tutti-test-%d-%d", ranks_tag(), number);
    }
    failures = job->threads ? run_threads(job, members) : run_processes(job, members);
    free(members);
    return failures;
}
