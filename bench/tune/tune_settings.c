/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The settings that tutti_tune tries.
 *
 * A setting is a row of the table: its variable, its candidate values, and message sizes at which
 * they differ. If the setting is the size at which an algorithm changes, there is a message size
 * between each two candidates; the candidate with the smallest mean over all sizes is the best. To
 * add a setting, add a row; in the library it must be of type CONF_BYTES.
 */
#include "tune/tune.h"

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

static int run_direct(const bench_world_t *world, const tune_setting_t *setting,
                      const tune_buffers_t *buffers, size_t bytes)
{
    tutti_status_t status = tutti_allreduce(buffers->send, buffers->recv, bytes / sizeof(float),
                                            TUTTI_FLOAT32, TUTTI_SUM, world->comm);

    (void)setting;
    return bench_check(world, status, "tutti_allreduce");
}

/* Tensors of uneven sizes, like the gradients of a network's layers; in place, and all submitted at
   the same time. */
static int run_tensors(const bench_world_t *world, const tune_setting_t *setting,
                       const tune_buffers_t *buffers, size_t bytes)
{
    static const size_t sixteenths[] = { 8, 6, 1, 1 };
    tutti_request_t *requests[TUNE_TENSORS];
    float *tensor = buffers->send;
    char name[48];

    (void)setting;
    for (size_t i = 0; i < TUNE_TENSORS; i++) {
        size_t count = bytes / (TUNE_TENSORS / 4) / 16 * sixteenths[i % 4] / sizeof(float);
        tutti_status_t status;

        snprintf(name, sizeof(name), "%zu of %zu bytes", i, bytes);
        status = tutti_allreduce_async(name, tensor, tensor, count, TUTTI_FLOAT32, TUTTI_SUM,
                                       world->comm, NULL, &requests[i]);
        if (bench_check(world, status, "tutti_allreduce_async") != 0)
            return -1;
        tensor += count;
    }
    return bench_check(world, tutti_wait_all(requests, TUNE_TENSORS, -1), "tutti_wait_all");
}

/* clang-format off */
const tune_setting_t tune_settings[] = {
    { .name = "TUTTI_ONESHOT_BYTES",
      .values = { "4K", "8K", "16K", "64K", "128K", "256K", NULL },
      .sizes = { 6 * KIB, 12 * KIB, 24 * KIB, 48 * KIB, 96 * KIB, 192 * KIB, 0 },
      .by_ranks = 1, .run = run_direct },
    { .name = "TUTTI_NODE_CHUNK_BYTES",
      .values = { "64K", "128K", "512K", "1M", "2M", NULL },
      .sizes = { 256 * KIB, MIB, 4 * MIB, 16 * MIB, 0 },
      .run = run_direct },
    { .name = "TUTTI_FUSION_BYTES",
      .values = { "256K", "512K", "2M", "4M", "16M", NULL },
      .sizes = { 256 * KIB, 2 * MIB, 16 * MIB, 0 },
      .run = run_tensors, .in_place = 1 },
    { .name = NULL },
};
/* clang-format on */

/* The size of a message on a rank: whole cache lines, at least one. */
size_t tune_bytes(const tune_setting_t *setting, size_t index, int ranks)
{
    size_t bytes = setting->sizes[index];

    if (setting->by_ranks)
        bytes = bytes / (size_t)ranks / 64 * 64;
    return bytes > 64 ? bytes : 64;
}
