/* SPDX-License-Identifier: BSD-3-Clause */
/* The messages between a gate and its guests, in host byte order. See gate.h. */
#ifndef TUTTI__BOOT_GATE_WIRE_H
#define TUTTI__BOOT_GATE_WIRE_H

#include "boot/gate.h"

#define TUTTI__GATE_MAGIC 0x6574616769747475u /* "uttigate" */

/* A guest's last message. LATER: the guest leaves, and may knock again. */
#define TUTTI__GATE_CONFIRM 0x796573u
#define TUTTI__GATE_LATER 0x6f6eu

/* Messages before the knock, at gates with a pass; see pass.h. */
#define TUTTI__GATE_GREETING 0x7465657267747475u /* "uttgreet" */
#define TUTTI__GATE_HELLO 0x006f6c6c65687475u    /* "uthello" */
#define TUTTI__GATE_RUN_BYTES 64

typedef struct {
    uint64_t magic;
    uint32_t layout; /* magic and layout have the same offsets in all versions */
    uint32_t has_secret;
    uint64_t restart, run_hash; /* the gate's job, as in the hello */
    uint32_t port, unused;
    unsigned char number[16];
} tutti__gate_greeting_t;

typedef struct {
    uint64_t magic;
    uint32_t layout, port;
    uint64_t restart, run_hash;
    char run[TUTTI__GATE_RUN_BYTES]; /* padded with zeros */
    unsigned char number[16];
} tutti__gate_hello_t;

typedef struct {
    uint64_t magic;
    uint32_t layout, purpose, number, rank, size;
    uint32_t left_ms; /* time until the guest's `until` (tutti__gate_t), at least 1; 0: not set */
    unsigned char token[16];
} tutti__gate_knock_t;

typedef struct {
    uint64_t magic;
    uint32_t layout;
    int32_t status;
    unsigned char token[16];
    char text[224];
} tutti__gate_answer_t;

/* Compare two tokens. The duration does not depend on the position of a difference. */
static inline int tutti__gate_same_token(const unsigned char *a, const unsigned char *b)
{
    unsigned differ = 0;

    for (size_t i = 0; i < 16; i++)
        differ |= (unsigned)(a[i] ^ b[i]);
    return differ == 0;
}

#endif
