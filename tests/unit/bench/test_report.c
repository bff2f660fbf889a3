/* SPDX-License-Identifier: BSD-3-Clause */
/* tutti_report: which parts of which dumps it compares, and the verdicts that follow. */
#include "report/report.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SECOND INT64_C(1000000000)
/* Many ranks with many tensors. */
#define RANKS 16
#define TENSORS 256

static char folder[] = "/tmp/tutti-test-report-XXXXXX";
static char path[64];
static dumps_t dumps;

static uint64_t compared; /* calls of strcmp */

int __real_strcmp(const char *a, const char *b);
int __wrap_strcmp(const char *a, const char *b);

int __wrap_strcmp(const char *a, const char *b)
{
    compared++;
    return __real_strcmp(a, b);
}

/* ---- dumps, in the form of lib/record/dump.c ---- */

/* A communicator of this process. id NULL: the dump is of a library without ids. */
typedef struct {
    const char *id;
    int first, ordinal, rank, size;
    const char *tensor; /* submitted; NULL: nothing is pending */
} comm_t;

/* lost: submissions without an entry. */
static void put_comm(FILE *to, const comm_t *comm, int lost)
{
    fprintf(to, "{\"what\":\"comm\",\"comm\":\"group\",\"first\":%d", comm->first);
    if (comm->id != NULL)
        fprintf(to, ",\"id\":\"%s\"", comm->id);
    else
        fprintf(to, ",\"ordinal\":%d", comm->ordinal);
    fprintf(to, ",\"rank\":%d,\"size\":%d,\"host\":\"h\",\"offset_ns\":0,\"lost\":%d}\n",
            comm->rank, comm->size, lost);
}

static void put_tensor(FILE *to, const char *name, const char *state, int64_t since_ns)
{
    fprintf(to,
            "{\"what\":\"tensor\",\"name\":\"%s\",\"hash\":\"1\",\"state\":\"%s\",\"since_ns\":"
            "%" PRId64 ",\"call\":\"allreduce\",\"count\":8,\"dtype\":\"float32\",\"op\":\"sum\"}"
            "\n",
            name, state, since_ns);
}

/* A rank that waits in a direct call for rank `peer`, or with NO_RANK for its device. */
static void put_direct(FILE *to, int64_t since_ns, int peer)
{
    fprintf(to, "{\"what\":\"direct\",\"since_ns\":%" PRId64 ",\"call\":\"allreduce\"", since_ns);
    if (peer != NO_RANK)
        fprintf(to, ",\"peer\":%d", peer);
    fprintf(to, "}\n");
}

/* A rank that waits in a bucket for rank `peer`, or with NO_RANK for its device. since_ns 0: the
   rank does not wait. */
static void put_lane(FILE *to, int64_t since_ns, int peer)
{
    fprintf(to, "{\"what\":\"lane\",\"lane\":1,\"bucket\":7,\"tensors\":1,\"name\":\"x\"");
    if (since_ns != 0)
        fprintf(to, ",\"since_ns\":%" PRId64, since_ns);
    if (peer != NO_RANK)
        fprintf(to, ",\"peer\":%d", peer);
    fprintf(to, "}\n");
}

static FILE *open_dump(void)
{
    FILE *to = fopen(path, "w");

    assert_non_null(to);
    fprintf(to, "{\"what\":\"dump\",\"format\":1,\"reason\":\"stall\",\"time_ns\":%" PRId64 "}\n",
            100 * SECOND);
    return to;
}

static void read_back(FILE *to)
{
    fprintf(to, "{\"what\":\"end\"}\n");
    fclose(to);
    assert_int_equal(read_dump(path, &dumps), 1);
}

/* Add a process's dump with these communicators, whose list ends with size 0. */
static void add_dump(const comm_t *comms)
{
    FILE *to = open_dump();

    for (; comms->size > 0; comms++) {
        put_comm(to, comms, 0);
        if (comms->tensor != NULL)
            put_tensor(to, comms->tensor, "submitted", 60 * SECOND);
    }
    read_back(to);
}

/* ---- the verdicts ---- */

static int no_dumps(void **state)
{
    (void)state;
    free_dumps(&dumps);
    memset(&dumps, 0, sizeof(dumps));
    return 0;
}

static size_t count_comms(void)
{
    judged_t judged;
    size_t n = 0;

    for (size_t i = 0; i < dumps.nparts; i++)
        if (judge(&dumps, i, &judged)) {
            n++;
            free_judged(&judged);
        }
    return n;
}

/* Check the verdict on part `at` of the dumps. Its communicator has 2 ranks: rank 0 waits for
   `tensor`, which rank 1 has not submitted. */
static void check_lacking(size_t at, const char *tensor)
{
    judged_t judged;

    assert_int_equal(judge(&dumps, at, &judged), 1);
    assert_int_equal(judged.verdict, VERDICT_TENSOR);
    assert_string_equal(judged.what.name, tensor);
    assert_true(judged.waiting[0] && judged.culprit[1] && judged.lacking[1]);
    assert_false(judged.culprit[0] || judged.lacking[0]);
    free_judged(&judged);
}

/* The report has this text. */
static void check_text(const judged_t *judged, const char *part)
{
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);

    assert_non_null(out);
    print_judged(out, judged, 1);
    fclose(out);
    if (strstr(text, part) == NULL)
        fail_msg("no '%s' in %s", part, text);
    free(text);
}

/* A mesh of 2 x 2 processes: each is in a row and in a column. Process 0 is the first of its row
   and of its column, and process 2 of its row alone. */
static void test_mesh(void **state)
{
    const comm_t processes[4][3] = {
        { { "a", 0, 0, 0, 2, NULL }, { "c", 0, 0, 0, 2, "column" }, { 0 } },
        { { "a", 0, 0, 1, 2, NULL }, { "d", 1, 0, 0, 2, NULL }, { 0 } },
        { { "b", 2, 0, 0, 2, "row" }, { "c", 0, 0, 1, 2, NULL }, { 0 } },
        { { "b", 2, 0, 1, 2, NULL }, { "d", 1, 0, 1, 2, NULL }, { 0 } },
    };

    (void)state;
    for (int i = 0; i < 4; i++)
        add_dump(processes[i]);
    assert_int_equal(count_comms(), 4);
    check_lacking(1, "column");
    check_lacking(4, "row");
}

/* All communicators of tutti_comm_connect have `first` 0. */
static void test_connected(void **state)
{
    const comm_t processes[4][2] = { { { "a", 0, 0, 0, 2, "x" }, { 0 } },
                                     { { "a", 0, 0, 1, 2, NULL }, { 0 } },
                                     { { "b", 0, 0, 0, 2, "y" }, { 0 } },
                                     { { "b", 0, 0, 1, 2, NULL }, { 0 } } };

    (void)state;
    for (int i = 0; i < 4; i++)
        add_dump(processes[i]);
    assert_int_equal(count_comms(), 2);
    check_lacking(0, "x");
    check_lacking(2, "y");
}

/* Dumps without ids. */
static void test_old_dumps(void **state)
{
    const comm_t processes[2][4] = {
        { { NULL, 0, 0, 0, 2, NULL }, { NULL, 0, 1, 0, 2, "x" }, { NULL, 4, 0, 0, 2, "y" }, { 0 } },
        { { NULL, 0, 0, 1, 2, NULL },
          { NULL, 0, 1, 1, 2, NULL },
          { NULL, 4, 0, 1, 2, NULL },
          { 0 } }
    };

    (void)state;
    for (int i = 0; i < 2; i++)
        add_dump(processes[i]);
    assert_int_equal(count_comms(), 3);
    check_lacking(1, "x");
    check_lacking(2, "y");
}

/* The work grows with n log n, where n is the number of the tensors of all ranks, not with n^2. All
   ranks have submitted all tensors; in the second job rank 1 lacks the last one. */
static void test_many_tensors(void **state)
{
    judged_t judged;
    char name[32];

    (void)state;
    for (int job = 0; job < 2; job++) {
        for (int r = 0; r < RANKS; r++) {
            const comm_t comm = { "a", 0, 0, r, RANKS, NULL };
            FILE *to = open_dump();

            put_comm(to, &comm, 0);
            for (int i = 0; i < TENSORS - (job == 1 && r == 1); i++) {
                snprintf(name, sizeof(name), "t%d", i);
                put_tensor(to, name, "submitted", 60 * SECOND + i);
            }
            read_back(to);
        }
        compared = 0;
        assert_int_equal(judge(&dumps, 0, &judged), 1);
        assert_in_range(compared, RANKS * TENSORS, 128 * RANKS * TENSORS);
        assert_int_equal(judged.verdict, job == 0 ? VERDICT_BUCKET : VERDICT_TENSOR);
        assert_int_equal(judged.culprit[1], job);
        assert_false(judged.culprit[0] || judged.culprit[RANKS - 1]);
        free_judged(&judged);
        no_dumps(NULL);
    }
}

/* A tensor that is in a bucket on one rank has been submitted by all ranks. */
static void test_agreed(void **state)
{
    const comm_t comms[] = { { "a", 0, 0, 0, 3, NULL },
                             { "a", 0, 0, 1, 3, NULL },
                             { "a", 0, 0, 2, 3, NULL } };
    judged_t judged;

    (void)state;
    for (int r = 0; r < 3; r++) {
        FILE *to = open_dump();

        put_comm(to, &comms[r], 0);
        if (r < 2)
            put_tensor(to, "x", r == 0 ? "submitted" : "agreed", 60 * SECOND);
        read_back(to);
    }
    assert_int_equal(judge(&dumps, 0, &judged), 1);
    assert_int_equal(judged.verdict, VERDICT_BUCKET);
    free_judged(&judged);
}

/* If a rank's recorder was full, the rank may have submitted a tensor that is not in its dump. So
   the report does not count this rank among those that lack the tensor. */
static void test_full_recorder(void **state)
{
    const comm_t comms[] = { { "a", 0, 0, 0, 3, "t" },
                             { "a", 0, 0, 1, 3, "u" },
                             { "a", 0, 0, 2, 3, NULL } };
    judged_t judged;

    (void)state;
    for (int job = 0; job < 2; job++) {
        for (int r = 0; r < 3; r++) {
            FILE *to = open_dump();

            put_comm(to, &comms[r], r == 1);
            if (comms[r].tensor != NULL)
                put_tensor(to, comms[r].tensor, "submitted", (60 + r) * SECOND);
            if (r == 2 && job == 1)
                put_tensor(to, "t", "submitted", 60 * SECOND);
            if (r != 1 && job == 1)
                put_tensor(to, "u", "submitted", 60 * SECOND);
            read_back(to);
        }
        assert_int_equal(judge(&dumps, 0, &judged), 1);
        assert_int_equal(judged.verdict, job == 0 ? VERDICT_TENSOR : VERDICT_BUCKET);
        assert_int_equal(judged.culprit[2], job == 0);
        assert_int_equal(judged.lacking[2], job == 0);
        assert_false(judged.culprit[0] || judged.culprit[1] || judged.lacking[1]);
        check_text(&judged, job == 0 ? "which rank 2 has not submitted"
                                     : "The recorder of rank 1 was full, and has not recorded 1 ");
        free_judged(&judged);
        no_dumps(NULL);
    }
}

/* A job of 3 ranks, and the culprits that follow. */
typedef struct {
    int is_direct;      /* otherwise the ranks are in a bucket */
    int64_t since_s[3]; /* 0: the rank does not wait */
    int peer[3];
    int culprit[3];
    const char *text; /* a part of the report */
} waits_t;

static void check_waits(const waits_t *waits)
{
    judged_t judged;

    for (int r = 0; r < 3; r++) {
        const comm_t comm = { "a", 0, 0, r, 3, NULL };
        FILE *to = open_dump();

        put_comm(to, &comm, 0);
        if (!waits->is_direct)
            put_lane(to, waits->since_s[r] * SECOND, waits->peer[r]);
        else if (waits->since_s[r] != 0)
            put_direct(to, waits->since_s[r] * SECOND, waits->peer[r]);
        read_back(to);
    }
    assert_int_equal(judge(&dumps, 0, &judged), 1);
    assert_int_equal(judged.verdict, waits->is_direct ? VERDICT_DIRECT : VERDICT_BUCKET);
    for (int r = 0; r < 3; r++)
        assert_int_equal(judged.culprit[r], waits->culprit[r]);
    check_text(&judged, waits->text);
    free_judged(&judged);
    no_dumps(NULL);
}

/* A wait for a device names no rank. So the rank that waits longest is taken for the first rank
   that has called. */
static void test_device(void **state)
{
    const waits_t jobs[] = {
        { 1, { 60, 61, 62 }, { -1, -1, -1 }, { 0, 0, 0 }, "allreduce for work on a device" },
        { 1, { 60, 61, 62 }, { 2, -1, -1 }, { 0, 0, 0 }, "allreduce for work on a device" },
        { 1, { 60, 0, 62 }, { -1, -1, -1 }, { 0, 1, 0 }, "allreduce for rank 1. " },
        { 1, { 60, 61, 0 }, { 1, 2, -1 }, { 0, 0, 1 }, "allreduce for rank 2. " },
        { 0, { 60, 61, 62 }, { -1, -1, -1 }, { 0, 0, 0 }, "leads to work on a device" },
        { 0, { 60, 61, 0 }, { 1, 2, -1 }, { 0, 0, 1 }, "leads to rank 2. " },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(jobs) / sizeof(*jobs); i++)
        check_waits(&jobs[i]);
}

/* Rank 1 of 2 left no dump, and rank 0 waits in a direct call. */
static void test_absent_direct(void **state)
{
    const comm_t comm = { "a", 0, 0, 0, 2, NULL };
    FILE *to = open_dump();
    judged_t judged;

    (void)state;
    put_comm(to, &comm, 0);
    put_direct(to, 60 * SECOND, -1);
    read_back(to);
    assert_int_equal(judge(&dumps, 0, &judged), 1);
    check_text(&judged, "\"verdict\":\"no_dump\"");
    check_text(&judged, "\"waited_s\":40.000");
    check_text(&judged, "Rank 0 has waited 40.0 s in a direct allreduce.");
    free_judged(&judged);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_mesh, no_dumps),
        cmocka_unit_test_teardown(test_connected, no_dumps),
        cmocka_unit_test_teardown(test_old_dumps, no_dumps),
        cmocka_unit_test_teardown(test_many_tensors, no_dumps),
        cmocka_unit_test_teardown(test_agreed, no_dumps),
        cmocka_unit_test_teardown(test_full_recorder, no_dumps),
        cmocka_unit_test_teardown(test_device, no_dumps),
        cmocka_unit_test_teardown(test_absent_direct, no_dumps),
    };
    int failures;

    if (mkdtemp(folder) == NULL)
        return 1;
    snprintf(path, sizeof(path), "%s/dump", folder);
    failures = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(folder);
    return failures;
}
