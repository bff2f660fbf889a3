/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank of a test of the MPI module, without the library: `mpi_module MODULE CASE...`. It is
 * started by mpirun through mpi_module.sh, which checks how each case ends.
 *
 * Opens the module as the core does (RTLD_LOCAL), and does not link MPI. If a case simulates an
 * application that uses MPI, it takes MPI's functions from the module's libmpi.
 */
#include "multi/module_check.h"

#include "base/time.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEADLINE_MS 60000u

static void *handle;
static const tutti__mpi_module_t *module;

static void open_meet(tutti__meet_t *ret_meet)
{
    uint32_t mine[2];
    uint32_t *all;

    CHECK_OK(module->meet(&core, NULL, ret_meet));
    me = ret_meet->rank;
    all = calloc(ret_meet->size, sizeof(mine));
    CHECK(all != NULL);
    for (uint32_t trip = 0; trip < 3; trip++) {
        mine[0] = me;
        mine[1] = me * me + trip;
        CHECK_OK(ret_meet->allgather(ret_meet->ctx, mine, sizeof(mine), all, DEADLINE_MS));
        for (uint32_t r = 0; r < ret_meet->size; r++)
            CHECK(all[2 * r] == r && all[2 * r + 1] == r * r + trip);
    }
    free(all);
}

static void fence(const tutti__meet_t *meet)
{
    char mine = 0;
    char all[64];

    CHECK(meet->size <= sizeof(all));
    CHECK_OK(meet->allgather(meet->ctx, &mine, 1, all, DEADLINE_MS));
}

/* Message k of a sequence: its length and its bytes. */
static size_t length_of(uint32_t k, size_t slot_bytes)
{
    static const size_t lengths[] = { 0, 1, 7, 64, 4095, 4096, 4097, 65536, (size_t)-1 };
    size_t length = lengths[k % (sizeof(lengths) / sizeof(lengths[0]))];

    return length < slot_bytes ? length : slot_bytes;
}

/* One direction of traffic: sends or receives messages 0..total-1. The receiver expects one to five
   messages at a time. */
typedef struct {
    const tutti__xport_ops_t *ops;
    tutti__chan_t *chan;
    size_t slot_bytes;
    uint32_t from;
    uint32_t total, next, expected;
    int pending; /* 1: a send from `block` is in flight */
    unsigned char *block;
} flow_t;

static int send_step(flow_t *flow)
{
    tutti__hint_t hint = { NULL, 0, -2 };
    tutti_status_t status;
    size_t bytes = length_of(flow->next, flow->slot_bytes);

    if (flow->pending) {
        status = flow->ops->flush(flow->chan, &hint);
        CHECK(status == TUTTI_OK || (status == TUTTI__AGAIN && hint.peer >= 0));
        if (status == TUTTI__AGAIN)
            return 0;
        memset(flow->block, 0xee, flow->slot_bytes);
        flow->pending = 0;
        flow->next++;
        return 1;
    }
    if (flow->next == flow->total)
        return 0;
    write_message(flow->block, flow->from, flow->next, bytes);
    status = flow->ops->send(flow->chan, flow->block, bytes, 1, &flow->pending, &hint);
    CHECK(status == TUTTI_OK || status == TUTTI__AGAIN);
    if (status == TUTTI_OK && !flow->pending)
        flow->next++;
    return status == TUTTI_OK;
}

static int recv_step(flow_t *flow)
{
    tutti__hint_t hint = { NULL, 0, -2 };
    size_t bytes = length_of(flow->next, flow->slot_bytes);
    const void *data = NULL;
    const void *same = NULL;
    tutti_status_t status;

    if (flow->next == flow->expected && flow->next < flow->total) {
        uint32_t call = TUTTI__MIN(1 + flow->next % 5, flow->total - flow->next);

        CHECK_OK(flow->ops->expect(flow->chan, call));
        flow->expected += call;
    }
    if (flow->next == flow->total)
        return 0;
    status = flow->ops->view(flow->chan, bytes, 1, &data, &hint);
    if (status == TUTTI__AGAIN) {
        CHECK(hint.peer == (int32_t)flow->from && hint.word == NULL);
        return 0;
    }
    CHECK_OK(status);
    CHECK_OK(flow->ops->view(flow->chan, bytes, 1, &same, &hint));
    CHECK(same == data);
    CHECK(is_message(data, flow->from, flow->next, bytes));
    flow->ops->release(flow->chan);
    flow->next++;
    return 1;
}

static int flow_done(const flow_t *flow)
{
    return flow->next == flow->total && !flow->pending;
}

static void open_flow(tutti__xport_t *xport, size_t slot_bytes, tutti__chan_key_t key, int receives,
                      uint32_t total, flow_t *ret_flow)
{
    tutti__chan_t *same;

    *ret_flow = (flow_t){ .ops = xport->ops, .slot_bytes = slot_bytes, .total = total };
    ret_flow->from = receives ? key.peer : me;
    ret_flow->block = malloc(slot_bytes);
    CHECK(ret_flow->block != NULL);
    if (receives) {
        CHECK_OK(xport->ops->open_recv(xport, &key, &ret_flow->chan));
        CHECK_OK(xport->ops->open_recv(xport, &key, &same));
    } else {
        CHECK_OK(xport->ops->open_send(xport, &key, &ret_flow->chan));
        CHECK_OK(xport->ops->open_send(xport, &key, &same));
    }
    CHECK(same == ret_flow->chan);
}

/* Both directions around a ring, at the same time, in one lane: four flows. */
static void ring(tutti__xport_t *xport, size_t slot_bytes, uint32_t size, uint32_t lane,
                 uint32_t total)
{
    uint32_t right = (me + 1) % size;
    uint32_t left = (me + size - 1) % size;
    uint64_t start = tutti__now_ns();
    flow_t out[2];
    flow_t in[2];

    open_flow(xport, slot_bytes, KEY(lane, right, 0), 0, total, &out[0]);
    open_flow(xport, slot_bytes, KEY(lane, left, 0), 1, total, &in[0]);
    open_flow(xport, slot_bytes, KEY(lane, left, 3), 0, total, &out[1]);
    open_flow(xport, slot_bytes, KEY(lane, right, 3), 1, total, &in[1]);
    CHECK(out[0].chan != in[0].chan && out[0].chan != out[1].chan);
    while (!(flow_done(&out[0]) && flow_done(&out[1]) && flow_done(&in[0]) && flow_done(&in[1]))) {
        int moved = 0;

        for (int i = 0; i < 2; i++)
            moved += send_step(&out[i]) + recv_step(&in[i]);
        if (!moved) {
            CHECK_OK(xport->ops->progress(xport));
            sched_yield();
        }
        CHECK(tutti__now_ns() - start < DEADLINE_MS * UINT64_C(1000000));
    }
    for (int i = 0; i < 2; i++) {
        free(out[i].block);
        free(in[i].block);
    }
}

static void exchange(const tutti__meet_t *meet, size_t slot_bytes, uint32_t credits, uint32_t total)
{
    tutti__xport_t *xport;

    CHECK_OK(module->xport_open(meet, slot_bytes, credits, &xport));
    CHECK(strcmp(xport->ops->name, "mpi") == 0);
    for (uint32_t lane = 0; lane < TUTTI__LANES; lane += 2)
        ring(xport, slot_bytes, meet->size, lane, total);
    xport->ops->close(xport);
}

static void case_data(void)
{
    tutti__meet_t meet;

    open_meet(&meet);
    exchange(&meet, 4096, 1, 100);
    exchange(&meet, 262144, 4, 60);
    exchange(&meet, 1, 3, 100);
    meet.close(meet.ctx);
}

/* Two transports that are opened with one meeting do not receive each other's messages. */
static void case_two_xports(void)
{
    tutti__xport_t *one;
    tutti__xport_t *two;
    tutti__meet_t meet;

    open_meet(&meet);
    CHECK_OK(module->xport_open(&meet, 1024, 2, &one));
    CHECK_OK(module->xport_open(&meet, 8192, 3, &two));
    ring(two, 8192, meet.size, 1, 50);
    ring(one, 1024, meet.size, 1, 50);
    two->ops->close(two);
    one->ops->close(one);
    meet.close(meet.ctx);
}

/* Open and close the transport twice, as tutti_finalize and a second tutti_init do. */
static void case_twice(void)
{
    tutti__meet_t meet;

    for (int i = 0; i < 3; i++) {
        open_meet(&meet);
        exchange(&meet, 5000, 2, 20);
        meet.close(meet.ctx);
    }
}

/* Two threads, like Tutti's own thread and a direct call, each with its own lane. */
typedef struct {
    tutti__xport_t *xport;
    uint32_t size, lane;
} lane_job_t;

static void *run_lane(void *arg)
{
    lane_job_t *job = arg;

    ring(job->xport, 65536, job->size, job->lane, 200);
    return NULL;
}

static void case_threads(void)
{
    lane_job_t jobs[3];
    pthread_t threads[3];
    tutti__xport_t *xport;
    tutti__meet_t meet;

    open_meet(&meet);
    CHECK_OK(module->xport_open(&meet, 65536, 2, &xport));
    CHECK(xport->ops->may_progress(xport, 1));
    for (uint32_t i = 0; i < 3; i++) {
        jobs[i] = (lane_job_t){ xport, meet.size, i };
        CHECK(pthread_create(&threads[i], NULL, run_lane, &jobs[i]) == 0);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    xport->ops->close(xport);
    meet.close(meet.ctx);
}

/* A forked child's exit must not end the parent's MPI. */
static void case_fork(void)
{
    tutti__meet_t meet;
    int status = -1;
    pid_t child;

    open_meet(&meet);
    exchange(&meet, 5000, 2, 20);
    meet.close(meet.ctx);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(module->meet(&core, NULL, &meet) == TUTTI_ERR_UNSUPPORTED);
        exit(7);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    open_meet(&meet);
    exchange(&meet, 5000, 2, 20);
    meet.close(meet.ctx);
}

/* Repeats view until it is not AGAIN. */
static tutti_status_t view(tutti__xport_t *xport, tutti__chan_t *chan, size_t bytes)
{
    uint64_t start = tutti__now_ns();
    tutti__hint_t hint;
    const void *data;
    tutti_status_t status;

    do {
        status = xport->ops->view(chan, bytes, 0, &data, &hint);
        CHECK(tutti__now_ns() - start < DEADLINE_MS * UINT64_C(1000000));
    } while (status == TUTTI__AGAIN);
    return status;
}

/* Rank 0 sends `sent` bytes, rank 1 expects `wanted`; the other ranks take no part. */
static void wrong_length(const tutti__meet_t *meet, size_t slot_bytes, size_t sent, size_t wanted)
{
    char block[4096] = { 0 };
    char both[2][32];
    tutti__xport_t *xport;
    tutti__chan_t *chan;
    tutti__hint_t hint;
    int pending;

    CHECK_OK(module->xport_open(meet, me == 0 ? sizeof(block) : slot_bytes, 2, &xport));
    if (me == 0) {
        CHECK_OK(xport->ops->open_send(xport, &KEY(0, 1, 0), &chan));
        CHECK_OK(xport->ops->send(chan, block, sent, 0, &pending, &hint));
        while (pending && xport->ops->flush(chan, &hint) == TUTTI__AGAIN)
            sched_yield();
    } else if (me == 1) {
        CHECK_OK(xport->ops->open_recv(xport, &KEY(0, 0, 0), &chan));
        CHECK_OK(xport->ops->expect(chan, 2));
        CHECK_STATUS(view(xport, chan, wanted), TUTTI_ERR_MISMATCH);
        snprintf(both[0], sizeof(both[0]), "%zu bytes", TUTTI__MIN(sent, slot_bytes));
        snprintf(both[1], sizeof(both[1]), "expects %zu", wanted);
        CHECK(strstr(last_error, both[0]) && strstr(last_error, both[1]));
        CHECK(strstr(last_error, "peer 0"));
        CHECK_STATUS(view(xport, chan, wanted), TUTTI_ERR_MISMATCH);
        xport->ops->cancel(xport, 0);
        CHECK(xport->ops->expect(chan, 1) != TUTTI_OK);
    }
    fence(meet);
    xport->ops->close(xport);
}

static void case_wrong_length(void)
{
    tutti__meet_t meet;

    open_meet(&meet);
    wrong_length(&meet, 4096, 100, 104);
    wrong_length(&meet, 4096, 104, 100);
    wrong_length(&meet, 4096, 0, 4);
    /* The message is longer than the receive. In this case MPICH 4.0 ends the job, with any error
       handler. The message is not larger than an eager message, because Open MPI 4.1.4 would write
       a larger message past the end of the buffer. */
    if (strcmp(module->name, "openmpi") == 0)
        wrong_length(&meet, 64, 128, 64);
    meet.close(meet.ctx);
}

static void case_lent(void)
{
    tutti__xport_t *xport;
    tutti__meet_t meet;
    tutti_status_t status;

    open_meet(&meet);
    CHECK_OK(module->xport_open(&meet, 4096, 2, &xport));
    CHECK_STATUS(xport->ops->take_device(xport, "nonsense"), TUTTI_ERR_UNSUPPORTED);
    CHECK(strstr(last_error, "accepts nonsense memory (MPIX_Query_nonsense_support)") != NULL);
    status = xport->ops->take_device(xport, "cuda");
    CHECK(status == TUTTI_OK || status == TUTTI_ERR_UNSUPPORTED);
    lend_slots(xport, meet.size);
    CHECK(!xport->ops->keeps(xport));
    fence(&meet);
    xport->ops->close(xport);
    meet.close(meet.ctx);
}

/* Each rank expects messages that never arrive, and sends messages that no rank receives. */
static void stuck_traffic(const tutti__meet_t *meet, size_t bytes, tutti__xport_t **ret_xport)
{
    static char block[1 << 20];
    tutti__chan_key_t right = KEY(0, (me + 1) % meet->size, 0);
    tutti__chan_key_t left = KEY(0, (me + meet->size - 1) % meet->size, 1);
    tutti__chan_t *chan;
    tutti__hint_t hint;
    int pending;

    CHECK_OK(module->xport_open(meet, sizeof(block), 4, ret_xport));
    CHECK_OK((*ret_xport)->ops->open_send(*ret_xport, &right, &chan));
    CHECK_OK((*ret_xport)->ops->send(chan, block, bytes, 0, &pending, &hint));
    if (bytes == sizeof(block)) {
        CHECK_STATUS((*ret_xport)->ops->send(chan, block, bytes, 0, &pending, &hint), TUTTI__AGAIN);
        CHECK(hint.peer == (int32_t)right.peer);
        CHECK_STATUS((*ret_xport)->ops->flush(chan, &hint), TUTTI__AGAIN);
    }
    CHECK_OK((*ret_xport)->ops->open_recv(*ret_xport, &left, &chan));
    CHECK_OK((*ret_xport)->ops->expect(chan, 9));
}

static void case_cancel(void)
{
    static const size_t sizes[] = { 8, 1 << 20 };
    tutti__xport_t *xport;
    tutti__meet_t meet;
    tutti__chan_t *chan;
    tutti__hint_t hint;
    uint64_t start;
    int pending;

    open_meet(&meet);
    for (int i = 0; i < 2; i++) {
        stuck_traffic(&meet, sizes[i], &xport);
        start = tutti__now_ns();
        xport->ops->cancel(xport, 0);
        CHECK(tutti__now_ns() - start < UINT64_C(15000000000));
        CHECK_OK(xport->ops->open_send(xport, &KEY(0, (me + 1) % meet.size, 0), &chan));
        CHECK_STATUS(xport->ops->send(chan, &start, 8, 0, &pending, &hint), TUTTI_ERR_TRANSPORT);
        ring(xport, 1 << 20, meet.size, 1, 20);
        fence(&meet);
        /* MPI may still read the long message, which no rank receives. */
        CHECK(xport->ops->keeps(xport) == (sizes[i] > 8));
        xport->ops->close(xport);
    }
    meet.close(meet.ctx);
    /* The program continues: a new meeting receives no abandoned message. */
    open_meet(&meet);
    exchange(&meet, 4096, 2, 30);
    meet.close(meet.ctx);
}

/* Rank 1 is killed while messages are in flight, and the launcher does not end the other ranks. */
static void case_killed(void)
{
    tutti__xport_t *xport;
    tutti__meet_t meet;
    uint64_t start;

    open_meet(&meet);
    stuck_traffic(&meet, 1 << 20, &xport);
    if (me == 1)
        raise(SIGKILL);
    start = tutti__now_ns();
    while (tutti__now_ns() - start < UINT64_C(500000000)) {
        if (xport->ops->progress(xport) != TUTTI_OK)
            break;
        usleep(1000);
    }
    module->give_up();
    xport->ops->cancel(xport, 0);
    xport->ops->close(xport);
    meet.close(meet.ctx);
    CHECK(tutti__now_ns() - start < UINT64_C(15000000000));
}

/* Rank 0 fails while the other ranks sleep. At its exit it must not wait for them. */
static void case_give_up(void)
{
    tutti__meet_t meet;

    open_meet(&meet);
    fence(&meet);
    if (me != 0)
        sleep(60);
    meet.close(meet.ctx);
    module->give_up();
}

/* As give_up, but rank 0 leaves without tutti_finalize. */
static void case_leave(void)
{
    tutti__meet_t meet;

    open_meet(&meet);
    fence(&meet);
    if (me != 0)
        sleep(60);
}

/* The other ranks do not take part in the second gather. */
static void case_timeout(void)
{
    tutti__meet_t meet;
    char mine = 1;
    char all[64];
    uint64_t start;

    open_meet(&meet);
    if (me != 0)
        sleep(60);
    start = tutti__now_ns();
    CHECK_STATUS(meet.allgather(meet.ctx, &mine, 1, all, 300), TUTTI_ERR_TIMEOUT);
    CHECK(tutti__now_ns() - start < UINT64_C(15000000000));
    CHECK(meet.allgather(meet.ctx, &mine, 1, all, 300) != TUTTI_OK);
    meet.close(meet.ctx);
    puts("timed out as it should");
}

/* The other ranks do not take part in the first gather. */
static void case_timeout_first(void)
{
    tutti__meet_t meet;
    char mine = 1;
    char all[64];

    CHECK_OK(module->meet(&core, NULL, &meet));
    if (meet.rank != 0)
        sleep(60);
    CHECK_STATUS(meet.allgather(meet.ctx, &mine, 1, all, 300), TUTTI_ERR_TIMEOUT);
    meet.close(meet.ctx);
    puts("timed out as it should");
}

/* A function of MPI, for the cases that simulate an application. */
static void *mpi_function(const char *name)
{
    void *function = dlsym(handle, name);

    CHECK(function != NULL);
    return function;
}

static int app_init(int level)
{
    int (*init)(int *, char ***, int, int *);
    void *function = mpi_function("MPI_Init_thread");
    int got = -1;

    memcpy(&init, &function, sizeof(init));
    CHECK(init(NULL, NULL, level, &got) == 0);
    return got;
}

static void app_finalize(void)
{
    int (*finalize)(void);
    void *function = mpi_function("MPI_Finalize");

    memcpy(&finalize, &function, sizeof(finalize));
    CHECK(finalize() == 0);
}

static void *ask_may_progress(void *arg)
{
    tutti__xport_t *xport = arg;

    return (void *)(intptr_t)xport->ops->may_progress(xport, 0);
}

static void *meet_elsewhere(void *arg)
{
    tutti__meet_t meet;

    (void)arg;
    CHECK_STATUS(module->meet(&core, NULL, &meet), TUTTI_ERR_UNSUPPORTED);
    CHECK(strstr(last_error, "initialised MPI") != NULL);
    return NULL;
}

/* Levels 0 to 3 are SINGLE, FUNNELED, SERIALIZED, MULTIPLE, in Open MPI and in MPICH. */
static void app_level(int level)
{
    int got = app_init(level);
    tutti__xport_t *xport;
    tutti__meet_t meet;
    pthread_t thread;
    void *other;

    CHECK(got >= level);
    if (got < 2) {
        CHECK(pthread_create(&thread, NULL, meet_elsewhere, NULL) == 0);
        pthread_join(thread, NULL);
    }
    open_meet(&meet);
    CHECK_OK(module->xport_open(&meet, 64, 1, &xport));
    CHECK(xport->ops->may_progress(xport, 0));
    CHECK(xport->ops->may_progress(xport, 1) == (got == 3));
    CHECK(pthread_create(&thread, NULL, ask_may_progress, xport) == 0);
    pthread_join(thread, &other);
    CHECK((intptr_t)other == (got >= 2));
    xport->ops->close(xport);
    exchange(&meet, 4096, 2, 30);
    meet.close(meet.ctx);
    app_finalize();
    printf("level %d given for %d\n", got, level);
}

static void case_app_single(void)
{
    app_level(0);
}

static void case_app_funneled(void)
{
    app_level(1);
}

static void case_app_serialized(void)
{
    app_level(2);
}

static void case_app_multiple(void)
{
    app_level(3);
}

/* The application calls MPI_Finalize while Tutti still runs, with messages in flight. */
static void app_ends_first(int ours)
{
    tutti__xport_t *xport;
    tutti__meet_t meet;
    tutti__meet_t late;
    tutti__chan_t *chan;
    tutti__hint_t hint;
    char all[64];
    int pending;

    if (!ours)
        app_init(3);
    open_meet(&meet);
    stuck_traffic(&meet, 1 << 20, &xport);
    fence(&meet);
    app_finalize();
    CHECK_STATUS(xport->ops->progress(xport), TUTTI_ERR_SHUTDOWN);
    CHECK_OK(xport->ops->open_send(xport, &KEY(0, 0, 0), &chan));
    CHECK_STATUS(xport->ops->send(chan, all, 1, 0, &pending, &hint), TUTTI_ERR_SHUTDOWN);
    CHECK_OK(xport->ops->open_recv(xport, &KEY(0, 0, 0), &chan));
    CHECK_STATUS(xport->ops->expect(chan, 1), TUTTI_ERR_SHUTDOWN);
    CHECK_STATUS(meet.allgather(meet.ctx, all, 1, all, 100), TUTTI_ERR_SHUTDOWN);
    xport->ops->cancel(xport, 0);
    xport->ops->close(xport);
    meet.close(meet.ctx);
    CHECK_STATUS(module->meet(&core, NULL, &late), TUTTI_ERR_UNSUPPORTED);
    CHECK(strstr(last_error, "finalized") != NULL);
}

static void case_app_ends_first(void)
{
    app_ends_first(0);
}

static void case_app_ends_ours(void)
{
    app_ends_first(1);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    { "data", case_data },
    { "two_xports", case_two_xports },
    { "twice", case_twice },
    { "threads", case_threads },
    { "fork", case_fork },
    { "wrong_length", case_wrong_length },
    { "lent", case_lent },
    { "cancel", case_cancel },
    { "killed", case_killed },
    { "give_up", case_give_up },
    { "leave", case_leave },
    { "timeout", case_timeout },
    { "timeout_first", case_timeout_first },
    { "app_single", case_app_single },
    { "app_funneled", case_app_funneled },
    { "app_serialized", case_app_serialized },
    { "app_multiple", case_app_multiple },
    { "app_ends_first", case_app_ends_first },
    { "app_ends_ours", case_app_ends_ours },
};

/* Makes libmpi global, as the core does: Open MPI's plugins use its symbols without linking it. */
static void make_mpi_global(void)
{
    Dl_info where;

    CHECK(dladdr(dlsym(handle, "PMPI_Init"), &where) != 0);
    CHECK(dlopen(where.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD) != NULL);
}

static void run_case(const char *name)
{
    case_name = name;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(cases[i].name, case_name) == 0) {
            cases[i].run();
            printf("rank %u: %s passed\n", me, case_name);
            return;
        }
    }
    die(__LINE__, "no case %s", name);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: mpirun -np N mpi_module MODULE CASE...\n");
        return 2;
    }
    case_name = argv[2];
    handle = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    make_mpi_global();
    module = dlsym(handle, "tutti_module");
    CHECK(module != NULL && module->abi == TUTTI__MODULE_ABI);
    for (int i = 2; i < argc; i++)
        run_case(argv[i]);
    return 0;
}
