/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For tests of modules without the library: the functions of the core that modules call, and checks
 * that end the process. Only one file of a program includes this header.
 */
#ifndef TUTTI_TESTS_MODULE_CHECK_H
#define TUTTI_TESTS_MODULE_CHECK_H

#include "boot/module.h"

#include "xport/xport.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Thread_local char last_error[TUTTI__ERROR_BYTES];
static const char *case_name; /* set by the program, as is `me` */
static uint32_t me;

static tutti_status_t keep_error(tutti_status_t status, const char *text)
{
    snprintf(last_error, sizeof(last_error), "%s", text);
    return status;
}

static int log_on(tutti__log_level_t level)
{
    return level <= TUTTI__LOG_WARN || getenv("MODULE_LOG") != NULL;
}

static void log_line(tutti__log_level_t level, const char *text)
{
    fprintf(stderr, "rank %u: level %d: %s\n", me, (int)level, text);
}

static tutti_status_t all_live(void)
{
    return TUTTI_OK;
}

static const char *no_variable(const char *name)
{
    (void)name;
    return NULL;
}

static const tutti__core_t core = { TUTTI__MODULE_ABI, 0,        keep_error, log_on,
                                    log_line,          all_live, no_variable };

/* Exits without calling exit handlers, so that a failed check cannot hang in MPI_Finalize. */
__attribute__((format(printf, 2, 3), noreturn)) static void die(int line, const char *fmt, ...)
{
    va_list args;

    fprintf(stderr, "%s %s, rank %u, line %d: ", program_invocation_short_name, case_name, me,
            line);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, " (last error: %s)\n", last_error);
    _exit(1);
}

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x))                                                                                  \
            die(__LINE__, "not true: %s", #x);                                                     \
    } while (0)
#define CHECK_STATUS(call, want)                                                                   \
    do {                                                                                           \
        tutti_status_t got_ = (call);                                                              \
        if (got_ != (want))                                                                        \
            die(__LINE__, "%s: got %d, want %d", #call, (int)got_, (int)(want));                   \
    } while (0)
#define CHECK_OK(call) CHECK_STATUS(call, TUTTI_OK)

#define KEY(lane_, peer_, stream_)                                                                 \
    ((tutti__chan_key_t){ .lane = (lane_), .peer = (peer_), .stream = (stream_) })

/* Byte i of message k is k * 7 + from * 31 + i * 13 + i / 256. So this table has each 256 bytes of
   a message. */
static unsigned char pattern[512];

__attribute__((constructor)) static void make_pattern(void)
{
    for (size_t i = 0; i < sizeof(pattern); i++)
        pattern[i] = (unsigned char)(i * 13);
}

/* 256 bytes of message k, from i on, which is a multiple of 256. 13 * 197 is 1 modulo 256. */
static const unsigned char *bytes_from(uint32_t from, uint32_t k, size_t i)
{
    return pattern + (from * 31 + k * 7 + (i >> 8)) * 197 % 256;
}

static void write_message(unsigned char *block, uint32_t from, uint32_t k, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 256)
        memcpy(block + i, bytes_from(from, k, i), TUTTI__MIN(bytes - i, (size_t)256));
}

/* Are these the bytes of message k? */
static int is_message(const void *data, uint32_t from, uint32_t k, size_t bytes)
{
    const unsigned char *block = data;

    for (size_t i = 0; i < bytes; i += 256)
        if (memcmp(block + i, bytes_from(from, k, i), TUTTI__MIN(bytes - i, (size_t)256)) != 0)
            return 0;
    return 1;
}

/* Pass a message around the ring, into lent slots. It has `bytes` bytes, and each of them is
   `value`. */
static void pass_on(tutti__xport_t *xport, tutti__chan_t *out, tutti__chan_t *in, char *block,
                    size_t bytes, int value, const char *slots, size_t slots_bytes)
{
    const void *data;
    tutti__hint_t hint;
    tutti_status_t status;
    int pending;

    memset(block, value, bytes);
    CHECK_OK(xport->ops->send(out, block, bytes, 0, &pending, &hint));
    while ((status = xport->ops->view(in, bytes, 0, &data, &hint)) == TUTTI__AGAIN)
        sched_yield();
    CHECK_OK(status);
    CHECK((const char *)data >= slots && (const char *)data + bytes <= slots + slots_bytes);
    CHECK(((const char *)data)[0] == value && ((const char *)data)[bytes - 1] == value);
    xport->ops->release(in);
    while (pending && (status = xport->ops->flush(out, &hint)) == TUTTI__AGAIN)
        sched_yield();
    CHECK_OK(status);
}

/* GPU-direct ends: messages may be longer than the transport's slots, and the test lends its own
   slots, which differ between runs. */
static void lend_slots(tutti__xport_t *xport, uint32_t size)
{
    static char slots[3][3 * 8192], block[8192];
    tutti__chan_t *in, *out;

    for (int run = 0; run < 3; run++) {
        tutti__chan_key_t to = KEY(1, (me + 1) % size, TUTTI__XPORT_GPU_DIRECT);
        tutti__chan_key_t from = KEY(1, (me + size - 1) % size, TUTTI__XPORT_GPU_DIRECT);

        to.slot_bytes = from.slot_bytes = 8192;
        from.credits = 3 - (uint32_t)run % 2;
        from.slots = slots[run];
        CHECK_OK(xport->ops->open_send(xport, &to, &out));
        CHECK_OK(xport->ops->open_recv(xport, &from, &in));
        CHECK_OK(xport->ops->expect(in, 7));
        for (int i = 0; i < 7; i++)
            pass_on(xport, out, in, block, i % 2 ? 100 : 8192, 10 * run + i, slots[run],
                    from.credits * 8192);
    }
}

#endif
