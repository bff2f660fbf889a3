/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What all parts of the trainer use: errors, lists, memory, a clock, a hash, random numbers.
 */
#ifndef TRAIN_BASE_H
#define TRAIN_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRAIN_ERROR_BYTES 500

/*
 * What went wrong, as one line without a newline; "" means nothing.
 *
 * A function that can fail returns false and leaves its reason here. Nobody prints it at once: the
 * ranks compare first, so that a mistake that all of them see (a misspelt option, say) is shown
 * once and not once per rank.
 */
typedef struct {
    char text[TRAIN_ERROR_BYTES];
} train_error_t;

/* Lets the compiler check a printf format against its arguments. */
#if defined(__GNUC__)
#define TRAIN_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define TRAIN_PRINTF(text, first)
#endif

/* Set the text, unless an earlier error stands there. Always returns false, to be passed on. */
bool train_fail(train_error_t *error, const char *format, ...) TRAIN_PRINTF(2, 3);

/* A few numbers from the command line, such as 512,256. */
#define TRAIN_MAX_LIST 16

typedef struct {
    size_t count;
    size_t items[TRAIN_MAX_LIST];
} train_list_t;

/* `count` zeros that begin on a cache line; for free(). NULL if memory is short. */
float *train_floats(size_t count);

/*
 * Could the file be written? Fails early what would otherwise fail after hours. Leaves a file that
 * is there as it is, and none where there is none.
 *
 * option, given  to be named in the error: what the user wrote, from which `path` may be made
 */
bool train_probe_file(const char *option, const char *given, const char *path,
                      train_error_t *error);

/* Seconds since some fixed moment; never runs backwards. */
double train_seconds(void);

/* Go on with a hash (FNV-1a) over more bytes; the first call starts from TRAIN_HASH_START. */
#define TRAIN_HASH_START UINT64_C(14695981039346656037)
uint64_t train_hash(uint64_t hash, const void *bytes, size_t count);

/*
 * Random numbers that are the same on every rank, machine and C library, which rand() is not: all
 * ranks draw the same shuffle without talking about it. splitmix64 is a counter and a mixing
 * function, one word of state, and good enough for shuffles and first weights.
 */
typedef struct {
    uint64_t state;
} train_random_t;

/* A generator for one purpose. Streams of one seed (an epoch's shuffle, say) are unrelated. */
train_random_t train_random_make(uint64_t seed, uint64_t stream);

/* A number from the normal distribution with mean 0 and deviation 1. */
float train_random_normal(train_random_t *random);

/* Fill `items` with 0 to count - 1 in random order. */
void train_random_permutation(train_random_t *random, uint32_t *items, size_t count);

#endif
