/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part of libpmix.so.2's binary interface that pmix.c uses. PMIx's standard keeps this
 * interface stable. One difference from the header of PMIx 4.2.2: there, a value has 32 bytes.
 */
#ifndef TUTTI__BOOT_PMIX_H
#define TUTTI__BOOT_PMIX_H

#include <stdint.h>

#define TUTTI__PMIX_SUCCESS 0
#define TUTTI__PMIX_BOOL 1
#define TUTTI__PMIX_STRING 3
#define TUTTI__PMIX_UINT32 14
#define TUTTI__PMIX_GLOBAL 3
#define TUTTI__PMIX_ALL_RANKS (UINT32_MAX - 1)

typedef struct {
    char space[256]; /* the job's name */
    uint32_t rank;
} tutti__pmix_proc_t;

/* This structure may be longer than PMIx's own structure. */
typedef struct {
    uint16_t type;
    union {
        unsigned char flag;
        uint32_t number;
        char *text;
        uint64_t storage[8];
    } data;
} tutti__pmix_value_t;

/* Pass only one structure at a time: the elements of an array must have PMIx's length. */
typedef struct {
    char key[512];
    uint32_t flags;
    tutti__pmix_value_t value;
} tutti__pmix_info_t;

#endif
