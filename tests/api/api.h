/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by tests of the public interface. Like an application, these tests use only the public
 * headers and libtutti.so.
 */
#ifndef TUTTI_TESTS_API_H
#define TUTTI_TESTS_API_H

#include <tutti/tutti.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FAIL(...)                                                                                  \
    do {                                                                                           \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                            \
        fprintf(stderr, __VA_ARGS__);                                                              \
        fprintf(stderr, "\n");                                                                     \
        _exit(1);                                                                                  \
    } while (0)

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond))                                                                               \
            FAIL("not true: %s (last error: '%s')", #cond, tutti_last_error());                    \
    } while (0)

#define CHECK_INT(a, b)                                                                            \
    do {                                                                                           \
        long long a_ = (long long)(a), b_ = (long long)(b);                                        \
        if (a_ != b_)                                                                              \
            FAIL("%s is %lld, %s is %lld", #a, a_, #b, b_);                                        \
    } while (0)

#define CHECK_STATUS(call, want)                                                                   \
    do {                                                                                           \
        tutti_status_t s_ = (call);                                                                \
        if (s_ != (want))                                                                          \
            FAIL("%s: %s (%s), wanted %s", #call, tutti_strerror(s_), tutti_last_error(),          \
                 tutti_strerror(want));                                                            \
    } while (0)

#define CHECK_OK(call) CHECK_STATUS(call, TUTTI_OK)

/* Check that a call fails, with this text in tutti_last_error(). */
#define CHECK_ERROR(call, want, words)                                                             \
    do {                                                                                           \
        CHECK_STATUS(call, want);                                                                  \
        if (strstr(tutti_last_error(), words) == NULL)                                             \
            FAIL("%s: '%s' does not say '%s'", #call, tutti_last_error(), words);                  \
    } while (0)

/*
 * Run `fn` in `size` children, which run at the same time.
 *
 * env       "NAME=VALUE" pairs, each ended by '\n', set in all children; may be NULL
 * ret_text  their output on stdout and stderr, cut at `bytes`; NULL: it goes to stdout and stderr
 *           of this process
 *
 * Returns the number of children that did not end with 0.
 */
int run_children(int size, const char *env, void (*fn)(int rank, int size), char *ret_text,
                 size_t bytes);

/* Unset the variables of launchers, and Tutti's variables except those of the tests. */
void clean_environment(void);

#endif
