/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every function of mem/device.h, on the device that TUTTI_TEST_DEVICE names; results are compared
 * with the processor's.
 *
 *      table PART...       memory, streams, casts, pieces, sums: one rank, no second process
 *      table nccl          one rank
 *      table ranks         NCCL with as many ranks as there are devices, at least two
 */
#include "gpu/table.h"

#include <string.h>

static const struct {
    const char *name;
    rank_fn_t fn;
    int several;
} parts[] = {
    { "memory", table_memory, 0 }, { "streams", table_streams, 0 }, { "casts", table_casts, 0 },
    { "pieces", table_pieces, 0 }, { "sums", table_sums, 0 },       { "nccl", table_nccl, 0 },
    { "ranks", table_nccl, 1 },
};

/* Runs the part that has this name. Returns -1 if there is no such part. */
static int run(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        if (strcmp(parts[i].name, name) == 0)
            return gpu_run(parts[i].fn, parts[i].several ? gpu_ranks() : 1);
    }
    return -1;
}

int main(int argc, char **argv)
{
    int failures = 0;

    for (int i = 1; i < argc; i++) {
        int failed = run(argv[i]);

        if (failed != 0)
            fprintf(stderr, "%s: %s\n", argv[i], failed < 0 ? "there is no such part" : "FAILED");
        failures += failed != 0;
    }
    return failures != 0;
}
