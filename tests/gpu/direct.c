/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * multi/device_direct.c on a real device: as many ranks as there are GPUs, one rank, and several
 * hosts with a rank each, which may share one GPU.
 */
#define OTHER_JOBS
#include "multi/device_direct.c"

#include "gpu/gpu.h"

static int all_of(int size, const char *hosts)
{
    return device_run(all_ways, size, hosts, 0) + device_run(rest, size, hosts, 0) +
           device_run(parts, size, hosts, 0);
}

int main(void)
{
    int gpus = gpu_devices(), failures = 0;

    if (!ranks_can_fork())
        return 77;
    reference_create_ops();
    failures += device_run(product, 1, NULL, 0);
    failures += all_of(1, NULL);
    if (gpus > 1) {
        failures += device_run(product, gpus, NULL, 0);
        failures += device_run(groups, gpus, NULL, 0);
        failures += all_of(gpus, NULL);
    }
    failures += device_run(product, 2, "ab", 0);
    failures += all_of(2, "ab");
    failures += all_of(3, "abc");
    if (gpus > 1) {
        failures += all_of(3, "aab");
        failures += all_of(4, "aabb");
    }
    return failures != 0;
}
