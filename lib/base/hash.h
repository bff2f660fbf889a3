/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * FNV-1a, 64 bits: for names and signatures.
 *
 * Small, byte-wise and the same on every machine, so ranks may compare hashes. Not for input of an
 * adversary.
 */
#ifndef TUTTI__BASE_HASH_H
#define TUTTI__BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define TUTTI__HASH_INIT 0xcbf29ce484222325u

/* Continue `hash` (TUTTI__HASH_INIT for the first bytes) with more bytes. */
static inline uint64_t tutti__hash_more(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *byte = data;

    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ byte[i]) * 0x100000001b3u;
    return hash;
}

static inline uint64_t tutti__hash(const void *data, size_t bytes)
{
    return tutti__hash_more(TUTTI__HASH_INIT, data, bytes);
}

#endif
