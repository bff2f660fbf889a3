/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a fuzz target without a fuzzer. The inputs are the files named as arguments (for example one
 * that has led to a crash) or, without arguments, the target's seeds, their mutations, and noise.
 * The long form has new mutations and noise until there are a million inputs. Each run has the same
 * inputs.
 */
#include "fuzz.h"
#include "long.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM ((size_t)1 << 16)
#define MUTATIONS 400u
#define NOISES 2000u
#define LONG_INPUTS 1000000u

static uint64_t state = 88172645463325252u;
static unsigned inputs; /* number of inputs that have run */

/* xorshift64 */
static uint32_t next(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32) % below;
}

/* Copy the input into an allocation of exactly its size, so that a sanitizer detects reads beyond
   it. */
static void run(const uint8_t *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes + (bytes == 0));

    if (copy == NULL)
        exit(1);
    memcpy(copy, data, bytes);
    LLVMFuzzerTestOneInput(copy, bytes);
    inputs++;
    free(copy);
}

static size_t mutate(uint8_t *data, size_t bytes)
{
    for (uint32_t n = 1 + next(4); n > 0 && bytes > 0; n--) {
        switch (next(4)) {
        case 0:
            data[next((uint32_t)bytes)] ^= (uint8_t)(1u << next(8));
            break;
        case 1:
            data[next((uint32_t)bytes)] = (uint8_t)next(256);
            break;
        case 2:
            bytes = next((uint32_t)bytes + 1);
            break;
        default:
            data[next((uint32_t)bytes)] = next(2) ? 0xff : 0;
        }
    }
    return bytes;
}

static void run_round(uint8_t *seed, uint8_t *data)
{
    size_t bytes;

    for (unsigned n = 0; (bytes = fuzz_seed(n, seed, ROOM)) > 0; n++) {
        run(seed, bytes);
        for (unsigned i = 0; i < MUTATIONS; i++) {
            memcpy(data, seed, bytes);
            run(data, mutate(data, bytes));
        }
    }
    for (unsigned i = 0; i < NOISES; i++) {
        /* About half of these inputs have only small bytes, because most formats begin with
           lengths. */
        uint32_t below = next(2) ? 256 : 4;

        bytes = next(next(2) ? 64 : 4096);
        for (size_t k = 0; k < bytes; k++)
            data[k] = (uint8_t)next(below);
        run(data, bytes);
    }
}

static void run_all(uint8_t *seed, uint8_t *data)
{
    unsigned least = test_is_long("most of a million inputs") ? LONG_INPUTS : 1;

    while (inputs < least)
        run_round(seed, data);
    printf("%u inputs\n", inputs);
}

static int run_file(const char *path, uint8_t *data)
{
    FILE *file = fopen(path, "rb");
    size_t bytes;

    if (file == NULL) {
        perror(path);
        return 1;
    }
    bytes = fread(data, 1, ROOM, file);
    fclose(file);
    run(data, bytes);
    return 0;
}

int main(int argc, char **argv)
{
    uint8_t *seed = malloc(ROOM), *data = malloc(ROOM);
    int failed = seed == NULL || data == NULL;

    for (int i = 1; i < argc && !failed; i++)
        failed = run_file(argv[i], data);
    if (argc == 1 && !failed)
        run_all(seed, data);
    free(seed);
    free(data);
    return failed;
}
