/* SPDX-License-Identifier: BSD-3-Clause */
/* See device_world.h. */
#include "device_world.h"

#include "base/status.h"
#include "node/nccl/nccl.h"
#include "node/shm/shm.h"
#include "xport/shm/shm.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Memory that all ranks share. The ranks of a host use the element of their leader, the host's
   first rank. */
typedef struct {
    tutti__nccl_order_t order[PRETEND_RANKS];
} shared_t;

device_options_t device_options;
static const char *job_hosts;
static shared_t *shared;
static int job_number;

int run_device_jobs(rank_fn_t fn, int size, const char *hosts, unsigned killed)
{
    int failures = 0;

    if (shared == NULL)
        shared =
            mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int threads = 0; threads < 2; threads++) {
        job_t job = {
            .size = size, .hosts = hosts, .threads = threads, .fn = fn, .killed = killed
        };

        if ((threads && (killed != 0 || device_options.no_threads)) ||
            (!threads && !ranks_can_fork()))
            continue;
        memset(shared, 0, sizeof(*shared));
        job_hosts = hosts;
        job_number++;
        failures += pretend_prepare(size) != 0;
        RUN_JOB(failures, &job);
        if (pretend_reset() != 0) {
            fprintf(stderr, "FAILED: %d ranks left something\n", size);
            failures++;
        }
    }
    return failures;
}

/* ---- below the engine ---- */

static void set_conf(gpu_rank_t *gpu)
{
    tutti__conf_defaults(&gpu->conf);
    gpu->conf.shared.timeout_ms = 120000;
    gpu->conf.shared.chunk_bytes = TUTTI__CHUNK_BYTES; /* AUTO is for api/shape.c */
    if (job_hosts != NULL)
        snprintf(gpu->conf.host_id, sizeof(gpu->conf.host_id), "host-%c",
                 job_hosts[gpu->rank->rank]);
    if (device_options.fusion_bytes > 0)
        gpu->conf.shared.fusion_bytes = device_options.fusion_bytes;
    gpu->conf.shared.device_staged_bytes = 0;
    strcpy(gpu->conf.shared.transport, "shm");
}

static void open_below(gpu_rank_t *gpu)
{
    tutti__conf_shared_t *conf = &gpu->conf.shared;
    uint32_t size = (uint32_t)gpu->rank->size;
    const tutti__topo_t *topo;
    char name[64];

    snprintf(name, sizeof(name), "tutti-device-%d-%d", ranks_tag(), job_number);
    CHECK_OK(tutti__meet_local(name, (uint32_t)gpu->rank->rank, size, 120000, &gpu->meet));
    CHECK_OK(tutti__boot_open(&gpu->meet, &gpu->conf, &gpu->boot));
    topo = tutti__boot_topo(gpu->boot);
    gpu->shape = (tutti__shape_t){ .size = size,
                                   .nhosts = topo->nhosts,
                                   .host_of = topo->host_of,
                                   .local_of = topo->local_of,
                                   .host_first = topo->host_first,
                                   .by_host = topo->by_host,
                                   .min_local = topo->min_local };
    CHECK_OK(tutti__machine_open(gpu->boot, &gpu->machine));
    CHECK_OK(tutti__shm_open(gpu->boot, gpu->machine, conf, &gpu->node));
    CHECK_OK(tutti__xport_shm_open(gpu->boot, gpu->machine, conf->chunk_bytes,
                                   (uint32_t)conf->credits, &gpu->shm));
    gpu->xport = calloc(size, sizeof(*gpu->xport));
    for (uint32_t r = 0; r < size; r++)
        gpu->xport[r] = r != topo->rank ? gpu->shm : NULL;
}

/* ---- the device ---- */

static void open_nccl(gpu_rank_t *gpu)
{
    const tutti__topo_t *topo = tutti__boot_topo(gpu->boot);
    uint32_t host = topo->host_of[topo->rank], first = topo->host_first[host];
    uint32_t leader = topo->by_host[first], nlocal = topo->host_first[host + 1] - first;
    tutti__nccl_id_t ids[PRETEND_RANKS];
    tutti__nccl_open_t with = { .ops = gpu->ops,
                                .device = gpu->rank->rank,
                                .me = topo->local_of[topo->rank],
                                .nlocal = nlocal,
                                .leader = (int32_t)leader,
                                .host = gpu->node,
                                .order = &shared->order[leader],
                                .id = &ids[leader],
                                .stage_bytes = 4096 * (size_t)nlocal };
    tutti_status_t status;

    memset(&ids[topo->rank], 0, sizeof(ids[0]));
    if (leader == topo->rank)
        CHECK_OK(gpu->ops->nccl_id(&ids[topo->rank]));
    CHECK_OK(tutti_allgather(&ids[topo->rank], ids, sizeof(ids[0]), TUTTI_UINT8, gpu->rank->comm));
    CHECK_OK(tutti__nccl_node_open(&with, &gpu->device.node));
    while ((status = tutti__nccl_node_settle(gpu->device.node)) == TUTTI__AGAIN)
        usleep(50);
    CHECK_OK(status);
}

static void open_lanes(gpu_rank_t *gpu)
{
    char *garbage = malloc(gpu->device.fuse_bytes);

    memset(garbage, 0xff, gpu->device.fuse_bytes); /* NaN */
    for (int i = 0; i < TUTTI__DEVICE_LANES; i++) {
        tutti__device_lane_t *lane = &gpu->device.lane[i];
        void *stage, *fuse;

        CHECK_OK(gpu->ops->stream_make(1, &lane->down));
        CHECK_OK(gpu->ops->stream_make(1, &lane->up));
        for (int s = 0; s < TUTTI__SCHED_STREAMS; s++)
            CHECK_OK(gpu->ops->event_make(&lane->copied[s]));
        CHECK_OK(gpu->ops->event_make(&lane->done));
        CHECK_OK(gpu->ops->host_alloc(gpu->device.stage_bytes, &stage));
        lane->stage = stage;
        if (i == 0)
            continue;
        lane->is_nccls = gpu->ops->nccl_alloc(gpu->device.fuse_bytes, &fuse) == TUTTI_OK;
        if (!lane->is_nccls)
            CHECK_OK(gpu->ops->alloc(gpu->device.fuse_bytes, &fuse));
        lane->fuse = fuse;
        pretend_write(fuse, garbage, gpu->device.fuse_bytes);
        if (lane->is_nccls && gpu->device.node != NULL)
            CHECK_OK(tutti__nccl_node_register(gpu->device.node, fuse, gpu->device.fuse_bytes));
    }
    free(garbage);
}

static void close_device(gpu_rank_t *gpu)
{
    if (gpu->device.node != NULL)
        gpu->device.node->ops->close(gpu->device.node);
    for (int i = 0; i < TUTTI__DEVICE_LANES; i++) {
        tutti__device_lane_t *lane = &gpu->device.lane[i];

        gpu->ops->stream_drop(lane->down);
        gpu->ops->stream_drop(lane->up);
        for (int s = 0; s < TUTTI__SCHED_STREAMS; s++)
            gpu->ops->event_drop(lane->copied[s]);
        gpu->ops->event_drop(lane->done);
        gpu->ops->host_free(lane->stage);
        if (i > 0)
            (lane->is_nccls ? gpu->ops->nccl_free : gpu->ops->free)(lane->fuse);
    }
}

/* Like the API's function, but without checks. */
static tutti_status_t find_memory(const void *owner, tutti__call_t *call)
{
    const gpu_rank_t *gpu = owner;

    call->on_device = gpu->ops->where(call->recvbuf).kind == TUTTI__MEM_DEVICE;
    return TUTTI_OK;
}

void device_begin(gpu_rank_t *gpu, rank_t *self)
{
    const tutti__stats_want_t stats = { .name = "", .file = "", .port = -1, .is_timed = 1 };
    tutti__engine_env_t env = { 0 };

    memset(gpu, 0, sizeof(*gpu));
    gpu->rank = self;
    gpu->ops = pretend_device();
    CHECK_OK(gpu->ops->use(self->rank));
    set_conf(gpu);
    open_below(gpu);
    gpu->device.ops = gpu->ops;
    gpu->device.device = self->rank;
    gpu->device.chunk_bytes = 4096;
    gpu->device.stage_bytes = device_options.stage_bytes ? device_options.stage_bytes : 1 << 18;
    gpu->device.fuse_bytes = device_options.fuse_bytes ? device_options.fuse_bytes : 1 << 18;
    if (!device_options.no_nccl)
        open_nccl(gpu);
    open_lanes(gpu);
    gpu->exec = (tutti__exec_env_t){ .rank = (uint32_t)self->rank,
                                     .size = (uint32_t)self->size,
                                     .xport = gpu->xport,
                                     .node = gpu->node,
                                     .slot_bytes = gpu->conf.shared.chunk_bytes,
                                     .device = &gpu->device };
    env.boot = gpu->boot;
    env.machine = gpu->machine;
    env.exec = &gpu->exec;
    env.shape = &gpu->shape;
    env.conf = &gpu->conf.shared;
    env.check_receive = find_memory;
    env.comm = gpu;
    env.stats = gpu->stats = tutti__stats_open(&stats);
    CHECK_OK(tutti__watch_open(gpu->boot, gpu->machine, env.conf, 0, &gpu->watch));
    env.watch = gpu->watch;
    CHECK_OK(tutti__engine_open(&env, &gpu->engine));
    tutti__boot_settle(gpu->boot);
    CHECK_OK(gpu->ops->stream_make(0, &gpu->stream));
}

void device_end(gpu_rank_t *gpu)
{
    pretend_forbid_alloc(0);
    tutti__engine_close(gpu->engine);
    tutti__stats_close(gpu->stats);
    CHECK_OK(gpu->ops->use(gpu->rank->rank));
    close_device(gpu);
    gpu->ops->stream_drop(gpu->stream);
    gpu->shm->ops->close(gpu->shm);
    gpu->node->ops->close(gpu->node);
    tutti__machine_close(gpu->machine);
    free(gpu->xport);
    tutti__boot_close(gpu->boot);
}

/* ---- calls ---- */

tutti__entry_t device_entry(const char *name, const void *sendbuf, void *recvbuf, size_t count)
{
    return (tutti__entry_t){ .name = name,
                             .call = { .kind = TUTTI_CALL_ALLREDUCE,
                                       .dtype = TUTTI_FLOAT32,
                                       .op = TUTTI_SUM,
                                       .sendbuf = sendbuf,
                                       .recvbuf = recvbuf,
                                       .count = count,
                                       .prescale = 1,
                                       .postscale = 1,
                                       .on_device = 1 } };
}

tutti_request_t *device_submit(gpu_rank_t *gpu, const tutti__entry_t *entry)
{
    tutti_request_t *request;

    CHECK_OK(tutti__engine_submit(gpu->engine, entry, 1, &request));
    return request;
}

float *device_alloc(gpu_rank_t *gpu, size_t count)
{
    void *ptr;

    CHECK_OK(gpu->ops->alloc(count * sizeof(float) + 1, &ptr));
    return ptr;
}

void device_free(gpu_rank_t *gpu, void *ptr)
{
    gpu->ops->free(ptr);
}

void device_put(gpu_rank_t *gpu, void *device, const void *host, size_t bytes)
{
    CHECK_OK(gpu->ops->copy(device, host, bytes, gpu->stream));
}
