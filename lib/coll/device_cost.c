/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The two ways to execute an allreduce on the device memory of several hosts: their costs, and the
 * choice. cache.c asks for the choice when it looks up a schedule for device memory.
 *
 * With n bytes, H hosts, and L to M ranks on each:
 *
 *      device   2 NCCL      + 2 (M - 1) / M n nccl + 2 COPY + 2 n / L pcie + hosts(H, n)
 *      staged   2 HOST_NODE + M n host_node        + 2 COPY + 2 n pcie     + hosts(H, n)
 *
 * Names in capitals are times, lower-case names are times per byte. hosts() is the lower one of two
 * costs by cost.c: recursive doubling and halving-doubling. hosts() is the same for both ways,
 * because the ranks of a host share its network card. With one rank on each host there are no
 * operations inside hosts, so both ways cost the same, and the device is chosen.
 *
 * The difference is linear in n. staged is cheaper below
 *
 *      n = 2 (NCCL - HOST_NODE) / (2 (L - 1) / L pcie + M host_node - 2 (M - 1) / M nccl)
 *
 *      ranks on each host       2        4        8     2 and 1
 *      staged up to       325 KiB  184 KiB  111 KiB     804 KiB
 *
 * Not modelled: on the device, the chunks of a large call overlap. For large calls the device is
 * cheaper anyway.
 *
 * Bits. With three or more ranks on a host NCCL's association depends on the size and on an
 * element's place. Consequences:
 *
 *      a direct call     may take either way, because its size is the same in each run
 *      the engine        stays on the device: the sizes of its buckets depend on timing
 *      strict            needs one association for all sizes, which only host memory gives: all
 *                        reductions are staged, also on one host, and if TUTTI_ALGORITHM is set
 *
 * With at most two ranks on each host there is only one association inside a host, and all
 * algorithms between hosts that the engine and strict may use have the same tree. So both ways give
 * the same bits.
 *
 * The constants are estimates, for GPUs with NVLink and PCIe 4; none was measured on a GPU.
 * tests/gpu/measure.sh, part `ways`, measures them; TUTTI_DEVICE_STAGED_BYTES can be set to
 * its result.
 */
#include "coll/device_cost.h"

#include "base/compiler.h"
#include "base/constants.h"
#include "coll/cost.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* No call is larger than memory, and up to this size no number here overflows. */
#define MOST_BYTES ((uint64_t)1 << 40)

static uint64_t bytes_ns(uint64_t bytes, uint64_t ps)
{
    return bytes * ps / 1000;
}

/* Time between hosts, for all of a host's ranks together. */
static uint64_t hosts_ns(uint64_t bytes, const tutti__shape_t *shape)
{
    static const char *const ways[] = { "recursive_doubling", "halving_doubling" };
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < 2; i++) {
        tutti__cost_t cost;

        tutti__cost_between(ways[i], shape, &cost);
        least = TUTTI__MIN(least, tutti__cost_ps(&cost, bytes) / 1000);
    }
    return least;
}

int tutti__device_cost(tutti__collective_t collective, size_t bytes, const tutti__shape_t *shape,
                       uint32_t max_local, tutti__device_cost_t *ret_cost)
{
    uint64_t n = TUTTI__MIN((uint64_t)bytes, MOST_BYTES), both;

    if (collective != TUTTI__ALLREDUCE || shape->nhosts == 1)
        return 0;
    both = 2 * (uint64_t)TUTTI__COST_COPY_NS + hosts_ns(n, shape);
    ret_cost->device_ns = both + 2 * bytes_ns(n / shape->min_local, TUTTI__COST_PCIE_PS);
    ret_cost->staged_ns = both + 2 * bytes_ns(n, TUTTI__COST_PCIE_PS);
    if (max_local > 1) {
        ret_cost->device_ns +=
            2 * (TUTTI__COST_NCCL_NS + bytes_ns(n - n / max_local, TUTTI__COST_NCCL_PS));
        ret_cost->staged_ns += 2 * TUTTI__COST_HOST_NODE_NS +
                               bytes_ns(n, max_local * (uint64_t)TUTTI__COST_HOST_NODE_PS);
    }
    return 1;
}

/* ---- the choice ---- */

static uint32_t find_max_local(const tutti__shape_t *shape)
{
    uint32_t most = 1;

    for (uint32_t h = 0; h < shape->nhosts; h++)
        most = TUTTI__MAX(most, shape->host_first[h + 1] - shape->host_first[h]);
    return most;
}

static int reduces(tutti__collective_t collective)
{
    return collective == TUTTI__ALLREDUCE || collective == TUTTI__ROOT_REDUCE ||
           collective == TUTTI__REDUCE_SCATTER;
}

static int by_cost(size_t bytes, const tutti__device_cost_t *cost,
                   const tutti__device_limits_t *limits, char ret_why[TUTTI__DEVICE_WHY])
{
    /* STAGE must have space for both buffers, one after the other. */
    int fits = bytes <= limits->stage_bytes / 2, staged = fits && cost->staged_ns < cost->device_ns;
    uint64_t us = (staged ? cost->staged_ns : cost->device_ns) / 1000;
    uint64_t other_us = (staged ? cost->device_ns : cost->staged_ns) / 1000;

    if (fits)
        snprintf(ret_why, TUTTI__DEVICE_WHY, "by cost: %s, %" PRIu64 " us instead of %" PRIu64,
                 staged ? "staged" : "on the device", us, other_us);
    else
        snprintf(ret_why, TUTTI__DEVICE_WHY, "on the device, as it does not fit the stage");
    return staged;
}

int tutti__device_stages(const tutti__want_t *want, const tutti__shape_t *shape,
                         const tutti__choice_t *choice, int forced,
                         tutti__association_t association, const tutti__device_limits_t *limits,
                         char ret_why[TUTTI__DEVICE_WHY])
{
    uint32_t max_local = find_max_local(shape);
    tutti__device_cost_t cost;
    int staged;

    ret_why[0] = '\0';
    if (association == TUTTI__STRICT_ASSOCIATION && max_local > 2 && reduces(want->collective)) {
        snprintf(ret_why, TUTTI__DEVICE_WHY, "staged, by TUTTI_DETERMINISTIC=strict");
        return 1;
    }
    if (forced || strcmp(choice->algorithm->name, "hierarchical") != 0 ||
        (association != TUTTI__ANY_ASSOCIATION && max_local > 2) ||
        !tutti__device_cost(want->collective, want->bytes, shape, max_local, &cost))
        return 0;
    if (limits->staged_bytes == TUTTI__STAGED_AUTO)
        return by_cost(want->bytes, &cost, limits, ret_why);
    staged = want->bytes <= limits->staged_bytes;
    snprintf(ret_why, TUTTI__DEVICE_WHY, "by TUTTI_DEVICE_STAGED_BYTES: %s",
             staged ? "staged" : "on the device");
    return staged;
}
