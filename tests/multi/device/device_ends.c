/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Direct calls on device memory that must fail: buffers in two kinds of memory, ranks with
 * different kinds, a rank that dies, a device that hangs; and communicators whose ranks have
 * different devices, share a GPU, have no NCCL, or cannot open a device. All ranks get the error in
 * time, with a text.
 */
#include "multi/direct/coll_case.h"
#include "multi/device/device_job.h"

#include "base/time.h"
#include "node/nccl/nccl.h"

#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- arguments ---- */

/* An allgatherv of one element of each rank. Its recvbuf is passed later. If `wrong` is not NULL,
   it is first passed as recvbuf, and must be refused with `words`. */
static void receive_later(tutti_comm_t *comm, const void *from, void *wrong, const char *words,
                          void *to)
{
    size_t counts[MOST_RANKS];
    tutti_request_t *request;

    CHECK_OK(tutti_allgatherv_async("later", from, 1, NULL, NULL, NULL, TUTTI_INT32, comm, NULL,
                                    &request));
    CHECK_OK(tutti_request_recvcounts(request, -1, counts));
    if (wrong != NULL) {
        CHECK_STATUS(tutti_request_receive(request, wrong, NULL), TUTTI_ERR_INVALID_ARGUMENT);
        CHECK_WORDS(words);
    }
    CHECK_OK(tutti_request_receive(request, to, NULL));
    CHECK_OK(tutti_wait(request, -1));
}

static void wrong_buffers(rank_t *self)
{
    const size_t counts[MOST_RANKS] = { 1, 1, 1 };
    device_job_t job;
    void *elsewhere;
    int32_t host[4] = { 1, 2, 3, 4 };
    char *mine;

    device_begin(&job, self, 64);
    mine = job.memory;
    CHECK_STATUS(tutti_allreduce(host, mine, 1, TUTTI_INT32, TUTTI_SUM, self->comm),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_WORDS("sendbuf is host memory, but recvbuf is memory of device");
    CHECK_STATUS(tutti_allgatherv(mine, 1, host, counts, NULL, TUTTI_INT32, self->comm),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_WORDS("sendbuf is memory of device");
    CHECK_STATUS(tutti_broadcast(mine + 2, 1, TUTTI_INT32, 0, self->comm),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_WORDS("multiple of its element's size");
    receive_later(self->comm, mine, host, "but recvbuf is host memory", mine + 16);
    receive_later(self->comm, mine, mine + 18, "recvbuf is on a device, but not at", mine + 16);
    CHECK_OK(job.ops->use(PRETEND_DEVICES - 1));
    CHECK_OK(job.ops->alloc(64, &elsewhere));
    CHECK_STATUS(tutti_broadcast(elsewhere, 1, TUTTI_INT32, 0, self->comm),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_WORDS("buffer is memory of device 15");
    receive_later(self->comm, mine, elsewhere, "recvbuf is memory of device 15", mine + 16);
    job.ops->free(elsewhere);
    CHECK_OK(job.ops->use(self->rank));
    /* A buffer without elements may be in any memory. */
    CHECK_OK(tutti_allreduce(host, mine, 0, TUTTI_INT32, TUTTI_SUM, self->comm));
    case_works(self);
    device_end(&job);
}

/* ---- mismatches ---- */

static void one_mismatch(rank_t *self, char *memory, tutti_call_kind_t kind)
{
    int32_t host[2 * MOST_RANKS];
    void *buf = self->rank == 1 ? (void *)host : memory;
    int n = self->size;
    tutti_status_t status;

    memset(host, 0x11, sizeof(host));
    pretend_write(memory, host, sizeof(host));
    if (kind == TUTTI_CALL_ALLREDUCE) /* with a type that NCCL serves */
        status = tutti_allreduce(buf, buf, 2, TUTTI_INT32, TUTTI_SUM, self->comm);
    else if (kind == TUTTI_CALL_REDUCE) /* with a type that is staged */
        status = tutti_reduce(buf, (char *)buf + 4 * n, 2, TUTTI_INT16, TUTTI_BXOR, 0, self->comm);
    else if (kind == TUTTI_CALL_SCAN)
        status = tutti_scan(buf, buf, 2, TUTTI_INT32, TUTTI_SUM, self->comm);
    else if (kind == TUTTI_CALL_GATHER)
        status = tutti_gather((char *)buf + 4 * self->rank, buf, 1, TUTTI_INT32, 0, self->comm);
    else
        status = tutti_allreduce_scaled(buf, buf, 2, TUTTI_FLOAT32, TUTTI_SUM, 2, 1, self->comm);
    if (status != TUTTI_ERR_MISMATCH)
        ranks_fail(__FILE__, __LINE__, "kind %d: %s", (int)kind, tutti_strerror(status));
    CHECK_WORDS("rank 0 has");
    CHECK_WORDS(", in device memory; rank 1");
    if (self->rank != 1)
        pretend_read(host, memory, sizeof(host));
    for (int i = 0; i < 2 * MOST_RANKS; i++)
        CHECK_INT(host[i], 0x11111111);
}

static void mismatches(rank_t *self)
{
    device_job_t job;

    device_begin(&job, self, 1024);
    for (int i = 0; i < 2; i++) {
        one_mismatch(self, job.memory, TUTTI_CALL_ALLREDUCE);
        one_mismatch(self, job.memory, TUTTI_CALL_REDUCE);
        one_mismatch(self, job.memory, TUTTI_CALL_SCAN);
        one_mismatch(self, job.memory, TUTTI_CALL_GATHER);
        one_mismatch(self, job.memory, TUTTI_CALL_ALLTOALL);
        case_works(self);
    }
    device_end(&job);
}

/* ---- deaths ---- */

/* Was NCCL's work also aborted on this rank? The abort follows the report of the death, so it may
   take a moment. */
static void check_aborted(rank_t *self)
{
    uint64_t limit = tutti__now_ns() + 5000000000u;
    tutti_status_t status;

    do {
        usleep(1000);
        status = tutti__nccl_node_settle(self->inside->device.node);
    } while (status != TUTTI_ERR_TRANSPORT && tutti__now_ns() < limit);
    CHECK_INT(status, TUTTI_ERR_TRANSPORT);
}

/* Rank 1 dies between calls, or while its device is busy. hangs: 1 if work on the devices does not
   end. */
static void die_in_calls(rank_t *self, int hangs)
{
    uint64_t begin = tutti__now_ns();
    tutti_status_t status;
    device_job_t job;

    device_begin(&job, self, 1 << 16);
    CHECK_OK(tutti_allreduce(job.memory, job.memory, 1000, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
    /* After this barrier the first call is over on all ranks. A rank that is slow to leave the
       barrier may already get the error that rank 1 is lost. */
    status = tutti_barrier(self->comm);
    if (hangs)
        pretend_hang(self->rank, 0);
    if (self->rank == 1) {
        alarm(1);
        signal(SIGALRM, SIG_DFL);
        if (!hangs)
            kill(getpid(), SIGKILL);
    }
    for (int i = 0; i < 1000 && status == TUTTI_OK; i++)
        status =
            tutti_allreduce(job.memory, job.memory, 1000, TUTTI_FLOAT32, TUTTI_SUM, self->comm);
    if (hangs && status == TUTTI_OK) /* NCCL took no part in the call */
        usleep(1500000);
    while (status == TUTTI_OK)
        status =
            tutti_allreduce(job.memory, job.memory, 1000, TUTTI_FLOAT32, TUTTI_SUM, self->comm);
    CHECK_INT(status, TUTTI_ERR_PEER_LOST);
    CHECK(tutti__now_ns() - begin < 50000000000u);
    check_aborted(self);
    CHECK_STATUS(tutti_barrier(self->comm), TUTTI_ERR_PEER_LOST);
    job.ops->free(job.memory);
}

static void die(rank_t *self)
{
    die_in_calls(self, 0);
}

static void die_at_work(rank_t *self)
{
    die_in_calls(self, 1);
}

/* A device hangs: the call ends at the deadline. */
static void hang(rank_t *self)
{
    device_job_t job;
    tutti_status_t status;

    device_begin(&job, self, 1 << 12);
    CHECK_OK(tutti_allreduce(job.memory, job.memory, 10, TUTTI_FLOAT32, TUTTI_SUM, self->comm));
    ranks_set_deadline(self, self->comm, 500);
    pretend_hang(self->rank, 0);
    status = tutti_allreduce(job.memory, job.memory, 10, TUTTI_FLOAT32, TUTTI_SUM, self->comm);
    if (status != TUTTI_OK) {
        CHECK_INT(status, TUTTI_ERR_TIMEOUT);
        CHECK_WORDS("its device");
        check_aborted(self);
    }
    job.ops->free(job.memory);
}

/* ---- opening ---- */

/* Without settings, device_run_job would give the ranks a device. */
static void without(tutti__conf_t *conf, int rank)
{
    (void)conf;
    (void)rank;
}

static void has_none(rank_t *self)
{
    CHECK(self->inside->exec.device == NULL);
    case_works(self);
}

/* Without NCCL all calls are staged. */
static void no_nccl(rank_t *self)
{
    device_job_t job;
    int32_t one = 1;

    device_begin(&job, self, 64);
    CHECK(self->inside->exec.device != NULL && self->inside->device.node == NULL);
    pretend_write(job.memory, &one, 4);
    CHECK_OK(tutti_allreduce(job.memory, job.memory, 1, TUTTI_INT32, TUTTI_SUM, self->comm));
    pretend_read(&one, job.memory, 4);
    CHECK_INT(one, self->size);
    device_end(&job);
}

/* Rank 0's device was found by "auto", and rank 1 has no device. Then only host memory is
   served. */
static void one_without(tutti__conf_t *conf, int rank)
{
    conf->log_level = TUTTI__LOG_NONE;
    if (rank == 1)
        snprintf(conf->device, sizeof(conf->device), "none");
}

static void refuses_memory(tutti_comm_t *comm, void *memory)
{
    CHECK_STATUS(tutti_allreduce(memory, memory, 1, TUTTI_INT32, TUTTI_SUM, comm),
                 TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_WORDS("sendbuf is memory of device 0, but rank 1");
    CHECK_WORDS("has no device, so calls take host memory only");
}

/* recvbuf is device memory only on rank 0, the only rank that detects it. */
static void refuses_later(const device_job_t *job, tutti_comm_t *comm)
{
    int32_t mine = job->self->rank, all[2] = { 7, 7 };
    void *wrong = mine == 0 ? job->memory : NULL;

    receive_later(comm, &mine, wrong, "recvbuf is memory of device 0, but rank 1", all);
    CHECK_INT(all[0], 0);
    CHECK_INT(all[1], 1);
}

static void found_one(rank_t *self)
{
    tutti_comm_t *part;
    device_job_t job;
    int32_t one = 1;

    CHECK(self->inside->exec.device == NULL);
    device_begin(&job, self, 64);
    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &part));
    for (int i = 0; i < 3; i++) {
        /* Repeating the same call may skip checks. */
        CHECK_OK(tutti_allreduce(&one, &one, 1, TUTTI_INT32, TUTTI_SUM, self->comm));
        if (self->rank == 0) {
            refuses_memory(self->comm, job.memory);
            refuses_memory(part, job.memory);
        }
    }
    refuses_later(&job, self->comm);
    refuses_later(&job, part);
    case_works(self);
    CHECK_OK(tutti_comm_free(part));
    device_end(&job);
}

/* If a library with the name of CUDA's library is loaded, rank 0 finds the device "cuda". In this
   job that library is the pretend device's, and a device "cuda" is lent. */
static int run_found(void)
{
    job_t job = { .size = 2, .threads = 1, .fn = found_one, .settings = one_without };
    tutti__device_ops_t ops = *pretend_device();
    char from[PATH_MAX], dir[] = "/tmp/tutti-ends-XXXXXX", path[64];
    int failures = 0;
    void *handle;

    if (realpath("tutti/.libs/pretend.so", from) == NULL || mkdtemp(dir) == NULL)
        return 1;
    snprintf(path, sizeof(path), "%s/libcuda.so.1", dir);
    handle = symlink(from, path) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    unlink(path);
    rmdir(dir);
    if (handle == NULL)
        return 1;
    ops.name = "cuda";
    failures += pretend_prepare(2) != 0;
    tutti__module_lend_device(&ops);
    RUN_JOB(failures, &job);
    tutti__module_lend_device(pretend_device());
    failures += pretend_reset() != 0;
    dlclose(handle);
    return failures;
}

/* Two ranks of the first host share a GPU. */
static void one_shared(tutti__conf_t *conf, int rank)
{
    device_settings(conf, rank);
    conf->device_id = rank / 2;
    conf->log_level = TUTTI__LOG_NONE;
}

static void one_for_all(tutti__conf_t *conf, int rank)
{
    device_settings(conf, rank);
    conf->device_id = 0;
}

static void add_on(const device_job_t *job, tutti_comm_t *comm)
{
    int32_t one = 1;

    pretend_write(job->memory, &one, 4);
    CHECK_OK(tutti_allreduce(job->memory, job->memory, 1, TUTTI_INT32, TUTTI_SUM, comm));
    pretend_read(&one, job->memory, 4);
    CHECK_INT(one, tutti_size(comm));
}

/* If arg is not NULL, each host has one rank, and NCCL serves these hosts. */
static void shared_gpu(rank_t *self)
{
    int has_nccl = self->arg != NULL;
    device_job_t job = { .self = self, .ops = pretend_device() };
    tutti_comm_t *part;
    void *memory;

    CHECK_OK(job.ops->use(self->inside->device.device));
    CHECK_OK(job.ops->alloc(64, &memory));
    job.memory = memory;
    CHECK_INT(self->inside->device.node != NULL, has_nccl);
    add_on(&job, self->comm);
    CHECK_OK(tutti_comm_split(self->comm, self->rank, 0, &part));
    CHECK_INT(ranks_inside(part)->device.node != NULL, has_nccl);
    add_on(&job, part);
    CHECK_OK(tutti_comm_free(part));
    device_end(&job);
}

/* ---- messages on stderr ---- */

static _Thread_local int used;

static tutti_status_t note_use(int device)
{
    used = device;
    return pretend_device()->use(device);
}

static tutti_status_t no_id(tutti__nccl_id_t *ret_id)
{
    if (used == 0)
        return pretend_device()->nccl_id(ret_id);
    return tutti__fail(TUTTI_ERR_UNSUPPORTED, "device %d is missing its library", used);
}

static void warned(tutti__conf_t *conf, int rank)
{
    device_settings(conf, rank);
    conf->log_level = TUTTI__LOG_WARN;
}

/* Run a job, and return its output on stderr. */
static int run_listening(job_t *job, char *ret_said, size_t room)
{
    FILE *file = tmpfile();
    int stderr_fd = dup(STDERR_FILENO), failures = 0;
    ssize_t n;

    if (file == NULL || stderr_fd < 0 || dup2(fileno(file), STDERR_FILENO) < 0)
        return 1;
    RUN_JOB(failures, job);
    dup2(stderr_fd, STDERR_FILENO);
    close(stderr_fd);
    n = pread(fileno(file), ret_said, room - 1, 0);
    ret_said[n < 0 ? 0 : n] = '\0';
    fclose(file);
    return failures;
}

static int has_said(const char *said, const char *words)
{
    if (strstr(said, words) != NULL)
        return 1;
    fprintf(stderr, "FAILED: no \"%s\" in:\n%s", words, said);
    return 0;
}

/* Two of three hosts have no NCCL: each of the two prints its reason, and rank 0 prints the
   consequence. */
static int run_leaders(void)
{
    job_t job = { .size = 3, .hosts = "abc", .threads = 1, .fn = no_nccl, .settings = warned };
    tutti__device_ops_t ops = *pretend_device();
    char said[4096];
    int failures = pretend_prepare(3) != 0;

    ops.use = note_use;
    ops.nccl_id = no_id;
    tutti__module_lend_device(&ops);
    failures += run_listening(&job, said, sizeof(said));
    tutti__module_lend_device(pretend_device());
    failures += pretend_reset() != 0;
    failures += !has_said(said, "goes through the host: the host of rank 1 has none");
    failures += !has_said(said, "on the host of rank 1: device 1 is missing");
    failures += !has_said(said, "on the host of rank 2: device 2 is missing");
    return failures;
}

static int run_shared(void)
{
    job_t same = { .size = 3, .threads = 1, .fn = shared_gpu, .settings = one_shared };
    job_t apart = { .size = 2,
                    .hosts = "ab",
                    .threads = 1,
                    .fn = shared_gpu,
                    .settings = one_for_all,
                    .arg = &apart };
    char said[4096];
    int failures = device_run_job(&same);

    same.hosts = "aab";
    failures += device_run_job(&same);
    failures += device_run_job(&apart);
    same.size = 2;
    same.hosts = NULL;
    same.settings = one_for_all;
    failures += pretend_prepare(2) != 0;
    failures += run_listening(&same, said, sizeof(said));
    failures += pretend_reset() != 0;
    failures += !has_said(said, "ranks 0 and 1 use the same GPU, which NCCL refuses");
    return failures;
}

/* One rank does not have the device that the other ranks name, or its device number does not exist.
   All ranks get an error, and no object of the device is left. */
static void wrong_device(int rank, int size, const char *name, int has_none)
{
    tutti__comm_t *comm = NULL;
    tutti__conf_t conf;
    tutti__meet_t meet;
    tutti_status_t status;

    tutti__conf_defaults(&conf);
    device_settings(&conf, rank);
    if (rank == 1 && has_none)
        snprintf(conf.device, sizeof(conf.device), "none");
    else if (rank == 1)
        conf.device_id = 1000;
    CHECK_OK(tutti__meet_local(name, (uint32_t)rank, (uint32_t)size, 60000, &meet));
    status = tutti__comm_open(&meet, NULL, &conf, &comm);
    CHECK_INT(status, TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_WORDS(has_none ? "rank 1 has no device 'pretend'" : "TUTTI_DEVICE_ID=1000");
}

static void cannot_open(rank_t *self)
{
    char name[64];

    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof(name), "tutti-device-%d-%d", (int)(intptr_t)self->arg, i);
        wrong_device(self->rank, self->size, name, i);
    }
}

/* The first objects of a device cannot be made: all ranks get an error. */
static void no_memory(rank_t *self)
{
    tutti_comm_t *comm = NULL;

    CHECK_OK(tutti_barrier(self->comm));
    pretend_forbid_alloc(1);
    CHECK_STATUS(tutti_comm_split(self->comm, 0, 0, &comm), TUTTI_ERR_SYSTEM);
    CHECK_WORDS("nothing may be made");
    CHECK_OK(tutti_barrier(self->comm));
    pretend_forbid_alloc(0);
    CHECK_OK(tutti_barrier(self->comm));
    CHECK_OK(tutti_comm_split(self->comm, 0, 0, &comm));
    CHECK_OK(tutti_comm_free(comm));
}

int main(void)
{
    job_t host = { .size = 2, .threads = 1, .fn = has_none, .settings = without };
    job_t bad = { .size = 3,
                  .threads = 1,
                  .fn = cannot_open,
                  .settings = without,
                  .arg = (void *)(intptr_t)getpid() };
    job_t late = { .size = 2, .threads = 1, .fn = hang, .settings = device_settings };
    job_t staged = { .size = 3, .threads = 1, .fn = no_nccl, .settings = device_settings };
    int failures = 0;

    /* This case must be the first: no device may be prepared. */
    tutti__module_lend_device(pretend_device());
    RUN_JOB(failures, &staged);
    failures += pretend_reset() != 0;

    failures += device_run(wrong_buffers, 3, NULL, 1);
    failures += device_run(mismatches, 3, NULL, 1);
    failures += device_run(mismatches, 3, "aab", 1);
    failures += device_run(no_memory, 3, NULL, 1);
    failures += run_found();
    failures += run_shared();
    failures += run_leaders();
    failures += device_run_job(&host);
    failures += device_run_job(&bad);
    failures += device_run_job(&late);
    for (int i = 0; i < 4 && ranks_can_fork(); i++) {
        job_t dies = { .size = 3,
                       .hosts = i < 2 ? NULL : "aab",
                       .fn = i % 2 ? die_at_work : die,
                       .killed = 1 << 1 };

        failures += device_run_job(&dies);
    }
    return failures != 0;
}
