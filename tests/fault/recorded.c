/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The flight recorder and tutti_report. In each case a job of real processes fails in a different
 * way, with TUTTI_DUMP. Then tutti_report reads the dumps. It must name the culprit, the calls in
 * which the others wait, and the culprit's own call.
 *
 * Ranks begin to wait only after all ranks have made their calls, so no case depends on the order
 * of the ranks.
 */
#include "fault/fault.h"

#include "base/log.h"
#include "engine/steps.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS 3
#define MOST_RANKS 4
/* Longest wait for other ranks; the deadline of the waits that fail is shorter. */
#define LIMIT_MS 60000
/* Signals that each rank receives from a child of its own. */
#define SIGNALS 20

static char folder[64], dump_path[96], kept_path[96];

/* All ranks use rank 0's TUTTI_DUMP. */
static void settings(tutti__conf_t *conf, int rank)
{
    conf->shared.timeout_ms = 4000;
    conf->shared.stall_ms = 0;
    conf->shared.compare = 0;
    conf->log_level = TUTTI__LOG_NONE;
    if (rank == 0)
        long_path(conf->shared.dump, dump_path);
}

/* ---- the jobs ---- */

static tutti_request_t *submit_to(tutti_comm_t *comm, const char *name)
{
    static float x[5];
    tutti_request_t *request;

    CHECK_OK(tutti_allreduce_async(name, x, x, 5, TUTTI_FLOAT32, TUTTI_SUM, comm, NULL, &request));
    return request;
}

static tutti_request_t *submit(rank_t *self, const char *name)
{
    return submit_to(self->comm, name);
}

/* Wait until n ranks have called this function. */
static void all_here(int n)
{
    double began = wall_ms();

    atomic_fetch_add(&board->ready, 1);
    while (atomic_load(&board->ready) < n && wall_ms() - began < LIMIT_MS)
        usleep(1000);
    CHECK(atomic_load(&board->ready) >= n);
}

static int has_ended(const tutti_comm_t *comm)
{
    tutti_status_t state;

    CHECK_OK(tutti_comm_state(comm, &state, NULL, 0));
    return state != TUTTI_OK;
}

/* Make no call until the communicator has ended. */
static void idle(const tutti_comm_t *comm)
{
    double began = wall_ms();

    while (!has_ended(comm) && wall_ms() - began < LIMIT_MS)
        usleep(1000);
    CHECK(has_ended(comm));
}

static void wait_badly(tutti_request_t *request, tutti_status_t want)
{
    CHECK_STATUS(tutti_wait(request, -1), want);
}

/* All ranks reduce a tensor, so that the recorder has calls before the failure. */
static void reduce(rank_t *self)
{
    CHECK_OK(tutti_wait(submit(self, "before"), -1));
}

static void never_submits(rank_t *self)
{
    reduce(self);
    if (self->rank == 1) {
        all_here(RANKS);
        idle(self->comm);
        return;
    }
    tutti_request_t *request = submit(self, "grad/7");

    all_here(RANKS);
    wait_badly(request, TUTTI_ERR_TIMEOUT);
}

static void in_other_orders(rank_t *self)
{
    tutti_request_t *request = submit(self, self->rank == 1 ? "b" : "a");

    all_here(RANKS);
    wait_badly(request, TUTTI_ERR_TIMEOUT);
}

static void never_calls(rank_t *self)
{
    reduce(self);
    if (self->rank == 1)
        idle(self->comm);
    else
        CHECK_STATUS(tutti_barrier(self->comm), TUTTI_ERR_TIMEOUT);
}

static void is_in_a_barrier(rank_t *self)
{
    tutti_request_t *request;

    if (self->rank == 1) {
        all_here(RANKS);
        CHECK_STATUS(tutti_barrier(self->comm), TUTTI_ERR_TIMEOUT);
        return;
    }
    request = submit(self, "late");
    all_here(RANKS);
    wait_badly(request, TUTTI_ERR_TIMEOUT);
}

static void is_killed(rank_t *self)
{
    tutti_request_t *request;

    if (self->rank == 1) {
        all_here(RANKS);
        raise(SIGKILL);
    }
    request = submit(self, "grad/7");
    all_here(RANKS);
    wait_badly(request, TUTTI_ERR_PEER_LOST);
}

/* The stopped process is killed when the others have given up, so it never writes a dump. */
static void is_stopped(rank_t *self)
{
    tutti_request_t *request;

    if (self->rank == 1) {
        atomic_store(&board->pid, getpid());
        all_here(RANKS);
        raise(SIGSTOP);
    }
    request = submit(self, "grad/7");
    all_here(RANKS);
    wait_badly(request, TUTTI_ERR_TIMEOUT);
    if (atomic_fetch_add(&board->done, 1) == RANKS - 2)
        kill(atomic_load(&board->pid), SIGKILL);
}

/* Without a comparison of calls, a mismatch between hosts ends the communicator. */
static void differs(rank_t *self)
{
    float x[5] = { 0 };

    tutti_allreduce(x, x, self->rank == 1 ? 5 : 4, TUTTI_FLOAT32, TUTTI_SUM, self->comm);
    CHECK(has_ended(self->comm));
}

/* Is this text in the file? */
static int has_text(const char *path, const char *text)
{
    static char all[1 << 18];
    int fd = open(path, O_RDONLY);
    ssize_t n = fd >= 0 ? read(fd, all, sizeof(all) - 1) : 0;

    all[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
    return strstr(all, text) != NULL;
}

/* Wait until a rank's dump is complete and has this text. Then save the dump: a later stall would
   replace it. */
static void keep_dump(int rank, const char *text)
{
    double began = wall_ms();
    char path[128], kept[128];

    snprintf(path, sizeof(path), "%s.%d", dump_path, rank);
    snprintf(kept, sizeof(kept), "%s.%d", kept_path, rank);
    do
        usleep(10000);
    while (!(has_text(path, text) && has_text(path, "{\"what\":\"end\"}\n")) &&
           wall_ms() - began < LIMIT_MS);
    CHECK(rename(path, kept) == 0);
    CHECK(has_text(kept, text));
}

/* Rank 1 is late, so the other ranks report a stall; rank 1 makes its call after all ranks have
   written dumps. Rank 1 itself does not report a stall; other ranks request its dump. */
static void is_late(rank_t *self)
{
    reduce(self);
    for (int r = 0; self->rank == 1 && r < self->size; r++)
        keep_dump(r, "");
    CHECK_OK(tutti_wait(submit(self, "late"), -1));
}

/* The same with a plan. The other ranks have started the tensor's bucket without agreement. The
   bucket's tensor is then agreed on as usual, so in their dumps the tensor is only submitted. */
static void is_late_in_a_plan(rank_t *self)
{
    for (int step = 0; step < 8; step++)
        CHECK_OK(tutti_wait(submit(self, "late"), -1));
    CHECK(self->inside->engine->its_owners.agreed.plan.plans > 0);
    for (int r = 0; self->rank == 1 && r < self->size; r++)
        keep_dump(r, r == 1 ? "" : "\"state\":\"submitted\"");
    CHECK_OK(tutti_wait(submit(self, "late"), -1));
}

/* A mesh of 2 x 2 ranks: each is in a row and in a column. Rank 0 is the first rank of the row
   {0, 1} and of the column {0, 2}. Rank 2 is the second rank of this column, and is late there. */
static void in_a_mesh(rank_t *self)
{
    tutti_comm_t *row, *column;

    CHECK_OK(tutti_comm_split(self->comm, self->rank / 2, self->rank, &row));
    CHECK_OK(tutti_comm_split(self->comm, self->rank % 2, self->rank, &column));
    if (self->rank == 2) {
        keep_dump(0, "\"state\":\"submitted\"");
        keep_dump(2, "");
    }
    CHECK_OK(tutti_wait(submit_to(column, "late"), -1));
    if (self->rank % 2 == 1) {
        CHECK_OK(tutti_dump(dump_path));
        keep_dump(self->rank, "");
    }
    CHECK_OK(tutti_comm_free(column));
    CHECK_OK(tutti_comm_free(row));
}

/* In a ring, rank 3 submits a tensor, and then holds its engine's token, so that its engine runs no
   step of the bucket. Rank 0 has sent a message, and waits for rank 3; rank 1 waits for the next
   message of rank 0; rank 2 cannot send to rank 3. */
static void is_in_a_bucket(rank_t *self)
{
    tutti__engine_t *e = self->inside->engine;
    double began = wall_ms();
    tutti_request_t *request;

    while (self->rank != 3 && atomic_load(&board->ready) == 0 && wall_ms() - began < LIMIT_MS)
        usleep(1000);
    request = submit(self, "stuck");
    if (self->rank == 3) {
        tutti__token_await(&e->token);
        tutti__engine_step(e, TUTTI__STEP_WAITER);
        CHECK_INT(atomic_load(&e->pending.queued), 0);
        atomic_store(&board->ready, 1);
        keep_dump(0, "\"received\":0,\"messages\":6");
        keep_dump(1, "\"received\":1,\"messages\":6");
        keep_dump(2, "\"sent\":0,\"messages\":6");
        CHECK_OK(tutti_dump(dump_path));
        keep_dump(3, "");
        tutti__engine_yield(e, TUTTI__STEP_WAITER);
    }
    CHECK_OK(tutti_wait(request, -1));
}

/* The dumps are written long before the stall warning. Then rank 2 ends the communicator. */
static void in_other_orders_early(rank_t *self)
{
    if (self->rank != 2) {
        wait_badly(submit(self, self->rank == 1 ? "b" : "a"), TUTTI_ERR_INTERNAL);
        return;
    }
    for (int r = 0; r < self->size; r++)
        keep_dump(r, r == 2 ? "" : "\"state\":\"submitted\"");
    CHECK_STATUS(tutti__engine_kill(self->inside->engine, TUTTI_ERR_INTERNAL, "the test is over"),
                 TUTTI_ERR_INTERNAL);
}

static void no_stall(tutti__conf_t *conf, int rank)
{
    settings(conf, rank);
    conf->shared.timeout_ms = 2 * LIMIT_MS;
    conf->shared.stall_ms = 2 * LIMIT_MS;
}

static void half_a_second(tutti__conf_t *conf, int rank)
{
    settings(conf, rank);
    conf->shared.timeout_ms = LIMIT_MS;
    conf->shared.stall_ms = 500;
}

static void in_a_ring(tutti__conf_t *conf, int rank)
{
    half_a_second(conf, rank);
    strcpy(conf->shared.algorithm, "allreduce:ring");
}

/* ---- tutti_dump ---- */

static void handler(int number)
{
    (void)number;
    if (tutti_dump(dump_path) == TUTTI_OK)
        atomic_fetch_add(&board->done, 1);
}

/* Dumps in a signal handler, while this thread is inside the library. Each dump must be
   complete. */
static void in_a_handler(rank_t *self)
{
    struct sigaction action = { .sa_handler = handler };
    struct sigaction before;
    pid_t child;
    int status = -1;
    char name[32];

    CHECK(sigaction(SIGUSR1, &action, &before) == 0);
    CHECK_OK(tutti_barrier(self->comm));
    child = ranks_fork();
    if (child == 0) {
        /* The communicator is the parent's, so this child writes no dump. */
        errno = 77;
        if (tutti_dump(dump_path) != TUTTI_ERR_INVALID_ARGUMENT || errno != 77)
            _exit(1);
        for (int i = 0; i < SIGNALS; i++) {
            kill(getppid(), SIGUSR1);
            usleep(2000);
        }
        _exit(0);
    }
    /* Each signal interrupts this thread at another place. */
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof(name), "t%d", i);
        CHECK_OK(tutti_wait(submit(self, name), -1));
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    CHECK_INT(status, 0);
    CHECK(sigaction(SIGUSR1, &before, NULL) == 0);
    CHECK(atomic_load(&board->done) > 0);
    CHECK_OK(tutti_dump(dump_path));
    CHECK_STATUS(tutti_dump("/nowhere/at/all"), TUTTI_ERR_SYSTEM);
}

/* ---- the reports ---- */

static char *run_report(const char *options)
{
    static char text[16384];
    char command[256];
    size_t n;
    FILE *out;

    snprintf(command, sizeof(command), "%s.0", kept_path);
    snprintf(command, sizeof(command), "./bench/tutti_report %s %s.* 2>&1", options,
             access(command, F_OK) == 0 ? kept_path : dump_path);
    out = popen(command, "r");
    n = out != NULL ? fread(text, 1, sizeof(text) - 1, out) : 0;
    text[n] = '\0';
    if (out == NULL || pclose(out) != 0) {
        fprintf(stderr, "%s: %s\n", command, text);
        return NULL;
    }
    return text;
}

/* The report may break a line between any two words. */
static void join_lines(char *text)
{
    while ((text = strchr(text, '\n')) != NULL)
        *text = ' ';
}

static int has_words(const char *options, const char *const *words)
{
    char *text = run_report(options);

    if (text == NULL)
        return 0;
    join_lines(text);
    for (; *words != NULL; words++)
        if (strstr(text, *words) == NULL) {
            fprintf(stderr, "'%s' is not in the report: %s\n", *words, text);
            return 0;
        }
    return 1;
}

static void remove_dumps(void)
{
    char path[128];

    for (int r = 0; r < MOST_RANKS; r++) {
        snprintf(path, sizeof(path), "%s.%d", dump_path, r);
        unlink(path);
        snprintf(path, sizeof(path), "%s.%d", kept_path, r);
        unlink(path);
    }
}

typedef struct {
    rank_fn_t fn;
    int size;
    const char *hosts;
    unsigned killed;
    void (*settings)(tutti__conf_t *conf, int rank);
    const char *words[6], *json[4];
} case_t;

static const case_t cases[] = {
    { never_submits,
      RANKS,
      NULL,
      0,
      settings,
      { "which has failed: ",
        " s for tensor 'grad/7' (allreduce of 5 elements of float32, sum), which rank 1 has not "
        "submitted.",
        "Ranks 0 and 2 have waited",
        "Rank 1 has no call in progress; the last event there was the end of " },
      { "\"verdict\":\"tensor\"", "\"culprits\":[1],\"waiting\":[0,2],\"lacking\":[1]",
        "\"tensor\":\"grad/7\"" } },
    { in_other_orders,
      RANKS,
      NULL,
      0,
      settings,
      { "The ranks wait for different tensors.", "tensor 'a'", "tensor 'b'" },
      { "\"verdict\":\"order\"" } },
    { in_other_orders_early,
      RANKS,
      NULL,
      0,
      no_stall,
      { "The ranks wait for different tensors.", "tensor 'a'", "tensor 'b'" },
      { "\"verdict\":\"order\"" } },
    { never_calls,
      RANKS,
      NULL,
      0,
      settings,
      { "Ranks 0 and 2 have waited", "in a direct barrier for rank 1.",
        "Rank 1 has no call in progress" },
      { "\"verdict\":\"direct\"", "\"culprits\":[1]" } },
    { never_calls,
      RANKS,
      "aab",
      0,
      settings,
      { "in a direct barrier for rank 1.", "Rank 1 has no call in progress" },
      { "\"verdict\":\"direct\"", "\"culprits\":[1]" } },
    { is_in_a_barrier,
      RANKS,
      NULL,
      0,
      settings,
      { "for tensor 'late'", "which rank 1 has not submitted.", "Rank 1 has waited",
        "in a direct barrier" },
      { "\"verdict\":\"tensor\"", "\"culprits\":[1]" } },
    { is_killed,
      RANKS,
      "aab",
      1 << 1,
      settings,
      { "rank 1 was lost", "Rank 1 left no dump: its process is stopped or has ended",
        "Ranks 0 and 2 wait for tensor 'grad/7'" },
      { "\"verdict\":\"no_dump\"", "\"dumps\":[0,2],\"culprits\":[1]" } },
    { is_stopped,
      RANKS,
      NULL,
      1 << 1,
      settings,
      { "is stopped.", "Rank 1 left no dump", "wait for tensor 'grad/7'" },
      { "\"verdict\":\"no_dump\"", "\"culprits\":[1]" } },
    { differs,
      2,
      "ab",
      0,
      settings,
      { "World of 2 ranks, which has failed: " },
      { "\"verdict\":\"failed\"", "\"reason\":\"" } },
    { is_late,
      RANKS,
      "aab",
      0,
      half_a_second,
      { "World of 3 ranks, which has not failed.", "which rank 1 has not submitted.",
        "Rank 1 has no call in progress" },
      { "\"culprits\":[1]" } },
    { is_late_in_a_plan,
      RANKS,
      NULL,
      0,
      half_a_second,
      { "for tensor 'late'", "which rank 1 has not submitted.", "Ranks 0 and 2 have waited" },
      { "\"verdict\":\"tensor\"", "\"culprits\":[1]" } },
    { in_a_mesh,
      MOST_RANKS,
      NULL,
      0,
      half_a_second,
      { "Group of 2 ranks, from world rank 0, which has not failed. Rank 0 has waited ",
        "for tensor 'late'", "which rank 1 has not submitted. Rank 1 has no call in progress" },
      { "\"first\":0,\"size\":2,\"verdict\":\"tensor\",\"dumps\":[0,1],\"culprits\":[1],"
        "\"waiting\":[0],\"lacking\":[1]" } },
    { is_in_a_bucket,
      MOST_RANKS,
      "abcd",
      0,
      in_a_ring,
      { "in bucket 0 (1 tensor, 'stuck'), in step ",
        "Rank 0 has received 0 of 6 messages from rank 3, and waits for 8 bytes.",
        "Rank 1 has received 1 of 6 messages from rank 0, and waits for 8 bytes.",
        "Rank 2 has sent 0 of 6 messages to rank 3, and waits to send 4 bytes.",
        "leads to rank 3." },
      { "\"verdict\":\"bucket\"", "\"arrived\":[{\"rank\":0,\"step\":",
        "\"peer\":0,\"received\":1,\"messages\":6,\"bytes\":8}" } },
    { in_a_handler,
      2,
      NULL,
      0,
      settings,
      { "World of 2 ranks, which has not failed." },
      { "\"dumps\":[0,1]" } },
};

/* No communicator was opened, so no dump is written. */
static int dumps_nothing(void)
{
    struct stat st;

    return tutti_dump(dump_path) == TUTTI_ERR_INVALID_ARGUMENT && stat(dump_path, &st) != 0;
}

int main(void)
{
    job_t job = { 0 };
    int failures = 0;

    if (!ranks_can_fork())
        return 77;
    strcpy(folder, "/tmp/tutti-recorded-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return 1;
    snprintf(dump_path, sizeof(dump_path), "%s/dump", folder);
    snprintf(kept_path, sizeof(kept_path), "%s/kept", folder);
    board_open();
    tutti__log_setup(TUTTI__LOG_NONE, -1);
    failures += !dumps_nothing();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        job.size = cases[i].size;
        job.hosts = cases[i].hosts;
        job.killed = cases[i].killed;
        job.settings = cases[i].settings;
        job.fn = cases[i].fn;
        board_clear();
        RUN_JOB(failures, &job);
        if (!has_words("", cases[i].words) || !has_words("--json", cases[i].json)) {
            fprintf(stderr, "FAILED: case %zu\n", i);
            failures++;
        }
        remove_dumps();
    }
    rmdir(folder);
    return failures != 0;
}
