/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counters: the buckets of histograms, the parts by algorithm and transport, the times of phases,
 * the metrics of Prometheus and the table at the end. Also: the output registers its fork handlers
 * while it holds none of its locks. Otherwise a fork before the registration would copy a held
 * lock.
 */
#include "stats/add.h"
#include "stats/stats_inside.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static tutti__stats_t *open_stats(int is_timed)
{
    const tutti__stats_want_t want = {
        .rank = 3, .size = 5, .name = "a \"b\\c\nd", .is_timed = is_timed, .file = "", .port = -1
    };

    return tutti__stats_open(&want);
}

static tutti_stats_t read_all(tutti__stats_t *stats)
{
    tutti_stats_t all = TUTTI_STATS_INIT;

    tutti__stats_read(stats, &all);
    assert_int_equal(all.size, sizeof(all));
    return all;
}

static void test_buckets(void **state)
{
    (void)state;
    assert_int_equal(tutti__stats_bucket(0), 0);
    assert_int_equal(tutti__stats_bucket(1), 0);
    for (unsigned i = 1; i < TUTTI_STATS_BUCKETS - 1; i++) {
        uint64_t limit = (uint64_t)1 << i;

        assert_int_equal(tutti__stats_bucket(limit), i);
        assert_int_equal(tutti__stats_bucket(limit + 1), i + 1);
        assert_int_equal(tutti__stats_bucket(limit / 2 + 1), i);
    }
    assert_int_equal(tutti__stats_bucket((uint64_t)1 << 47), 47);
    assert_int_equal(tutti__stats_bucket((uint64_t)1 << 60), 47);
    assert_int_equal(tutti__stats_bucket(UINT64_MAX), 47);
}

/* Direct calls, asynchronous ones, and two algorithms of one kind. */
static void test_classes(void **state)
{
    static const char ring[] = "ring";
    char again[] = "ring"; /* equal to `ring`, at another address */
    const tutti__stats_what_t whats[] = {
        { TUTTI_CALL_ALLREDUCE, 0, ring, "shm" }, { TUTTI_CALL_ALLREDUCE, 0, "node", "shm" },
        { TUTTI_CALL_ALLREDUCE, 0, ring, "mpi" }, { TUTTI_CALL_REDUCE, 0, ring, "shm" },
        { TUTTI_CALL_ALLREDUCE, 1, ring, "shm" }, { TUTTI_CALL_ALLREDUCE, 0, again, "shm" }
    };
    tutti__stats_t *stats = open_stats(0);
    tutti_stats_part_t part = TUTTI_STATS_PART_INIT;
    tutti_stats_t all;

    (void)state;
    for (unsigned i = 0; i < 6; i++)
        tutti__stats_count(tutti__stats_find(stats, &whats[i], 100 << i), 100 << i);
    all = read_all(stats);
    assert_int_equal(all.nparts, 5);
    assert_int_equal(all.direct[TUTTI_CALL_ALLREDUCE].operations, 4);
    assert_int_equal(all.direct[TUTTI_CALL_ALLREDUCE].bytes, 100 + 200 + 400 + 3200);
    assert_int_equal(all.direct[TUTTI_CALL_REDUCE].bytes, 800);
    assert_int_equal(all.async[TUTTI_CALL_ALLREDUCE].operations, 0); /* counts requests */
    assert_int_equal(all.direct_bytes.count, 5);
    assert_int_equal(all.direct_bytes.sum, 100 + 200 + 400 + 800 + 3200);
    assert_int_equal(all.direct_bytes.buckets[7], 1); /* 100 */
    assert_int_equal(all.direct_bytes.buckets[12], 1);
    assert_int_equal(tutti__stats_part(stats, 0, &part), 1);
    assert_string_equal(part.algorithm, "ring");
    assert_int_equal(part.operations, 2);
    assert_int_equal(part.bytes, 3300);
    assert_int_equal(tutti__stats_part(stats, 2, &part), 1);
    assert_string_equal(part.transport, "mpi");
    assert_int_equal(tutti__stats_part(stats, 4, &part), 1);
    assert_int_equal(part.is_async, 1);
    assert_int_equal(tutti__stats_part(stats, 5, &part), 0);
    assert_int_equal(part.is_async, 1); /* unchanged */
    tutti__stats_close(stats);
}

static void test_long_names(void **state)
{
    tutti__stats_t *stats = open_stats(0);
    char name[100];
    const tutti__stats_what_t what = { TUTTI_CALL_ALLREDUCE, 0, name, "shm" };
    tutti_stats_part_t part = TUTTI_STATS_PART_INIT;

    (void)state;
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_ptr_equal(tutti__stats_find(stats, &what, 8), tutti__stats_find(stats, &what, 8));
    assert_int_equal(tutti__stats_part(stats, 0, &part), 1);
    assert_int_equal(strlen(part.algorithm), sizeof(part.algorithm) - 1);
    assert_int_equal(tutti__stats_part(stats, 1, &part), 0);
    tutti__stats_close(stats);
}

static void test_requests(void **state)
{
    const tutti__stats_what_t what = { TUTTI_CALL_BROADCAST, 1, "node", "shm" };
    tutti__stats_t *stats = open_stats(0);
    tutti_stats_t all;

    (void)state;
    tutti__stats_submit(stats, 3);
    tutti__stats_request(stats, TUTTI_CALL_BROADCAST, 64, 1000, TUTTI_OK);
    tutti__stats_request(stats, TUTTI_CALL_BROADCAST, 65, 2000, TUTTI_OK);
    tutti__stats_request(stats, TUTTI_CALL_BROADCAST, 1, 4096, TUTTI_ERR_MISMATCH);
    tutti__stats_bucket_end(stats, &what, 2, 129, 0);
    tutti__stats_ordered_end(stats, &what, 10, 0);
    tutti__stats_announcement(stats);
    tutti__stats_bucket_message(stats);
    tutti__stats_bucket_message(stats);
    tutti__stats_other_message(stats);
    tutti__stats_plan_step(stats);
    tutti__stats_plan_hit(stats, 1);
    tutti__stats_plan_break(stats);
    all = read_all(stats);
    assert_int_equal(all.times, 0);
    assert_int_equal(all.requests, 3);
    assert_int_equal(all.failed, 1);
    assert_int_equal(all.async[TUTTI_CALL_BROADCAST].operations, 2);
    assert_int_equal(all.async[TUTTI_CALL_BROADCAST].bytes, 129);
    assert_int_equal(all.async_bytes.buckets[6], 1);
    assert_int_equal(all.async_bytes.buckets[7], 1);
    assert_int_equal(all.async_ns.count, 3);
    assert_int_equal(all.async_ns.sum, 7096);
    assert_int_equal(all.async_ns.buckets[12], 1);
    assert_int_equal(all.buckets, 1);
    assert_int_equal(all.bucket_tensors, 2);
    assert_int_equal(all.bucket_bytes, 129);
    assert_int_equal(all.ordered, 1);
    assert_int_equal(all.announcements_sent, 1);
    assert_int_equal(all.bucket_messages_sent, 2);
    assert_int_equal(all.other_messages_sent, 1);
    assert_int_equal(all.plan_in_place, 1);
    assert_int_equal(all.plan_steps + 10 * all.plan_hits + 100 * all.plan_breaks, 111);
    assert_int_equal(all.exposed_ns + all.in_flight_ns + all.hidden_ns, 0);
    tutti__stats_close(stats);
}

static void nap(void)
{
    usleep(2000);
}

/* Each time belongs to exactly the phases that it is in, so these equations are exact. */
static void test_phases(void **state)
{
    tutti__stats_t *stats = open_stats(1);
    tutti_stats_t a, b;

    (void)state;
    nap();
    a = read_all(stats);
    assert_int_equal(a.times, 1);
    assert_int_equal(a.exposed_ns + a.in_flight_ns + a.hidden_ns, 0);

    tutti__stats_in_flight(stats, 1); /* no thread waits: the time is hidden */
    nap();
    tutti__stats_in_flight(stats, 1);
    tutti__stats_in_flight(stats, 0);
    a = read_all(stats);
    assert_true(a.in_flight_ns >= 2000000);
    assert_int_equal(a.hidden_ns, a.in_flight_ns);
    assert_int_equal(a.exposed_ns, 0);

    tutti__stats_wait_begin(stats); /* two threads wait: their time counts once */
    tutti__stats_in_flight(stats, 1);
    tutti__stats_wait_begin(stats);
    nap();
    tutti__stats_wait_end(stats);
    tutti__stats_in_flight(stats, 0);
    tutti__stats_wait_end(stats);
    b = read_all(stats);
    assert_int_equal(b.hidden_ns, a.hidden_ns);
    assert_true(b.in_flight_ns - a.in_flight_ns >= 2000000);
    assert_true(b.exposed_ns >= b.in_flight_ns - a.in_flight_ns);
    assert_true(b.exposed_ns <= b.age_ns);

    tutti__stats_direct_end(stats, NULL, tutti__stats_direct_begin(stats));
    assert_int_equal(read_all(stats).direct_ns.count, 1);
    tutti__stats_close(stats);
}

/* ---- the texts ---- */

/* Check the form of each line; returns the number of samples. */
static int check_lines(const char *text)
{
    char family[96] = "", line[512];
    int samples = 0;

    for (const char *at = text; *at != '\0'; at = strchr(at, '\n') + 1) {
        size_t bytes = strcspn(at, "\n");

        assert_int_equal(at[bytes], '\n');
        assert_true(bytes > 0 && bytes < sizeof(line));
        snprintf(line, sizeof(line), "%.*s", (int)bytes, at);
        if (strncmp(line, "# HELP ", 7) == 0) {
            assert_int_equal(sscanf(line, "# HELP %95s", family), 1);
        } else if (strncmp(line, "# TYPE ", 7) == 0) {
            assert_int_equal(strncmp(line + 7, family, strlen(family)), 0);
        } else {
            char *end, *value = strrchr(line, ' ');

            assert_int_equal(strncmp(line, family, strlen(family)), 0);
            assert_non_null(strchr(line, '{'));
            assert_int_equal(value[-1], '}');
            assert_true(strtod(value + 1, &end) >= 0);
            assert_int_equal(*end, '\0');
            samples++;
        }
    }
    return samples;
}

static void test_metrics(void **state)
{
    const tutti__stats_what_t what = { TUTTI_CALL_ALLREDUCE, 0, "@a\"b", "shm" };
    tutti__stats_t *stats = open_stats(0), *other = open_stats(0);
    tutti__stats_text_t text = { .at = NULL };

    (void)state;
    stats->next = other;
    stats->id = 1;
    other->id = 2;
    tutti__stats_count(tutti__stats_find(stats, &what, 9), 9);
    tutti__stats_count(tutti__stats_find(stats, &what, 1024), 1024);
    tutti__stats_request(other, TUTTI_CALL_REDUCE, 8, 128, TUTTI_OK);
    tutti__stats_metrics(stats, &text);
    assert_int_equal(text.failed, 0);
    assert_int_equal(strlen(text.at), text.bytes);
    assert_true(check_lines(text.at) > 100);
#define LABELS(id) "comm=\"a \\\"b\\\\c\\nd\",id=\"" id "\",rank=\"3\""
#define HAS(line) assert_non_null(strstr(text.at, line "\n"))
    HAS("tutti_operations_total{" LABELS("1") ",call=\"allreduce\",mode=\"direct\"} 2");
    HAS("tutti_bytes_total{" LABELS("1") ",call=\"allreduce\",mode=\"direct\"} 1033");
    HAS("tutti_operations_total{" LABELS("2") ",call=\"reduce\",mode=\"async\"} 1");
    HAS("tutti_algorithm_bytes_total{" LABELS("1") ",call=\"allreduce\",mode=\"direct\","
                                                   "algorithm=\"@a\\\"b\",transport=\"shm\"} 1033");
    HAS("tutti_call_bytes_bucket{" LABELS("1") ",mode=\"direct\",le=\"8\"} 0");
    HAS("tutti_call_bytes_bucket{" LABELS("1") ",mode=\"direct\",le=\"16\"} 1");
    HAS("tutti_call_bytes_bucket{" LABELS("1") ",mode=\"direct\",le=\"512\"} 1");
    HAS("tutti_call_bytes_bucket{" LABELS("1") ",mode=\"direct\",le=\"1024\"} 2");
    HAS("tutti_call_bytes_bucket{" LABELS("1") ",mode=\"direct\",le=\"+Inf\"} 2");
    HAS("tutti_call_bytes_sum{" LABELS("1") ",mode=\"direct\"} 1033");
    HAS("tutti_call_bytes_count{" LABELS("1") ",mode=\"direct\"} 2");
    HAS("tutti_call_seconds_bucket{" LABELS("2") ",mode=\"async\",le=\"1.28e-07\"} 1");
    HAS("tutti_call_seconds_sum{" LABELS("2") ",mode=\"async\"} 1.28e-07");
    HAS("tutti_requests_total{" LABELS("2") "} 0");
    free(text.at);
    tutti__stats_close(stats);
    tutti__stats_close(other);
}

static void test_summary(void **state)
{
    const tutti__stats_what_t what = { TUTTI_CALL_ALLREDUCE, 0, "ring", "ucx" };
    tutti__stats_t *stats = open_stats(1);
    tutti__stats_text_t text = { .at = NULL };

    (void)state;
    for (int i = 0; i < 3; i++)
        tutti__stats_count(tutti__stats_find(stats, &what, 1 << 20), 1 << 20);
    tutti__stats_submit(stats, 7);
    tutti__stats_summary(stats, &text);
    assert_non_null(strstr(text.at, "as rank 3 of 5 saw them"));
    assert_non_null(strstr(text.at, "allreduce, direct"));
    assert_non_null(strstr(text.at, "3.0 MiB"));
    assert_non_null(strstr(text.at, "allreduce: ring, ucx"));
    assert_non_null(strstr(text.at, "requests: 7 submitted, 0 failed"));
    assert_non_null(strstr(text.at, "communication: exposed 0.00 us"));
    for (const char *at = text.at; *at != '\0'; at = strchr(at, '\n') + 1)
        assert_true(strcspn(at, "\n") < 120);
    free(text.at);
    tutti__stats_close(stats);
}

/* Without statistics nothing is counted, and nothing fails. */
static void test_none(void **state)
{
    const tutti__stats_what_t what = { TUTTI_CALL_ALLREDUCE, 0, "ring", "ucx" };
    tutti_stats_part_t part = TUTTI_STATS_PART_INIT;

    (void)state;
    assert_null(tutti__stats_find(NULL, &what, 1));
    tutti__stats_submit(NULL, 1);
    tutti__stats_request(NULL, TUTTI_CALL_REDUCE, 1, 1, TUTTI_OK);
    tutti__stats_bucket_end(NULL, &what, 1, 1, 0);
    tutti__stats_ordered_end(NULL, &what, 1, 0);
    tutti__stats_in_flight(NULL, 1);
    tutti__stats_wait_begin(NULL);
    tutti__stats_wait_end(NULL);
    assert_int_equal(tutti__stats_now(NULL), 0);
    assert_int_equal(read_all(NULL).requests, 0);
    assert_int_equal(tutti__stats_part(NULL, 0, &part), 0);
    tutti__stats_close(NULL);
}

/* ---- forks ---- */

static int handlers; /* registered handlers with a function to call before a fork */

int __real_pthread_atfork(void (*before)(void), void (*parent)(void), void (*child)(void));
int __wrap_pthread_atfork(void (*before)(void), void (*parent)(void), void (*child)(void));

/* Call `before`, which takes the locks, as a fork would. The call hangs if this thread holds one of
   them. */
int __wrap_pthread_atfork(void (*before)(void), void (*parent)(void), void (*child)(void))
{
    if (before != NULL) {
        alarm(10);
        before();
        parent();
        alarm(0);
        handlers++;
    }
    return __real_pthread_atfork(before, parent, child);
}

static void test_forks(void **state)
{
    char file[64];
    const tutti__stats_want_t want = { .size = 1, .name = "world", .file = file, .port = -1 };

    (void)state;
    snprintf(file, sizeof(file), "/tmp/tutti-test-counting-%d", (int)getpid());
    tutti__stats_close(tutti__stats_open(&want));
    assert_true(handlers > 0);
    assert_int_equal(unlink(file), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets),    cmocka_unit_test(test_classes),
        cmocka_unit_test(test_long_names), cmocka_unit_test(test_requests),
        cmocka_unit_test(test_phases),     cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_summary),    cmocka_unit_test(test_none),
        cmocka_unit_test(test_forks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
