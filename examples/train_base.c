/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions for all parts of the trainer, independent of ranks and models.
 */
#include "train_base.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 64 /* of the cache */

bool train_fail(train_error_t *error, const char *format, ...)
{
    /* keep the first error: later errors are usually its consequences */
    if (error->text[0] != '\0')
        return false;

    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof(error->text), format, arguments);
    va_end(arguments);
    return false;
}

float *train_floats(size_t count)
{
    const size_t bytes = (count * sizeof(float) + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    float *floats = aligned_alloc(LINE_BYTES, bytes);

    if (floats != NULL)
        memset(floats, 0, bytes);
    return floats;
}

bool train_probe_file(const char *option, const char *given, const char *path, train_error_t *error)
{
    struct stat info;
    const bool there = lstat(path, &info) == 0; /* not access(): it would follow a link */
    const int file = open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0666);

    if (file < 0)
        return train_fail(error, "%s %s: %s", option, given, strerror(errno));
    close(file);
    if (!there)
        unlink(path);
    return true;
}

double train_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

uint64_t train_hash(uint64_t hash, const void *bytes, size_t count)
{
    const uint8_t *next = bytes;

    for (size_t i = 0; i < count; i++)
        hash = (hash ^ next[i]) * UINT64_C(1099511628211);
    return hash;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

train_random_t train_random_make(uint64_t seed, uint64_t stream)
{
    /* mixed twice, so that the seeds and streams (1, 2) and (2, 1) give different states */
    const train_random_t random = { mix(mix(seed + 1) + stream) };

    return random;
}

static uint64_t random_bits(train_random_t *random)
{
    random->state += UINT64_C(0x9e3779b97f4a7c15);
    return mix(random->state);
}

/* Uniform in (0, 1]: the upper 53 bits plus one; never 0, so its logarithm exists. */
static double uniform(train_random_t *random)
{
    return (double)((random_bits(random) >> 11) + 1) / 9007199254740992.0;
}

float train_random_normal(train_random_t *random)
{
    /* Box-Muller; its second number is not used, so the state is one word */
    const double radius = sqrt(-2.0 * log(uniform(random)));
    const double angle = 6.283185307179586 * uniform(random);

    return (float)(radius * cos(angle));
}

void train_random_permutation(train_random_t *random, uint32_t *items, size_t count)
{
    for (size_t i = 0; i < count; i++)
        items[i] = (uint32_t)i;

    /* Fisher-Yates; scaling 32 bits to the range has a bias below count / 2^32, which is
       harmless */
    for (size_t left = count; left > 1; left--) {
        const size_t pick = (size_t)(((random_bits(random) >> 32) * left) >> 32);
        const uint32_t item = items[pick];

        items[pick] = items[left - 1];
        items[left - 1] = item;
    }
}
