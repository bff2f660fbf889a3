/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * TUTTI_ALGORITHM=collective:@file: hand-written schedules, and schedules that the library prints,
 * give correct results in direct and asynchronous calls. With a wrong schedule or a missing file,
 * opening a communicator fails on all ranks with the same text.
 */
#include "multi/direct/coll_case.h"
#include "multi/direct/reference.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/tutti-schedules-XXXXXX";

/* A file in the folder, open for writing. */
static FILE *create(const char *name)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "w");
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    return file;
}

/* ---- hand-written ---- */

static void head(FILE *file, int rank, int size, int blocks, const char *sizes)
{
    fprintf(file, "by hand: rank %d of %d, blocks %d, scratch 0, blocks per message 1%s\nLOOP\n",
            rank, size, blocks, sizes);
}

/* Rank 0 adds in the order of ranks, and sends the result to all. */
static void write_allreduce(const char *name, int size)
{
    FILE *file = create(name);

    for (int r = 0; r < size; r++) {
        head(file, r, size, 1, "");
        for (int other = 1; other < size && r == 0; other++)
            fprintf(file, "    RECV_REDUCE from rank %d: %s -> OUT[0]%s\n", other,
                    other == 1 ? "IN[0]" : "OUT[0]", other == size - 1 ? ", finish" : "");
        for (int other = 1; other < size && r == 0; other++)
            fprintf(file, "    SEND OUT[0] to rank %d\n", other);
        if (r > 0)
            fprintf(file, "    SEND IN[0] to rank 0\n    RECV from rank 0: OUT[0]\n");
        fprintf(file, "END_LOOP\n");
    }
    fclose(file);
}

static void write_broadcast(const char *name, int size, int root)
{
    FILE *file = create(name);

    for (int r = 0; r < size; r++) {
        head(file, r, size, 1, "");
        for (int other = 0; other < size; other++) {
            if (r == root && other != root)
                fprintf(file, "    SEND OUT[0] to rank %d\n", other);
        }
        if (r != root)
            fprintf(file, "    RECV from rank %d: OUT[0]\n", root);
        fprintf(file, "END_LOOP\n");
    }
    fclose(file);
}

static void write_alltoall(const char *name, int size, const char *sizes)
{
    FILE *file = create(name);

    for (int r = 0; r < size; r++) {
        head(file, r, size, size, sizes);
        for (int other = 0; other < size; other++) {
            if (other != r)
                fprintf(file, "    SEND IN[%d] to rank %d\n", other, other);
        }
        fprintf(file, "    COPY IN[%d] -> OUT[%d]\n", r, r);
        for (int other = 0; other < size; other++) {
            if (other != r)
                fprintf(file, "    RECV from rank %d: OUT[%d]\n", other, other);
        }
        fprintf(file, "END_LOOP\n");
    }
    fclose(file);
}

/* ---- correct files ---- */

static int has_root(const tutti__files_t *files, tutti__collective_t collective, int *ret_root)
{
    for (uint32_t i = 0; i < files->n; i++) {
        if (files->file[i].row.collective == collective)
            *ret_root = (int)files->file[i].root;
    }
    return tutti__collective_has_root(collective);
}

/* All calls of one kind, in all places; another root is refused. */
static void call_in_all_ways(area_t *area, tutti_call_kind_t kind)
{
    const rank_t *self = area->self;
    int root = 0, rooted = has_root(self->inside->files, tutti__call_collective(kind), &root);

    for (int place = 0; place < PLACES; place++) {
        case_t c = { kind, TUTTI_FLOAT32, TUTTI_SUM, 3, root, (place_t)place, PRIVATE };

        case_run(area, &c, TUTTI_OK);
        c.count = case_several_chunks(self, 4);
        c.op = kind == TUTTI_CALL_SCAN || kind == TUTTI_CALL_EXSCAN ? TUTTI_MAX : TUTTI_AVG;
        case_run(area, &c, TUTTI_OK);
        c.root = (root + 1) % self->size;
        case_run(area, &c, rooted && self->size > 1 ? TUTTI_ERR_UNSUPPORTED : TUTTI_OK);
        if (rooted && self->size > 1)
            CHECK_WORDS("cannot be used: it is for root");
    }
}

static void async_allreduce(rank_t *self, size_t count)
{
    float *in = malloc(count * sizeof(*in)), *out = calloc(count, sizeof(*out));
    tutti_request_t *request;

    for (size_t i = 0; i < count; i++)
        in[i] = (float)(self->rank + 1) * (float)(i % 100);
    CHECK_OK(tutti_allreduce_async("t", in, out, count, TUTTI_FLOAT32, TUTTI_SUM, self->comm, NULL,
                                   &request));
    CHECK_OK(tutti_wait(request, -1));
    for (size_t i = 0; i < count; i++)
        CHECK_INT(out[i], (size_t)(self->size * (self->size + 1) / 2) * (i % 100));
    free(out);
    free(in);
}

static tutti__cache_t *cache_of(tutti__comm_t *comm)
{
    return &tutti__comm_state(comm)->cache;
}

static const char *chosen(rank_t *self, tutti__cache_t *cache, size_t bytes)
{
    tutti__want_t want = { TUTTI__ALLREDUCE, bytes, 0, 0 };
    const tutti__sched_t *sched;

    (void)self;
    CHECK_OK(tutti__cache_get(cache, &want, 0, &sched));
    return sched->name;
}

static void by_hand(rank_t *self)
{
    case_t affine = { TUTTI_CALL_ALLREDUCE,
                      TUTTI_UINT64,
                      reference_user_op(REFERENCE_AFFINE),
                      9,
                      0,
                      APART,
                      PRIVATE };
    area_t area;

    area_open(&area, self, AREA_BYTES);
    CHECK_INT(strcmp(chosen(self, cache_of(self->inside), 4096), self->arg), 0);
    CHECK(strcmp(chosen(self, cache_of(self->inside), 8), self->arg) != 0);
    case_in_all_ways(&area, TUTTI_CALL_ALLREDUCE);
    case_in_all_ways(&area, TUTTI_CALL_ALLTOALL);
    call_in_all_ways(&area, TUTTI_CALL_BROADCAST);
    affine.count = 1500; /* the schedule keeps the order of ranks */
    case_run(&area, &affine, TUTTI_OK);
    for (size_t count = 10; count < 100000; count *= 10)
        async_allreduce(self, count);
    area_close(&area);
}

/* A group of all ranks uses the file, like the world; a smaller group selects another algorithm. */
static void in_groups(rank_t *self)
{
    tutti_comm_t *all, *half;
    rank_t part = *self;

    CHECK_OK(tutti_comm_split(self->comm, 0, -self->rank, &all));
    part.comm = all;
    part.rank = tutti_rank(all);
    CHECK_INT(strcmp(chosen(self, cache_of(ranks_inside(all)), 4096), self->arg), 0);
    async_allreduce(&part, 10000);
    CHECK_OK(tutti_comm_split(self->comm, self->rank % 2, 0, &half));
    part.comm = half;
    part.rank = tutti_rank(half);
    part.size = tutti_size(half);
    CHECK(strcmp(chosen(self, cache_of(ranks_inside(half)), 4096), self->arg) != 0);
    async_allreduce(&part, 10000);
}

/* For a schedule from a file, the library cannot determine which operation finishes an element. So
   such calls have no wire format, and their results are exact. */
static void with_wire_format(rank_t *self)
{
    for (size_t count = 10; count < 100000; count *= 10)
        async_allreduce(self, count);
}

static void on_the_wire(tutti__conf_t *conf, int rank)
{
    small_pieces(conf, rank);
    conf->shared.wire = TUTTI__CONF_WIRE_FLOAT8_E4M3;
}

static int run_by_hand(int size, int threads)
{
    static const char *const hosts[] = { "ab", "abb", "aabb" };
    job_t job = { .size = size, .threads = threads, .settings = small_pieces, .fn = by_hand };
    char path[128], text[1024];
    int failures = 0;

    write_allreduce("allreduce", size);
    write_broadcast("broadcast", size, size - 1);
    write_alltoall("alltoall: all", size, ", sizes all equal");
    snprintf(path, sizeof(path), "%s/allreduce", folder);
    snprintf(text, sizeof(text),
             "allreduce:0-12:direct, allreduce:12-:@%s; broadcast:@%s/broadcast,"
             "alltoall : @ %s/alltoall: all ",
             path, folder, folder);
    job.algorithm = text;
    job.arg = path;
    RUN_JOB(failures, &job);
    job.fn = in_groups;
    if (size == 4)
        RUN_JOB(failures, &job);
    snprintf(text, sizeof(text), "allreduce:@%s", path);
    job.hosts = hosts[size - 2];
    job.settings = on_the_wire;
    job.fn = with_wire_format;
    RUN_JOB(failures, &job);
    return failures;
}

/* ---- schedules that the library prints ---- */

static void call_printed(rank_t *self)
{
    const tutti__file_t *file = &self->inside->files->file[0];
    area_t area;

    area_open(&area, self, AREA_BYTES);
    for (size_t k = 0; k < CASE_KINDS; k++) {
        if (tutti__call_collective(case_kinds[k]) == file->row.collective)
            call_in_all_ways(&area, case_kinds[k]);
    }
    if (file->row.collective == TUTTI__BARRIER)
        CHECK_OK(tutti_barrier(self->comm));
    area_close(&area);
}

/* Write the schedules of a row to a file. Returns 0 if the row cannot serve this shape. */
static int print_row(const tutti__algorithm_t *row, const tutti__shape_t *shape, uint32_t root)
{
    tutti__coll_args_t args = { .root = root,
                                .sub = row->subs != NULL ? row->subs[0] : NULL,
                                .radix = row->radix };
    FILE *file;

    if (row->refuses != NULL && row->refuses(shape) != NULL)
        return 0;
    file = create("printed");
    for (; args.rank < shape->size; args.rank++) {
        tutti__sched_t *sched;

        if (row->build(shape, &args, &sched) != TUTTI_OK)
            exit(1);
        tutti__sched_print(sched, file);
        tutti__sched_free(sched);
    }
    fclose(file);
    return 1;
}

/* The shape of one host with up to 4 ranks. */
static tutti__shape_t one_host(uint32_t size)
{
    static const uint32_t zeros[4], locals[] = { 0, 1, 2, 3 };
    static uint32_t first[2];

    first[1] = size;
    return (tutti__shape_t){ .size = size,
                             .nhosts = 1,
                             .host_of = zeros,
                             .local_of = locals,
                             .host_first = first,
                             .by_host = locals,
                             .min_local = size };
}

static int run_printed(int threads)
{
    const tutti__shape_t shape = one_host(4);
    job_t job = { .size = 4, .threads = threads, .settings = small_pieces, .fn = call_printed };
    char text[256];
    int failures = 0;

    for (const tutti__algorithm_t *row = tutti__algorithms; row->name != NULL; row++) {
        if (!print_row(row, &shape, 2))
            continue;
        snprintf(text, sizeof(text), "%s:@%s/printed", tutti__collective_name(row->collective),
                 folder);
        job.algorithm = text;
        RUN_JOB(failures, &job);
    }
    return failures;
}

/* ---- wrong files ---- */

typedef struct {
    const char *algorithm; /* with a %s for the folder */
    const char *words;
    int size, strict;
} wrong_t;

/* If a further communicator is opened with this setting, all ranks fail with this text. */
static void open_wrong(rank_t *self)
{
    const wrong_t *wrong = self->arg;
    tutti__conf_t conf;
    tutti__meet_t meet;
    tutti__comm_t *comm;
    char name[64];

    snprintf(name, sizeof(name), "tutti-wrong-%.40s", folder + sizeof(folder) - 7);
    tutti__conf_defaults(&conf);
    conf.shared.timeout_ms = 120000;
    conf.shared.strict = (uint64_t)wrong->strict;
    if (self->rank == 0) /* rank 0's settings are used */
        snprintf(conf.shared.algorithm, sizeof(conf.shared.algorithm), wrong->algorithm, folder);
    CHECK_OK(tutti__meet_local(name, (uint32_t)self->rank, (uint32_t)self->size, 120000, &meet));
    CHECK_STATUS(tutti__comm_open(&meet, NULL, &conf, &comm),
                 wrong->strict ? TUTTI_ERR_UNSUPPORTED : TUTTI_ERR_INVALID_ARGUMENT);
    CHECK_WORDS(wrong->words);
    CHECK_OK(tutti_barrier(self->comm));
}

static void write_wrong(void)
{
    static const char pair[] = "p: rank %d of 2, blocks 1, scratch 0, blocks per message 1\nLOOP\n";
    FILE *hint = create("stuck"), *twice = create("twice"), *rule = create("rule");
    FILE *order = create("order"), *huge = create("huge"), *apart = create("apart");
    const tutti__shape_t shape = one_host(3);

    for (int r = 0; r < 2; r++) {
        fprintf(hint, pair, r);
        fprintf(hint, "RECV_REDUCE from rank %d: IN[0] -> OUT[0], finish\n", 1 - r);
        fprintf(hint, "SEND IN[0] to rank %d\nEND_LOOP\n", 1 - r);
        fprintf(twice, pair, r);
        fprintf(twice, "SEND IN[0] to rank %d\n", 1 - r);
        fprintf(twice, "RECV_REDUCE from rank %d: IN[0] -> OUT[0]\n", 1 - r);
        fprintf(twice, "REDUCE IN[0] -> OUT[0], finish\nEND_LOOP\n");
        fprintf(rule, pair, r);
        fprintf(rule, "# nothing yet\nSEND IN[%d] to rank %d\n", r, 1 - r);
        fprintf(rule, "RECV_REDUCE from rank %d: IN[0] -> OUT[0], finish\nEND_LOOP\n", 1 - r);
        fprintf(huge, "p: rank %d of 2, blocks 4000000000, scratch 0, blocks per message 1\n", r);
    }
    /* Each rank begins with its own data. */
    for (int r = 0; r < 3; r++) {
        head(order, r, 3, 1, "");
        fprintf(order, "SEND IN[0] to rank %d\nSEND IN[0] to rank %d\n", (r + 1) % 3, (r + 2) % 3);
        fprintf(order, "RECV_REDUCE from rank %d: IN[0] -> OUT[0]\n", (r + 1) % 3);
        fprintf(order, "RECV_REDUCE from rank %d: OUT[0] -> OUT[0], finish\n", (r + 2) % 3);
        fprintf(order, "END_LOOP\n");
        /* In place this schedule is wrong: the last message sends data that were overwritten. */
        head(apart, r, 3, 3, ", sizes all equal");
        fprintf(apart, "COPY IN[%d] -> OUT[%d]\n", r, r);
        for (int k = 1; k < 3; k++) {
            fprintf(apart, "SEND IN[%d] to rank %d\n", (r + k) % 3, (r + k) % 3);
            fprintf(apart, "RECV from rank %d: OUT[%d]\n", (r + 3 - k) % 3, (r + 3 - k) % 3);
        }
        fprintf(apart, "END_LOOP\n");
    }
    print_row(tutti__algorithm_find(TUTTI__ALLREDUCE, "ring"), &shape, 0);
    fclose(hint);
    fclose(twice);
    fclose(rule);
    fclose(order);
    fclose(apart);
    fclose(huge);
    fclose(create("empty"));
    write_allreduce("three", 3);
}

/* Schedules with correct results that the host's kernels or the executor do not support, or that
   change recvbuf before calls are compared. */
static void write_unfit(void)
{
    FILE *loop = create("loop"), *scratch = create("scratch"), *mixed = create("mixed");
    FILE *large = create("large"), *early = create("early");

    for (int r = 0; r < 2; r++) {
        fprintf(early, "p: rank %d of 2, blocks 1, scratch 0, blocks per message 1\n", r);
        fprintf(early, "COPY IN[0] -> OUT[0]\nNODE_ALLREDUCE OUT[0] -> OUT[0], finish\n");
        fprintf(loop, "p: rank %d of 2, blocks 2, scratch 0, blocks per message 1\n", r);
        fprintf(loop, "LOOP\nNODE_ALLREDUCE IN[0:2] -> OUT[0:2], finish\nEND_LOOP\n");
        fprintf(scratch, "p: rank %d of 2, blocks 1, scratch 2, blocks per message 1\n", r);
        fprintf(scratch, "LOOP\nNODE_ALLGATHER SCRATCH[0:2] -> SCRATCH[0:2] in 2 parts\n");
        fprintf(scratch, "END_LOOP\n");
        fprintf(large, "p: rank %d of 2, blocks 1, scratch %s, blocks per message 1\n", r,
                r ? "4294967295" : "0");
        fprintf(large, "NODE_ALLREDUCE IN[0] -> OUT[0], finish\n");
    }
    for (int r = 0; r < 3; r++) {
        fprintf(mixed, "p: rank %d of 3, blocks 1, scratch 1, blocks per message 1\n", r);
        fprintf(mixed, "NODE_ALLREDUCE IN[0] -> OUT[0], finish\n");
        if (r > 0)
            fprintf(mixed, "LOOP\n%s\nEND_LOOP\n",
                    r == 1 ? "SEND OUT[0] to rank 2" : "RECV from rank 1: SCRATCH[0]");
    }
    fclose(loop);
    fclose(scratch);
    fclose(mixed);
    fclose(large);
    fclose(early);
}

static int run_wrong(int threads)
{
    static const wrong_t wrongs[] = {
        { "allreduce:@%s/nowhere", "nowhere\": No such file or directory", 2, 0 },
        { "allreduce:@%s", "\": it is no file", 2, 0 },
        { "allreduce:@%s/empty", "empty, line 0: there is no schedule in this text", 2, 0 },
        { "allreduce:@%s/three", "three is for 3 ranks, but there are 2", 2, 0 },
        { "allreduce:@%s/rule",
          "rule, line 10: rank 1: stream 0, operation 1 (SEND IN[1] to rank"
          " 0): IN has 1 blocks only",
          2, 0 },
        { "allreduce:@%s/stuck", "/stuck is not proved: with 4 credits and 1 trip: ", 2, 0 },
        { "allreduce:@%s/twice", "not each contribution exactly once", 2, 0 },
        { "allreduce:@%s/order", "another association than on rank 0", 3, 0 },
        { "allreduce:@%s/huge", "more than 8192 blocks", 2, 0 },
        { "allreduce:@%s/large", "more than 8192 blocks", 2, 0 },
        { "allreduce:@%s/loop", "finish): works on one block in a loop", 2, 0 },
        { "barrier:@%s/scratch", "has more blocks of SCRATCH than the call has blocks", 2, 0 },
        { "allreduce:@%s/mixed", "rank 1 has messages, unlike rank 0", 3, 0 },
        { "allreduce:@%s/early",
          "operation 0 (COPY IN[0] -> OUT[0]), chunk 0: writes OUT[0] before a node operation", 2,
          0 },
        { "broadcast:@%s/three", "is not proved: for no root; for root 0 with 4 credits", 3, 0 },
        { "alltoall:@%s/three", "is not proved: ", 3, 0 },
        { "alltoall:@%s/apart", "is not proved: with 4 credits and 1 trip, in place: ", 3, 0 },
        { "allreduce:@%s/printed", "against TUTTI_DETERMINISTIC=strict", 3, 1 },
    };
    job_t job = { .threads = threads, .fn = open_wrong };
    int failures = 0;

    write_wrong();
    write_unfit();
    for (size_t i = 0; i < COUNT_OF(wrongs); i++) {
        job.arg = (void *)(uintptr_t)&wrongs[i];
        job.size = wrongs[i].size;
        RUN_JOB(failures, &job);
    }
    return failures;
}

/* ---- selection of the file ---- */

/* Each rank has a different folder, with a different file of that name or no file. Rank 0's file is
   used. */
static void own_folder(rank_t *self)
{
    area_t area;

    area_open(&area, self, AREA_BYTES);
    CHECK(strstr(chosen(self, cache_of(self->inside), 8), "mine") != NULL);
    case_in_all_ways(&area, TUTTI_CALL_ALLREDUCE);
    area_close(&area);
}

static void go_to_own_folder(tutti__conf_t *conf, int rank)
{
    char path[128];

    small_pieces(conf, rank);
    snprintf(path, sizeof(path), "%s/%d", folder, rank);
    CHECK_INT(chdir(path), 0);
}

static int run_own_folders(void)
{
    job_t job = {
        .size = 3, .algorithm = "allreduce:@mine", .settings = go_to_own_folder, .fn = own_folder
    };
    char path[128];
    int failures = 0;

    for (int r = 0; r < 3; r++) {
        snprintf(path, sizeof(path), "%s/%d", folder, r);
        if (mkdir(path, 0700) != 0)
            return 1;
    }
    write_allreduce("0/mine", 3);
    write_allreduce("1/mine", 2);
    RUN_JOB(failures, &job);
    return failures;
}

int main(void)
{
    int failures = 0, threads = !ranks_can_fork();
    char remove[64];

    reference_create_ops();
    if (mkdtemp(folder) == NULL)
        return 1;
    for (int size = 2; size <= 4; size++)
        failures += run_by_hand(size, threads);
    failures += run_printed(threads);
    failures += run_wrong(threads);
    if (!threads) /* threads share a folder */
        failures += run_own_folders();
    snprintf(remove, sizeof(remove), "rm -r '%s'", folder);
    failures += system(remove) != 0;
    return failures != 0;
}
