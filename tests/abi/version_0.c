/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that was built with the header of version 0 runs with the present library.
 *
 * Each structure ends at the end of a page, and the next page allows no access. So if the library
 * reads a field that version 0 did not have, the program crashes. The program opens a communicator
 * of one rank, with a store.
 */
#include "abi/tutti_0.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: not true: %s (last error: '%s')\n", __FILE__, __LINE__, #cond, \
                    tutti_last_error());                                                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Returns a copy of the structure. The last byte of the copy is the last readable byte of its
   page. */
static void *at_end(const void *structure, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(pages != MAP_FAILED);
    CHECK(mprotect(pages + page, page, PROT_NONE) == 0);
    return memcpy(pages + page - bytes, structure, bytes);
}

/* ---- the store ---- */

typedef struct {
    char value[1024];
    size_t bytes;
} memory_t;

static int set(void *context, const char *key, const void *value, size_t bytes)
{
    memory_t *memory = context;

    CHECK(strncmp(key, "version 0", 9) == 0);
    memcpy(memory->value, value, bytes);
    memory->bytes = bytes;
    return 0;
}

static int get(void *context, const char *key, void *value, size_t room, size_t *ret_bytes,
               int timeout_ms)
{
    const memory_t *memory = context;

    CHECK(strncmp(key, "version 0", 9) == 0 && memory->bytes <= room && timeout_ms >= 0);
    memcpy(value, memory->value, memory->bytes);
    *ret_bytes = memory->bytes;
    return 0;
}

static void start(void)
{
    static memory_t memory;
    tutti_store_t store = { sizeof(store), &memory, "version 0", set, get };
    tutti_options_t options = TUTTI_OPTIONS_INIT;

    options.store = at_end(&store, sizeof(store));
    options.nranks = 1;
    CHECK(tutti_init(at_end(&options, sizeof(options))) == TUTTI_OK);
    CHECK(memory.bytes > 0);
}

/* ---- calls ---- */

static void count_end(void *arg, tutti_status_t status)
{
    CHECK(status == TUTTI_OK);
    ++*(int *)arg;
}

static const tutti_async_options_t *a_scale(double prescale, double postscale, int *ends)
{
    tutti_async_options_t options = TUTTI_ASYNC_OPTIONS_INIT;

    options.callback = count_end;
    options.callback_arg = ends;
    options.prescale = prescale;
    options.postscale = postscale;
    return at_end(&options, sizeof(options));
}

static void single(void)
{
    float x = 3, y = 0;
    tutti_request_t *request;
    int ends = 0;

    CHECK(tutti_allreduce_async("single", &x, &y, 1, TUTTI_FLOAT32, TUTTI_SUM, tutti_world(),
                                a_scale(2, 0, &ends), &request) == TUTTI_OK);
    CHECK(tutti_wait(request, -1) == TUTTI_OK);
    CHECK(y == 6 && ends == 1);
}

static void listed(void)
{
    tutti_call_t calls[2] = { TUTTI_CALL_INIT, TUTTI_CALL_INIT }, *list;
    float x = 3, y = 0, z = 7;
    tutti_request_t *requests[2];
    int ends = 0;

    calls[0].kind = TUTTI_CALL_ALLREDUCE;
    calls[0].dtype = calls[1].dtype = TUTTI_FLOAT32;
    calls[0].op = TUTTI_SUM;
    calls[0].name = "first";
    calls[0].sendbuf = &x;
    calls[0].recvbuf = &y;
    calls[0].count = calls[1].count = 1;
    calls[0].options = a_scale(0, 4, &ends);
    calls[1].kind = TUTTI_CALL_BROADCAST;
    calls[1].name = "second";
    calls[1].recvbuf = &z;
    list = at_end(calls, sizeof(calls));
    CHECK(tutti_submit(list, 2, tutti_world(), requests) == TUTTI_OK);
    CHECK(tutti_wait_all(requests, 2, -1) == TUTTI_OK);
    CHECK(y == 12 && z == 7 && ends == 1);

    y = 0;
    CHECK(tutti_persistent_create(at_end(calls, sizeof(calls[0])), tutti_world(), requests) ==
          TUTTI_OK);
    CHECK(tutti_start(requests[0]) == TUTTI_OK);
    CHECK(tutti_wait(requests[0], -1) == TUTTI_OK);
    CHECK(tutti_request_free(requests[0]) == TUTTI_OK);
    CHECK(y == 12 && ends == 2);
}

int main(void)
{
    start();
    single();
    listed();
    CHECK(tutti_finalize() == TUTTI_OK);
    return 0;
}
