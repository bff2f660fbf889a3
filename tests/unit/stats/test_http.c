/* SPDX-License-Identifier: BSD-3-Clause */
/* The endpoint's parser: requests byte by byte, and input that is no request. */
#include "stats/stats_inside.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Parse a copy of exactly these bytes, so that a sanitizer sees a read beyond them. */
static tutti__http_asks_t parse(const char *text, size_t bytes, int is_full)
{
    char *copy = malloc(bytes + 1);
    tutti__http_asks_t asks;

    assert_non_null(copy);
    copy = realloc(copy, bytes > 0 ? bytes : 1);
    memcpy(copy, text, bytes);
    asks = tutti__http_parse(copy, bytes, is_full);
    free(copy);
    return asks;
}

static void test_requests(void **state)
{
    static const struct {
        const char *text;
        tutti__http_asks_t asks;
    } cases[] = {
        { "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", TUTTI__HTTP_METRICS },
        { "GET /metrics HTTP/1.0\r\n\r\n", TUTTI__HTTP_METRICS },
        { "GET /metrics HTTP/1.0\n\n", TUTTI__HTTP_METRICS },
        { "GET /metrics?a=b HTTP/1.1\r\n\r\n", TUTTI__HTTP_METRICS },
        { "GET / HTTP/1.1\r\n\r\n", TUTTI__HTTP_NOT_FOUND },
        { "GET /metric HTTP/1.1\r\n\r\n", TUTTI__HTTP_NOT_FOUND },
        { "GET /metrics/ HTTP/1.1\r\n\r\n", TUTTI__HTTP_NOT_FOUND },
        { "GET /../etc/passwd HTTP/1.1\r\n\r\n", TUTTI__HTTP_NOT_FOUND },
        { "HEAD /metrics HTTP/1.1\r\n\r\n", TUTTI__HTTP_METHOD },
        { "POST /metrics HTTP/1.1\r\nContent-Length: 2\r\n\r\nab", TUTTI__HTTP_METHOD },
        { "GETS /metrics HTTP/1.1\r\n\r\n", TUTTI__HTTP_METHOD },
        { "GET /metrics\r\n\r\n", TUTTI__HTTP_BAD },
        { "GET /metrics \r\n\r\n", TUTTI__HTTP_BAD },
        { "GET  /metrics HTTP/1.1\r\n\r\n", TUTTI__HTTP_BAD },
        { "GET metrics HTTP/1.1\r\n\r\n", TUTTI__HTTP_BAD },
        { "GET /metrics HTTP/2\r\n\r\n", TUTTI__HTTP_BAD },
        { "GET /metrics HTTQ/1.1\r\n\r\n", TUTTI__HTTP_BAD },
        { "GET\r\n\r\n", TUTTI__HTTP_BAD },
        { " \r\n\r\n", TUTTI__HTTP_BAD },
        { "\r\n\r\n", TUTTI__HTTP_BAD },
        { "\n\n", TUTTI__HTTP_BAD },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const char *text = cases[i].text, *body = strstr(text, "ab");
        size_t bytes = strlen(text) - (body != NULL ? 2 : 0);

        if (parse(text, strlen(text), 0) != cases[i].asks)
            fail_msg("\"%s\" is taken for %d", text, (int)parse(text, strlen(text), 0));
        /* Every shorter beginning is incomplete. */
        for (size_t n = 0; n < bytes; n++)
            assert_int_equal(parse(text, n, 0), TUTTI__HTTP_MORE);
        assert_int_equal(parse(text, bytes - 1, 1), TUTTI__HTTP_BAD);
    }
    assert_int_equal(parse("GET /metrics\0 HTTP/1.1\r\n\r\n", 26, 0), TUTTI__HTTP_BAD);
}

/* With random bytes from a small alphabet, the parser never returns METRICS without a whole head,
   and does not crash. */
static void test_garbage(void **state)
{
    static const char *const words[] = {
        "GET ", "/metrics", " HTTP/1.1", "\r", "\n", " ", "/", "x"
    };
    char text[400];
    uint32_t seed = 1;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        size_t n = 0;

        for (int i = 0; i < 30; i++) {
            const char *word = words[(seed = seed * 1664525 + 1013904223) >> 29];

            memcpy(text + n, word, strlen(word));
            n += strlen(word);
        }
        text[n] = '\0';
        if (parse(text, n, round & 1) == TUTTI__HTTP_METRICS) {
            assert_int_equal(strncmp(text, "GET /metrics", 12), 0);
            assert_true(strstr(text, "\n\n") != NULL || strstr(text, "\n\r\n") != NULL);
        }
    }
}

static void test_answers(void **state)
{
    tutti__stats_text_t metrics = { .at = NULL }, answer = { .at = NULL };

    (void)state;
    tutti__stats_append(&metrics, "a{} 1\n");
    tutti__http_answer(TUTTI__HTTP_METRICS, &metrics, &answer);
    assert_string_equal(answer.at, "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; "
                                   "charset=utf-8\r\nContent-Length: 6\r\nConnection: close\r\n"
                                   "\r\na{} 1\n");
    for (int asks = TUTTI__HTTP_MORE; asks <= TUTTI__HTTP_BAD; asks++) {
        answer.bytes = 0;
        tutti__http_answer((tutti__http_asks_t)asks, &metrics, &answer);
        assert_int_equal(strncmp(answer.at, "HTTP/1.1 ", 9), 0);
        assert_true(strstr(answer.at, "\r\n\r\n") != NULL);
        assert_true((strstr(answer.at, "Allow: GET") != NULL) == (asks == TUTTI__HTTP_METHOD));
    }
    free(answer.at);
    free(metrics.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_answers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
