/* SPDX-License-Identifier: BSD-3-Clause */
/* The messages between an id's maker (id_server.c) and ranks (meet_id.c), in host byte order. */
#ifndef TUTTI__BOOT_ID_WIRE_H
#define TUTTI__BOOT_ID_WIRE_H

#include "boot/gate.h"
#include "boot/meet.h"

#define TUTTI__NO_RANK UINT32_MAX

/* From rank 0 to the maker, and from the maker to ranks. TUTTI__AGAIN: only `maker` is valid. */
typedef struct {
    int32_t status;
    uint32_t maker; /* the maker's rank, or TUTTI__NO_RANK */
    char text[248];
    tutti__venue_t place;
} tutti__id_word_t;

/* A rank's last message to the maker. */
typedef struct {
    int32_t status;
    char text[252];
} tutti__id_report_t;

/* If this process has made the id, pass this process's rank to the id's thread. */
void tutti__id_set_rank(const tutti__id_t *id, uint32_t rank);

#endif
