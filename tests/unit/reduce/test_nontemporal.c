/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies with non-temporal stores, for all beginnings, ends and lengths up to some cache lines. No
   byte outside a copy's destination changes. */
#include "reduce/nontemporal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum {
    LINE = 64,
    MOST = 5 * LINE,
    SIZE = MOST + 4 * LINE
};

static void copies(void **state)
{
    static uint8_t from[SIZE], to[SIZE], wanted[SIZE];

    (void)state;
    for (size_t i = 0; i < SIZE; i++)
        from[i] = (uint8_t)(i * 7 + i / 251);
    for (size_t dst = LINE; dst < 2 * LINE; dst++) {
        for (size_t src = 0; src < LINE; src += 1 + dst % 5) {
            for (size_t n = 0; n <= MOST; n++) {
                memset(to, 0xee, SIZE);
                memset(wanted, 0xee, SIZE);
                tutti__nontemporal_copy(to + dst, from + src, n);
                tutti__nontemporal_end();
                memcpy(wanted + dst, from + src, n);
                if (memcmp(to, wanted, SIZE) != 0)
                    fail_msg("%zu bytes from %zu to %zu", n, src, dst);
            }
        }
    }
}

/* A part of an unaligned array, as large as in the library's use. */
static void large(void **state)
{
    enum {
        BYTES = (1 << 20) + 5
    };
    static uint8_t from[BYTES + 1], to[BYTES + 3];

    (void)state;
    for (size_t i = 0; i < sizeof(from); i++)
        from[i] = (uint8_t)(i ^ i >> 9);
    tutti__nontemporal_copy(to + 1, from + 1, BYTES);
    tutti__nontemporal_end();
    assert_int_equal(to[0], 0);
    assert_memory_equal(to + 1, from + 1, BYTES);
    assert_int_equal(to[BYTES + 1], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies),
        cmocka_unit_test(large),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
