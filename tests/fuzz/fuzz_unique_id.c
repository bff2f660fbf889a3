/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzz target: unique ids as bytes.
 *
 * Each input is parsed twice: unchanged, and with the right magic, layout and checksum, so that the
 * checks after those of these three fields are reached. The fields of an accepted id must be inside
 * the limits, and must give the same bytes when they are written again.
 */
#include "fuzz.h"

#include "base/hash.h"
#include "boot/meet.h"

#include <stdlib.h>
#include <string.h>

static void demand(int truth)
{
    if (!truth)
        abort();
}

static void decode(const tutti_unique_id_t *bytes)
{
    tutti_unique_id_t again;
    tutti__id_t id, twice;
    tutti_status_t status = tutti__id_decode(bytes, &id);

    demand(status == TUTTI_OK || status == TUTTI_ERR_INVALID_ARGUMENT || status == TUTTI_ERR_ABI);
    if (status != TUTTI_OK)
        return;
    demand(id.addrs.count > 0 && id.addrs.count <= TUTTI__NET_ADDRS);
    for (uint32_t i = 0; i < id.addrs.count; i++)
        demand(id.addrs.addr[i].port != 0);
    tutti__id_encode(&id, &again);
    demand(tutti__id_decode(&again, &twice) == TUTTI_OK);
    demand(memcmp(&id.addrs, &twice.addrs, sizeof(id.addrs)) == 0);
    demand(memcmp(&id.token, &twice.token, sizeof(id.token)) == 0);
}

/* Set the magic, the layout and the checksum, as id.c does. */
static void mend(tutti_unique_id_t *bytes)
{
    unsigned char *at = (unsigned char *)bytes->bytes;
    uint64_t hash;
    uint32_t sum;

    memcpy(at, "TuId", 4);
    at[4] = TUTTI__BOOT_LAYOUT >> 8;
    at[5] = TUTTI__BOOT_LAYOUT & 255;
    hash = tutti__hash(at, 124);
    sum = (uint32_t)(hash ^ hash >> 32);
    for (int i = 0; i < 4; i++)
        at[124 + i] = (unsigned char)(sum >> (24 - 8 * i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    tutti_unique_id_t id;

    memset(&id, 0, sizeof(id));
    memcpy(id.bytes, data, TUTTI__MIN(bytes, sizeof(id.bytes)));
    decode(&id);
    mend(&id);
    decode(&id);
    return 0;
}

size_t fuzz_seed(unsigned n, uint8_t *ret_data, size_t room)
{
    tutti__id_t id = { .addrs.count = n + 1 };
    tutti_unique_id_t bytes;

    if (n >= 4 || room < sizeof(bytes))
        return 0;
    for (unsigned i = 0; i <= n; i++) {
        id.addrs.addr[i].family = i % 2 ? 6 : 4;
        id.addrs.addr[i].port = 1234;
    }
    tutti__id_encode(&id, &bytes);
    memcpy(ret_data, bytes.bytes, sizeof(bytes));
    return sizeof(bytes);
}
