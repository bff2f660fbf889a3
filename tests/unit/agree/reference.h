/* SPDX-License-Identifier: BSD-3-Clause */
/* A scenario: the calls that each rank submits, and the outcomes that agreement may give these
   calls. */
#ifndef TUTTI_TESTS_UNIT_AGREE_REFERENCE_H
#define TUTTI_TESTS_UNIT_AGREE_REFERENCE_H

#include "agree/agree.h"

#define MOST_RANKS 9
#define MOST_TENSORS 10

/* One rank's part of a tensor. */
typedef struct {
    int has;
    int group;   /* number of this rank's submission group; 0: a lone call */
    int version; /* of a collective: parts of different versions do not match */
    tutti__metadata_t metadata;
} part_t;

typedef struct {
    uint32_t nranks, ntensors;
    int joins; /* every rank joins when all of its calls have ended */
    part_t part[MOST_TENSORS][MOST_RANKS];
    unsigned joined;                        /* ranks that can join: all of their calls end */
    unsigned may[MOST_TENSORS][MOST_RANKS]; /* outcomes that agreement may give a part */
} scenario_t;

/* Outcomes, as bits. PENDING: the call has no outcome although all messages have arrived and all
   grace periods have ended. */
enum {
    PENDING = 1,
    SERVED = 2,
    MISMATCH = 4,
    UNSUPPORTED = 8
};

static inline int is_message(const part_t *part)
{
    return part->has && tutti__metadata_is_message(&part->metadata);
}

/* Set `joined` and `may`. */
void reference(scenario_t *s);

#endif
