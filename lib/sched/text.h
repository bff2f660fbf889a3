/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading schedules from text: declarations for text.c and text_ops.c. */
#ifndef TUTTI__SCHED_TEXT_H
#define TUTTI__SCHED_TEXT_H

#include "sched/build.h"
#include "sched/words.h"

#define TUTTI__TEXT_NOT_SAID UINT32_MAX

typedef struct {
    uint32_t stream, line;
} tutti__text_origin_t;

typedef struct {
    tutti__words_t words;
    uint32_t size;
    uint32_t nscheds; /* finished schedules */
    tutti__sched_t **scheds;

    /* the schedule under construction */
    tutti__build_t *b; /* NULL: none */
    uint32_t head_line;
    uint32_t said_marks[TUTTI__SCHED_STREAMS], marks_line[TUTTI__SCHED_STREAMS];
    uint32_t said_trips; /* in the text of the last loop */
    uint32_t most_shift; /* in the last loop */
    uint32_t rank, stream;
    uint32_t loop_line[TUTTI__SCHED_STREAMS]; /* of its open loop; 0: none */
    /* The lines of the schedule's operations, in the order of the text. */
    tutti__text_origin_t *origins;
    uint32_t norigins, origins_capacity;
} tutti__text_t;

/* Read the line of one operation of a schedule. Returns 0 after an error, which in->words keeps. */
int tutti__text_operation(tutti__text_t *in);

#endif
