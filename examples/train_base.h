/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions for all parts of the trainer: errors, lists, memory, a clock, a hash, random numbers.
 */
#ifndef TRAIN_BASE_H
#define TRAIN_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRAIN_ERROR_BYTES 500

/*
 * An error as one line without a newline; "": no error.
 *
 * A function that can fail returns false and stores the reason here, but does not print it. The
 * ranks first compare their errors, so that an error of all ranks, such as a misspelt option, is
 * printed once and not once per rank.
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

/* Set the text, unless there is an earlier error. Always returns false. */
bool train_fail(train_error_t *error, const char *format, ...) TRAIN_PRINTF(2, 3);

/* A few numbers from the command line, such as 512,256. */
#define TRAIN_MAX_LIST 16

typedef struct {
    size_t count;
    size_t items[TRAIN_MAX_LIST];
} train_list_t;

/* `count` zeros that begin on a cache line; freed by free(). NULL: no memory. */
float *train_floats(size_t count);

/*
 * Can the file be written? The check finds an error at the start of a run, not after hours. It does
 * not change an existing file, and leaves no new file, with one exception: if the path is a link to
 * a file that does not exist, it leaves an empty file there.
 *
 * option, given  the option and its value, for the error text; `path` may differ from `given`
 */
bool train_probe_file(const char *option, const char *given, const char *path,
                      train_error_t *error);

/* Seconds since a fixed moment, by a monotonic clock. */
double train_seconds(void);

/* Continue a hash (FNV-1a) with more bytes; the first call starts from TRAIN_HASH_START. */
#define TRAIN_HASH_START UINT64_C(14695981039346656037)
uint64_t train_hash(uint64_t hash, const void *bytes, size_t count);

/*
 * Random numbers that are the same on every rank, machine and C library, unlike rand(): all ranks
 * draw the same shuffle without communication. splitmix64 is a counter and a mixing function with
 * one word of state, and good enough for shuffles and first weights.
 */
typedef struct {
    uint64_t state;
} train_random_t;

/* A generator for one purpose, such as an epoch's shuffle. Streams of one seed are independent. */
train_random_t train_random_make(uint64_t seed, uint64_t stream);

/* A number from the normal distribution with mean 0 and deviation 1. */
float train_random_normal(train_random_t *random);

/* Fill `items` with 0 to count - 1 in random order. */
void train_random_permutation(train_random_t *random, uint32_t *items, size_t count);

#endif
