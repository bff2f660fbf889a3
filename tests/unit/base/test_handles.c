/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles are found while they are valid, and never afterwards, for any number of handles and with
   concurrent threads. */
#include "base/handles.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum {
    MANY = 3 * TUTTI__HANDLES_CHUNK + 17, /* handles of one table */
    GENERATIONS = 1 << 24,
    THREADS = 4,
    ROUNDS = 20000
};

static void *make(tutti__handles_t *table, void *object)
{
    void *handle = NULL;

    assert_int_equal(tutti__handle_make(table, object, &handle), TUTTI_OK);
    assert_non_null(handle);
    return handle;
}

static int leads_to(const tutti__handles_t *table, const void *handle, const void *object)
{
    const tutti__slot_t *slot = tutti__handle_find(table, handle);

    return slot != NULL && tutti__handle_object(slot) == object;
}

static int is_none(const tutti__handles_t *table, const void *handle)
{
    return tutti__handle_find(table, handle) == NULL;
}

/* No value is a handle of a table that has never given out a handle. */
static void test_empty(void **state)
{
    static tutti__handles_t table = TUTTI__HANDLES_INIT(TUTTI__HANDLE_COMM, "t", "e");

    (void)state;
    for (uintptr_t low = 0; low < (uintptr_t)4 << 16; low++) {
        assert_true(is_none(&table, (void *)low));
        assert_true(is_none(&table, (void *)((uintptr_t)TUTTI__HANDLE_COMM << 56 | low)));
        assert_true(is_none(&table, (void *)~low));
    }
}

static void test_many(void **state)
{
    static tutti__handles_t table = TUTTI__HANDLES_INIT(TUTTI__HANDLE_REQUEST, "t", "e");
    static int objects[MANY];
    void **first = calloc(MANY, sizeof(*first)), **second = calloc(MANY, sizeof(*second));

    (void)state;
    for (int i = 0; i < MANY; i++)
        first[i] = make(&table, &objects[i]);
    for (int i = 0; i < MANY; i++)
        assert_true(leads_to(&table, first[i], &objects[i]));
    assert_true(is_none(&table, (char *)first[MANY - 1] + 16));
    for (int i = 0; i < MANY; i++)
        tutti__handle_end(&table, first[i]);
    for (int i = 0; i < MANY; i++)
        second[i] = make(&table, &objects[i]);
    assert_int_equal(table.used, MANY);
    for (int i = 0; i < MANY; i++) {
        assert_true(is_none(&table, first[i]));
        assert_true(leads_to(&table, second[i], &objects[i]));
        tutti__handle_end(&table, second[i]);
    }
    free(first);
    free(second);
}

/* A slot has a different handle in each of its generations. Only after the last generation does it
   have its first handle again. */
static void test_generations(void **state)
{
    static tutti__handles_t table = TUTTI__HANDLES_INIT(TUTTI__HANDLE_COMM, "t", "e");
    int object, same = 0;
    void *old = make(&table, &object), *now = old;

    (void)state;
    for (int i = 0; i < GENERATIONS; i++) {
        tutti__handle_end(&table, now);
        same += !is_none(&table, old);
        now = make(&table, &object);
        same += now == old && i < GENERATIONS - 1;
    }
    assert_int_equal(same, 0);
    assert_ptr_equal(now, old);
    assert_int_equal(table.used, 1);
    tutti__handle_end(&table, now);
}

static void test_words(void **state)
{
    static tutti__handles_t table =
        TUTTI__HANDLES_INIT(TUTTI__HANDLE_COMM, "communicator", "was freed");
    static tutti__handles_t other = TUTTI__HANDLES_INIT(TUTTI__HANDLE_REQUEST, "t", "e");
    int object;
    void *first = make(&table, &object), *second, *request = make(&other, &object);

    (void)state;
#define WRONG(handle, words)                                                                       \
    do {                                                                                           \
        assert_true(is_none(&table, handle));                                                      \
        assert_int_equal(tutti__handle_wrong(&table, handle, "comm"), TUTTI_ERR_INVALID_ARGUMENT); \
        assert_string_equal(tutti_last_error(), words);                                            \
    } while (0)
    tutti__handle_end(&table, first);
    WRONG(first, "comm is a communicator that was freed");
    second = make(&table, &object);
    WRONG(first, "comm is a communicator that was freed");
    WRONG(request, "comm is a request, not a communicator");
    /* The next generation of the slot, and the next slot. */
    WRONG((char *)second + ((uintptr_t)1 << 32),
          "comm, 0xc100000200000010, is no communicator of Tutti");
    WRONG((char *)second + 16, "comm, 0xc100000100000020, is no communicator of Tutti");
    WRONG((char *)second + 1, "comm, 0xc100000100000011, is no communicator of Tutti");
    WRONG((void *)0x1234, "comm, 0x1234, is no communicator of Tutti");
    /* The content of a free or unused slot is not a handle. */
    WRONG((void *)~(uintptr_t)second, "comm, 0x3efffffeffffffef, is no communicator of Tutti");
    tutti__handle_end(&table, second);
    assert_true(is_none(&table, (void *)(uintptr_t)table.first[1].handle));
    assert_true(is_none(&table, NULL));
    tutti__handle_end(&table, NULL);
    tutti__handle_end(&other, request);
}

/* Retire and renew keep the slot, in the first chunk and in later ones. */
static void test_kept(void **state)
{
    static tutti__handles_t table =
        TUTTI__HANDLES_INIT(TUTTI__HANDLE_REQUEST, "request", "was freed");
    static int objects[MANY];
    void **first = calloc(MANY, sizeof(*first));

    (void)state;
    for (int i = 0; i < MANY; i++)
        first[i] = make(&table, &objects[i]);
    for (int i = 0; i < MANY; i++) {
        void *second;

        tutti__handle_retire(&table, first[i]);
        assert_true(is_none(&table, first[i]));
        tutti__handle_retire(&table, first[i]);
        second = tutti__handle_renew(&table, first[i]);
        assert_ptr_equal(second, (char *)first[i] + ((uintptr_t)1 << 32));
        assert_true(leads_to(&table, second, &objects[i]));
        assert_true(is_none(&table, first[i]));
        tutti__handle_wrong(&table, first[i], "it");
        assert_string_equal(tutti_last_error(), "it is a request that was freed");
        first[i] = second;
    }
    /* tutti__handle_retire does not free the slot; tutti__handle_end does. */
    tutti__handle_retire(&table, first[0]);
    first[0] = make(&table, &objects[0]);
    assert_int_equal(table.used, MANY + 1);
    for (int i = 0; i < MANY; i++) {
        tutti__handle_retire(&table, first[i]);
        tutti__handle_end(&table, first[i]);
    }
    for (int i = 0; i < MANY; i++)
        assert_true(leads_to(&table, make(&table, &objects[i]), &objects[i]));
    assert_int_equal(table.used, MANY + 1);
    tutti__handle_retire(&table, NULL);
    free(first);
}

/* ---- threads ---- */

static tutti__handles_t shared = TUTTI__HANDLES_INIT(TUTTI__HANDLE_REQUEST, "t", "e");
static _Atomic(void *) stale; /* a handle that any thread has ended */

static void *churn(void *arg)
{
    intptr_t wrong = 0;
    int objects[8] = { 0 };
    void *handle[8];

    (void)arg;
    for (int round = 0; round < ROUNDS; round++) {
        int n = 1 + round % 8;

        for (int i = 0; i < n; i++)
            wrong += tutti__handle_make(&shared, &objects[i], &handle[i]) != TUTTI_OK;
        for (int i = 0; i < n; i++)
            wrong += !leads_to(&shared, handle[i], &objects[i]);
        for (int i = 0; i < n; i++)
            tutti__handle_end(&shared, handle[i]);
        for (int i = 0; i < n; i++)
            wrong += !is_none(&shared, handle[i]);
        wrong += !is_none(&shared, atomic_load(&stale));
        atomic_store(&stale, handle[0]);
    }
    return (void *)wrong;
}

static void test_threads(void **state)
{
    pthread_t thread[THREADS];
    void *wrong;

    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, churn, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(thread[i], &wrong), 0);
        assert_null(wrong);
    }
    /* Each slot was freed, so the table has not grown beyond the handles in use. */
    assert_true(shared.used <= THREADS * 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),       cmocka_unit_test(test_many),
        cmocka_unit_test(test_generations), cmocka_unit_test(test_words),
        cmocka_unit_test(test_kept),        cmocka_unit_test(test_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
