/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The log: lines on stderr, or messages to the program's callback (log_callback.h).
 *
 * Levels follow frequency. error and warn: the user must act; info: once per job; debug: once per
 * communicator; trace: once per round; data: once per message. Texts are in lower case.
 */
#ifndef TUTTI__BASE_LOG_H
#define TUTTI__BASE_LOG_H

#include "base/compiler.h"

typedef enum {
    TUTTI__LOG_NONE = 0,
    TUTTI__LOG_ERROR,
    TUTTI__LOG_WARN,
    TUTTI__LOG_INFO,
    TUTTI__LOG_DEBUG,
    TUTTI__LOG_TRACE,
    TUTTI__LOG_DATA,
    TUTTI__LOG_LEVELS
} tutti__log_level_t;

/* Longest line, with prefix and line end; longer lines are cut. */
#define TUTTI__LOG_BYTES 1024

/* Set the process's level, and the rank shown in each line (-1: not known yet). Any thread. */
void tutti__log_setup(tutti__log_level_t level, int rank);
/* The same for a communicator that is not the world. No effect if the lines already show a rank:
   they show the rank in the world or, without a world, the rank in the first communicator. */
void tutti__log_offer(tutti__log_level_t level, int rank);
int tutti__log_on(tutti__log_level_t level);
void tutti__log_write(tutti__log_level_t level, const char *fmt, ...) TUTTI__PRINTF(2, 3);

/* The level's name, as in TUTTI_LOG=warn. */
const char *tutti__log_level_name(tutti__log_level_t level);

/* Print complete lines, without prefix and at any level: for TUTTI_HELP and TUTTI_STATS. */
void tutti__log_text(const char *text);

/* Write a line. The arguments are formatted only if the level is on. */
#define TUTTI__LOG(level, ...)                                                                     \
    do {                                                                                           \
        if (tutti__log_on(level))                                                                  \
            tutti__log_write(level, __VA_ARGS__);                                                  \
    } while (0)

#endif
