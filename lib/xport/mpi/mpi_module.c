/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The MPI of this process: its start, the threads that may call MPI, and the end of MPI.
 *
 * MPI belongs to the process, so this file has the module's only globals. MPI ends in three ways:
 *
 *   the application finalizes MPI  MPI_Finalize first calls a delete callback on MPI_COMM_SELF;
 *                                  after that every call here returns SHUTDOWN
 *   the module started MPI         the module finalizes MPI only at exit, so tutti_init may be
 *                                  called again
 *   ... and the job has failed     MPI is not finalized: MPI_Finalize would wait for ranks that
 *                                  have ended; the launcher ends a job with an unfinalized rank
 *
 * An exit without tutti_finalize counts as a failure: peers may be waiting for this rank, and they
 * receive an error soon only if the launcher detects the exit. Until the process ends, MPI calls of
 * other threads return PEER_LOST, and the text names this rank. These threads may report this
 * status to peers before the peers detect the end of the process.
 *
 * The module requests MPI_THREAD_MULTIPLE. SERIALIZED would suffice for the module's own calls,
 * because they are made under the lock. But an application that finds MPI running (MPI_Initialized)
 * may call MPI as well, without this lock. Tried: SERIALIZED; it saved nothing (0.17 us one way for
 * 8 bytes, 16.5 us for 256 KiB, with either).
 */
#include "xport/mpi/mpi_module.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct kept {
    struct kept *next;
    void *memory;
} kept_t;

typedef enum {
    RUNS,
    FINALIZED, /* or MPI_Finalize is running */
    EXITS      /* the process is exiting, and tutti_finalize was not called */
} state_t;

static struct {
    pthread_mutex_t lock; /* protects the lists, the counts and every call to MPI */
    tutti__mpi_xport_t *xports;
    int meets;
    state_t state;
    kept_t *kept;

    /* Set by the first tutti__mpi_start, then constant. Exception: a later tutti__mpi_start on
       MPI's main thread sets main_thread and has_main. */
    const tutti__core_t *core;
    int started;
    int ours;  /* the module started MPI */
    int level; /* MPI_THREAD_... */
    int most_tag;
    int has_main;
    pthread_t main_thread;
    pid_t pid; /* the process that uses MPI; a forked child cannot use MPI */

    tutti__word_t failed; /* set by tutti__mpi_give_up; not under the lock */
} mpi = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const char *level_name(int level)
{
    switch (level) {
    case MPI_THREAD_SINGLE:
        return "SINGLE";
    case MPI_THREAD_FUNNELED:
        return "FUNNELED";
    case MPI_THREAD_SERIALIZED:
        return "SERIALIZED";
    default:
        return "MULTIPLE";
    }
}

tutti_status_t tutti__mpi_fail(tutti_status_t status, const char *fmt, ...)
{
    char text[TUTTI__ERROR_BYTES];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return mpi.core->fail(status, text);
}

static tutti_status_t status_of(int error_class)
{
    switch (error_class) {
    case MPI_ERR_TRUNCATE:
        return TUTTI_ERR_MISMATCH;
    case MPI_ERR_NO_MEM:
        return TUTTI_ERR_NO_MEMORY;
#ifdef MPIX_ERR_PROC_FAILED
    case MPIX_ERR_PROC_FAILED:
        return TUTTI_ERR_PEER_LOST;
#endif
    default:
        return TUTTI_ERR_TRANSPORT;
    }
}

tutti_status_t tutti__mpi_fail_code(int code, const char *fmt, ...)
{
    char what[TUTTI__ERROR_BYTES];
    char why[MPI_MAX_ERROR_STRING + 1] = "";
    int error_class = MPI_ERR_UNKNOWN;
    int length = 0;
    va_list args;

    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    PMPI_Error_class(code, &error_class);
    PMPI_Error_string(code, why, &length);
    return tutti__mpi_fail(status_of(error_class), "mpi: %.250s: %.200s", what, why);
}

void tutti__mpi_log(tutti__log_level_t level, const char *fmt, ...)
{
    char text[TUTTI__ERROR_BYTES];
    va_list args;

    if (!mpi.core->log_on(level))
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    mpi.core->log(level, text);
}

void tutti__mpi_lock(void)
{
    pthread_mutex_lock(&mpi.lock);
}

void tutti__mpi_leave(void)
{
    pthread_mutex_unlock(&mpi.lock);
}

tutti_status_t tutti__mpi_enter(uint32_t rank)
{
    int exits;

    pthread_mutex_lock(&mpi.lock);
    if (TUTTI__LIKELY(mpi.state == RUNS))
        return TUTTI_OK;
    exits = mpi.state == EXITS;
    pthread_mutex_unlock(&mpi.lock);
    if (exits)
        return tutti__mpi_fail(TUTTI_ERR_PEER_LOST,
                               "world rank %u was lost: its process called exit without "
                               "tutti_finalize",
                               rank);
    return tutti__mpi_fail(TUTTI_ERR_SHUTDOWN, "mpi: MPI has been finalized on world rank %u",
                           rank);
}

int tutti__mpi_is_gone(void)
{
    return mpi.state != RUNS;
}

void tutti__mpi_give_up(void)
{
    tutti__store_release(&mpi.failed, 1);
}

tutti_status_t tutti__mpi_still(void)
{
    return mpi.core->still();
}

int tutti__mpi_most_tag(void)
{
    return mpi.most_tag;
}

/*
 * With MULTIPLE any thread may call MPI. With SERIALIZED, if the module started MPI, the module's
 * lock serialises all threads. If the application started MPI, the application serialises only its
 * own threads, so the engine's thread must not. Below SERIALIZED only the main thread may call MPI.
 */
int tutti__mpi_may_call(int is_engine)
{
    if (mpi.level == MPI_THREAD_MULTIPLE)
        return 1;
    if (mpi.level == MPI_THREAD_SERIALIZED)
        return mpi.ours || !is_engine;
    return !is_engine && mpi.has_main && pthread_equal(pthread_self(), mpi.main_thread);
}

void tutti__mpi_add_xport(tutti__mpi_xport_t *xport)
{
    xport->next = mpi.xports;
    mpi.xports = xport;
}

void tutti__mpi_remove_xport(tutti__mpi_xport_t *xport)
{
    tutti__mpi_xport_t **at = &mpi.xports;

    while (*at != NULL && *at != xport)
        at = &(*at)->next;
    if (*at != NULL)
        *at = xport->next;
}

void tutti__mpi_count_meets(int change)
{
    mpi.meets += change;
}

void tutti__mpi_keep(void *memory)
{
    kept_t *kept = malloc(sizeof(*kept));

    if (kept == NULL)
        return; /* the memory stays allocated, but is not in the list */
    kept->memory = memory;
    kept->next = mpi.kept;
    mpi.kept = kept;
}

/* MPI_Finalize calls this function, which waits until no thread of this module is inside MPI. */
static int self_deleted(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm;
    (void)keyval;
    (void)value;
    (void)extra;
    pthread_mutex_lock(&mpi.lock);
    if (mpi.state == RUNS) {
        for (tutti__mpi_xport_t *xport = mpi.xports; xport != NULL; xport = xport->next)
            tutti__mpi_xport_drop(xport);
        mpi.state = FINALIZED;
    }
    pthread_mutex_unlock(&mpi.lock);
    return MPI_SUCCESS;
}

static tutti_status_t watch_finalize(void)
{
    int keyval = MPI_KEYVAL_INVALID;
    int code;

    code = PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, self_deleted, &keyval, NULL);
    if (code != MPI_SUCCESS)
        return tutti__mpi_fail_code(code, "MPI_Comm_create_keyval");
    code = PMPI_Comm_set_attr(MPI_COMM_SELF, keyval, &mpi);
    PMPI_Comm_free_keyval(&keyval); /* MPI keeps the keyval until the attribute is deleted */
    if (code != MPI_SUCCESS)
        return tutti__mpi_fail_code(code, "MPI_Comm_set_attr");
    return TUTTI_OK;
}

static void finalize_at_exit(void)
{
    int finalized = 0;
    int skip;

    if (getpid() != mpi.pid)
        return;
    if (PMPI_Finalized(&finalized) != MPI_SUCCESS || finalized)
        return;
    pthread_mutex_lock(&mpi.lock);
    skip = mpi.meets > 0 || tutti__load_acquire(&mpi.failed) || !tutti__mpi_may_call(0);
    mpi.state = mpi.meets > 0 ? EXITS : FINALIZED;
    pthread_mutex_unlock(&mpi.lock);
    if (!skip)
        PMPI_Finalize();
}

/* Get the largest tag. MPI guarantees 32767; Open MPI has 2^31 - 1, MPICH at most 2^28 - 1. */
static void ask_most_tag(void)
{
    void *value = NULL;
    int there = 0;

    mpi.most_tag = 32767;
    if (PMPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &there) == MPI_SUCCESS && there)
        mpi.most_tag = *(int *)value;
}

/* Start MPI. MPI waits, without a deadline, until all ranks of the launcher have started it. */
static tutti_status_t start_ours(void)
{
    int code = PMPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &mpi.level);

    if (code != MPI_SUCCESS)
        return tutti__mpi_fail(TUTTI_ERR_TRANSPORT, "mpi: MPI_Init_thread failed with code %d",
                               code);
    mpi.ours = 1;
    if (atexit(finalize_at_exit) != 0)
        return tutti__mpi_fail(TUTTI_ERR_NO_MEMORY, "mpi: atexit failed");
    return TUTTI_OK;
}

static tutti_status_t start_first(void)
{
    tutti_status_t status = TUTTI_OK;
    int initialized = 0;

    mpi.pid = getpid();
    PMPI_Initialized(&initialized);
    if (initialized)
        PMPI_Query_thread(&mpi.level);
    else
        status = start_ours();
    if (status != TUTTI_OK)
        return status;
    PMPI_Is_thread_main(&mpi.has_main);
    mpi.main_thread = pthread_self();
    ask_most_tag();
    status = watch_finalize();
    if (status != TUTTI_OK)
        return status;
    mpi.started = 1;
    tutti__mpi_log(TUTTI__LOG_INFO, "mpi: level %s, started by %s", level_name(mpi.level),
                   mpi.ours ? "tutti" : "the application");
    return TUTTI_OK;
}

tutti_status_t tutti__mpi_start(const tutti__core_t *core)
{
    tutti_status_t status = TUTTI_OK;
    int finalized = 0;
    int is_main = 0;

    mpi.core = core;
    /* In a forked child, MPI's connections are the parent's, and `lock` may be taken for ever. */
    if (mpi.started && mpi.pid != getpid())
        return tutti__mpi_fail(TUTTI_ERR_UNSUPPORTED,
                               "mpi: this process was forked after its parent had started to use "
                               "MPI");
    if (PMPI_Finalized(&finalized) == MPI_SUCCESS && finalized)
        return tutti__mpi_fail(TUTTI_ERR_UNSUPPORTED,
                               "mpi: MPI has been finalized and cannot be started again; "
                               "tutti_init must come before MPI_Finalize");
    if (!mpi.started)
        status = start_first();
    if (status != TUTTI_OK)
        return status;
    /* Ask in each call, because the first call may have been made on another thread. */
    PMPI_Is_thread_main(&is_main);
    if (is_main) {
        mpi.main_thread = pthread_self();
        mpi.has_main = 1;
    }
    if (!tutti__mpi_may_call(0))
        return tutti__mpi_fail(TUTTI_ERR_UNSUPPORTED,
                               "mpi: MPI was initialised with MPI_THREAD_%s: tutti_init must be "
                               "called by the thread that initialised MPI",
                               level_name(mpi.level));
    return TUTTI_OK;
}

#ifdef OPEN_MPI
#define MPI_NAME "openmpi"
#else
#define MPI_NAME "mpich"
#endif

/* The one symbol of the module. */
TUTTI_API extern const tutti__mpi_module_t tutti_module;

const tutti__mpi_module_t tutti_module = {
    .abi = TUTTI__MODULE_ABI,
    .name = MPI_NAME,
    .meet = tutti__mpi_meet,
    .xport_open = tutti__mpi_xport_open,
    .xport_open_part = tutti__mpi_xport_open_part,
    .take_number = tutti__mpi_take_number,
    .give_up = tutti__mpi_give_up,
};
