/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * multi/device/device_direct.c on a real device: as many ranks as there are GPUs, at least two; one
 * rank; and several hosts.
 */
#define OTHER_JOBS
#include "multi/device/device_direct.c"

#include "gpu/gpu.h"

static void has_nccl(rank_t *self)
{
    CHECK_INT(self->inside->device.node != NULL, gpu_has_nccl());
}

static int all_of(int size, const char *hosts)
{
    return device_run(all_ways, size, hosts, 0) + device_run(rest, size, hosts, 0) +
           device_run(parts, size, hosts, 0);
}

int main(void)
{
    int ranks = gpu_ranks(), failures = 0, whole;

    if (!ranks_can_fork())
        return 77;
    whole = test_is_long("one rank, all types between hosts, and three of four placings on hosts");
    reference_create_ops();
    if (whole) {
        failures += device_run(product, 1, NULL, 0);
        failures += all_of(1, NULL);
    }
    failures += device_run(has_nccl, ranks, NULL, 0);
    failures += device_run(product, ranks, NULL, 0);
    failures += device_run(groups, ranks, NULL, 0);
    failures += all_of(ranks, NULL);
    if (whole) {
        failures += device_run(product, 2, "ab", 0);
        failures += all_of(2, "ab");
    }
    failures += all_of(3, "aab");
    if (whole) {
        failures += all_of(3, "abc");
        failures += all_of(4, "aabb");
    }
    return failures != 0;
}
