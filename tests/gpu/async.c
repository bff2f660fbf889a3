/* SPDX-License-Identifier: BSD-3-Clause */
/* multi/device/device_async.c on a real device. The numbers of ranks are as in direct.c. */
#define OTHER_JOBS
#include "multi/device/device_async.c"

#include "gpu/gpu.h"

static int whole; /* 0: the quick form */

static int jobs(const device_options_t *options, int ranks)
{
    int failures = 0;

    device_options = *options;
    device_options.no_threads = 1;
    if (whole) {
        failures += run_device_jobs(many, 1, NULL, 0);
        failures += run_device_jobs(many, 2, "ab", 0);
    }
    if (whole || options->fuse_bytes == 0)
        failures += run_device_jobs(many, ranks, NULL, 0);
    failures += run_device_jobs(many, 4, "aabb", 0);
    return failures;
}

int main(void)
{
    static const device_options_t options[] = {
        { 0 },
        { .fuse_bytes = 8192, .stage_bytes = 4096 }, /* little memory */
        { .fuse_bytes = 8192, .stage_bytes = 4096, .fusion_bytes = 2048 },
        { .no_nccl = 1 }, /* all calls in host memory */
    };
    int failures = 0;

    if (!ranks_can_fork())
        return 77;
    whole = test_is_long("one rank, a rank for each host, and little memory on one host");
    for (size_t i = 0; i < COUNT_OF(options); i++)
        if (gpu_has_nccl() || options[i].no_nccl)
            failures += jobs(&options[i], gpu_ranks());
    return failures != 0;
}
