/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank fails, and the other ranks must report it in time. See faults.sh.
 *
 * usage: faults_check FOLDER FAULT PHASE VICTIM RANKS-PER-HOST. Each rank except the victim writes
 * a file of one line into FOLDER when it has passed. A stopped victim is killed when all these
 * files exist.
 */
#include "checks.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>

enum {
    TENSORS = 6,
    STEPS = 8,
    SMALL = 512,
    LARGE = 1 << 18,
    LIMIT_S = 60 /* more than a busy machine needs; less than TUTTI_TIMEOUT, except for `stop` */
};

static const char *folder, *fault, *phase;
static int victim, per_host;
static float data[TENSORS][LARGE];

static int is(const char *what, const char *name)
{
    return strcmp(what, name) == 0;
}

static int dies(void)
{
    return !is(fault, "stop");
}

/* ---- the victim ---- */

/* Files in the folder: "ready0" when rank 0 waits for the fault, "rank0" when it has passed. */
static int count_files(const char *prefix)
{
    DIR *dir = opendir(folder);
    int n = 0;

    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;)
        n += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    if (dir != NULL)
        closedir(dir);
    return n;
}

static FILE *make_file(const char *prefix)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s%d", folder, prefix, rank);
    file = fopen(path, "w");
    CHECK(file != NULL, "%s", path);
    return file;
}

/* Continue in a child. When the child has stopped and all other ranks have passed, this process
   kills the child. Without the child, the launcher itself would stop when its process stops. Call
   this function before tutti_init. */
static void guard(void)
{
    const char *world = getenv("WORLD_SIZE");
    pid_t child = fork();

    if (child == 0)
        return;
    while (count_files("rank") + 1 < atoi(world != NULL ? world : "1") &&
           waitpid(child, NULL, WNOHANG) == 0)
        usleep(20000);
    kill(child, SIGKILL);
    _exit(0);
}

static void fail(void)
{
    if (is(fault, "kill"))
        kill(getpid(), SIGKILL);
    if (is(fault, "exit"))
        exit(0);
    if (is(fault, "stop"))
        kill(getpid(), SIGSTOP);
    OK(tutti_abort(tutti_world(), "the disk is full"));
    OK(tutti_finalize());
    exit(0);
}

/* ---- calls ---- */

static tutti_status_t submit(int t, size_t count, tutti_request_t **ret_request)
{
    char name[32];

    snprintf(name, sizeof(name), "tensor %d", t);
    *ret_request = NULL;
    return tutti_allreduce_async(name, data[t], data[t], count, TUTTI_FLOAT32, TUTTI_MAX,
                                 tutti_world(), NULL, ret_request);
}

static void learn_plan(void)
{
    for (int step = 0; step < STEPS; step++) {
        tutti_request_t *request[TENSORS];

        for (int t = 0; t < TENSORS; t++)
            OK(submit(t, SMALL, &request[t]));
        OK(tutti_wait_all(request, TENSORS, -1));
    }
}

/* Does the error name the victim? If a rank is stopped, rank 0 has only the host that has not
   announced a tensor. So over several hosts the error may name any rank of the victim's host. */
static int names_victim(const char *error)
{
    char text[32];

    if (is(fault, "abort"))
        return strstr(error, "the disk is full") != NULL;
    for (int r = 0; r < size; r++) {
        int host_counts = is(fault, "stop") && per_host < size && r / per_host == victim / per_host;

        snprintf(text, sizeof(text), dies() ? "rank %d was lost" : "rank %d ", r);
        if ((r == victim || host_counts) && strstr(error, text) != NULL)
            return 1;
    }
    return 0;
}

/* A call of a survivor has failed: check its error. */
static void check_error(tutti_status_t status)
{
    CHECK(status == (dies() ? TUTTI_ERR_PEER_LOST : TUTTI_ERR_TIMEOUT), "status %d: %s",
          (int)status, tutti_last_error());
    CHECK(names_victim(tutti_last_error()), "%s", tutti_last_error());
}

/* Submit the tensors, and wait for all of them. They may succeed if the victim has submitted them.
   Afterwards a tensor that the victim has not submitted must fail. */
static void survive(int ntensors, size_t count)
{
    tutti_request_t *request[TENSORS];
    tutti_status_t status;

    for (int t = 0; t < ntensors; t++) {
        status = submit(t, count, &request[t]);
        if (status != TUTTI_OK)
            check_error(status);
    }
    for (int t = 0; t < ntensors; t++) {
        status = request[t] != NULL ? tutti_wait(request[t], -1) : TUTTI_OK;
        if (status != TUTTI_OK)
            check_error(status);
    }
    status = submit(0, 1, &request[0]);
    if (status == TUTTI_OK)
        status = tutti_wait(request[0], -1);
    check_error(status);
}

/* ---- phases ---- */

static void run_victim(void)
{
    tutti_request_t *request;

    for (int t = 0; is(phase, "planned") && t < TENSORS / 2; t++)
        (void)submit(t, SMALL, &request);
    for (int t = 0; is(phase, "flight") && t < TENSORS; t++)
        (void)submit(t, LARGE, &request);
    /* During this pause the other ranks fall asleep in their waits, or leave in the phase
       "finalizing". */
    if (is(phase, "agreeing") || is(phase, "finalizing"))
        usleep(50000);
    fail();
}

static void run_survivor(void)
{
    if (is(phase, "finalizing"))
        return;
    if (is(phase, "idle"))
        usleep(200000);
    survive(is(phase, "idle") ? 0 : TENSORS, is(phase, "flight") ? LARGE : SMALL);
}

int main(int argc, char **argv)
{
    double began, took_s;
    FILE *file;

    CHECK(argc == 6, "usage: faults_check FOLDER FAULT PHASE VICTIM RANKS-PER-HOST");
    folder = argv[1];
    fault = argv[2];
    phase = argv[3];
    victim = atoi(argv[4]);
    per_host = atoi(argv[5]);
    if (is(fault, "stop") && getenv("RANK") != NULL && atoi(getenv("RANK")) == victim)
        guard();
    start_world();
    if (is(phase, "planned"))
        learn_plan();
    OK(tutti_barrier(tutti_world()));
    /* No rank is still in an earlier call when the victim fails. */
    fclose(make_file("ready"));
    while (rank == victim && count_files("ready") < size)
        usleep(1000);
    if (rank == victim)
        run_victim();
    began = now_ms();
    run_survivor();
    /* tutti_finalize succeeds even if a rank has failed, or fails now. */
    OK(tutti_finalize());
    took_s = (now_ms() - began) / 1e3;
    CHECK(took_s < LIMIT_S, "%.1f s", took_s);
    file = make_file("rank");
    fprintf(file, "%.3f s: rank %d: %s\n", took_s, rank, tutti_last_error());
    fclose(file);
    return 0;
}
