/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Unique ids as bytes. See meet.h for the layout.
 *
 * These functions use no sockets, so they can be fuzzed. Programs get ids from files, mails and
 * environment variables, so an id's content is not trusted. The checksum detects damage, not
 * forgery: an id must be kept secret like a password.
 */
#include "boot/meet.h"

#include "base/hash.h"

#include <string.h>

#define HEAD_BYTES 42u
#define SUM_AT 124u

_Static_assert(sizeof(tutti_unique_id_t) == SUM_AT + 4, "an id's last bytes are its checksum");
_Static_assert(sizeof(tutti__gate_token_t) == 32, "a token fits into an id");

static const unsigned char magic[4] = { 'T', 'u', 'I', 'd' };

static void put(unsigned char *to, uint32_t value, size_t bytes)
{
    while (bytes-- > 0) {
        to[bytes] = (unsigned char)value;
        value >>= 8;
    }
}

static uint32_t get(const unsigned char *from, size_t bytes)
{
    uint32_t value = 0;

    for (size_t i = 0; i < bytes; i++)
        value = value << 8 | from[i];
    return value;
}

static uint32_t checksum(const unsigned char *bytes)
{
    uint64_t hash = tutti__hash(bytes, SUM_AT);

    return (uint32_t)(hash ^ hash >> 32);
}

void tutti__id_encode(const tutti__id_t *id, tutti_unique_id_t *ret_id)
{
    unsigned char bytes[sizeof(*ret_id)] = { 0 };
    size_t used = HEAD_BYTES;

    memcpy(bytes, magic, sizeof(magic));
    put(bytes + 4, TUTTI__BOOT_LAYOUT, 2);
    for (unsigned family = 4; family <= 6; family += 2) {
        size_t length = family == 4 ? 4 : 16;

        for (uint32_t i = 0; i < id->addrs.count; i++) {
            const tutti__net_addr_t *addr = &id->addrs.addr[i];

            if (addr->family != family || used + length > SUM_AT)
                continue;
            memcpy(bytes + used, addr->ip, length);
            used += length;
            bytes[family == 4 ? 6 : 7]++;
            put(bytes + 8, addr->port, 2);
        }
    }
    memcpy(bytes + 10, &id->token, sizeof(id->token));
    put(bytes + SUM_AT, checksum(bytes), 4);
    memcpy(ret_id->bytes, bytes, sizeof(bytes));
}

static void take_addrs(const unsigned char *bytes, unsigned n4, unsigned n6,
                       tutti__net_addrs_t *ret_addrs)
{
    const unsigned char *at = bytes + HEAD_BYTES;

    memset(ret_addrs, 0, sizeof(*ret_addrs));
    for (unsigned i = 0; i < n4 + n6; i++) {
        tutti__net_addr_t *addr = &ret_addrs->addr[ret_addrs->count++];
        size_t length = i < n4 ? 4 : 16;

        addr->family = i < n4 ? 4 : 6;
        addr->port = (uint16_t)get(bytes + 8, 2);
        memcpy(addr->ip, at, length);
        at += length;
    }
}

tutti_status_t tutti__id_decode(const tutti_unique_id_t *id, tutti__id_t *ret_id)
{
    unsigned char bytes[sizeof(*id)];
    unsigned n4, n6;

    memcpy(bytes, id->bytes, sizeof(bytes));
    if (memcmp(bytes, magic, sizeof(magic)) != 0)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "this is no unique id: tutti_unique_id_create did not make it");
    if (get(bytes + 4, 2) != TUTTI__BOOT_LAYOUT)
        return tutti__fail(TUTTI_ERR_ABI, "the unique id has layout %u, this library %u",
                           get(bytes + 4, 2), TUTTI__BOOT_LAYOUT);
    if (get(bytes + SUM_AT, 4) != checksum(bytes))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "the unique id was damaged on its way: its checksum is wrong");
    n4 = bytes[6];
    n6 = bytes[7];
    if (n4 + n6 == 0 || n4 + n6 > TUTTI__NET_ADDRS || HEAD_BYTES + 4 * n4 + 16 * n6 > SUM_AT ||
        get(bytes + 8, 2) == 0)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "the unique id has no valid address");
    take_addrs(bytes, n4, n6, &ret_id->addrs);
    memcpy(&ret_id->token, bytes + 10, sizeof(ret_id->token));
    return TUTTI_OK;
}
