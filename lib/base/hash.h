/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * FNV-1a with 64 bits, for signatures and for hashes of bytes that leave the process.
 *
 * Works byte by byte and gives the same hash on every machine, so ranks may compare hashes. It is
 * not safe if an adversary chooses the input.
 */
#ifndef TUTTI__BASE_HASH_H
#define TUTTI__BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

/* Continue `hash` with a word. Used for tables, and to identify a call between hosts. */
static inline uint64_t tutti__hash_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

/* Hash a name, for tables in one process. Takes eight bytes at a time, because in FNV-1a each byte
   waits for the multiplication of the previous byte. */
static inline uint64_t tutti__hash_name(const char *name, size_t bytes)
{
    uint64_t hash = tutti__hash_mix(0, bytes), word = 0;
    size_t at = 0;

    for (; at + sizeof(word) < bytes; at += sizeof(word)) {
        memcpy(&word, name + at, sizeof(word));
        hash = tutti__hash_mix(hash, word);
    }
    if (bytes >= sizeof(word))
        memcpy(&word, name + bytes - sizeof(word), sizeof(word));
    for (; bytes < sizeof(word) && at < bytes; at++)
        word = word << 8 | (unsigned char)name[at];
    hash = tutti__hash_mix(hash, word);
    /* Mix once more. Names often differ only in the last bytes of this word. One mix carries these
       bytes only to bits 24 and higher, but tables use the lowest bits. */
    return tutti__hash_mix(hash, 0);
}

#endif
