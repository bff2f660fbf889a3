/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Cost of the executor: nanoseconds per operation of a schedule, and the time to build a schedule.
 *
 * One thread steps the runs of all ranks in turns. So no rank waits, and no cache line moves to
 * another core: the measured time is that of the executor and of the transport's own work. Over
 * "null", a transport that completes at once and moves no data, it is the executor alone. README.md
 * describes the method.
 *
 * Needs neither ranks nor MPI: it calls the rooms directly, so it links libtutti_all.la.
 */
#include "harness/refuse.h"
#include "schedules/exec_world.h"
#include "schedules/read_text.h"

#include "base/constants.h"
#include "base/compiler.h"
#include "coll/cache.h"
#include "coll/files.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    MOST_ITEMS = 64, /* of a list */
    MOST_RANKS = 4096,
    MOST_SHM_RANKS = 64,
    MOST_BLOCKS = 65536, /* of a schedule, also from a file */
    MOST_ROUNDS = 1001
};

typedef struct {
    char name[1100]; /* as in --algorithms */
    source_t source;
} item_t;

typedef struct {
    item_t items[MOST_ITEMS];
    uint32_t ranks[MOST_ITEMS];
    int nitems, nranks;
    int null, shm, build;
    world_options_t world;
    int rounds;
    double block_us;
    long calls; /* 0: measure */
} options_t;

static const char usage[] =
    "Usage: tutti_exec [options]\n\n"
    "Cost of the executor per operation: all ranks' schedules, run by one thread.\n\n"
    "  -a, --algorithms LIST  COLLECTIVE:ALGORITHM[/SUB][(RADIX)],... or all (default: some).\n"
    "                         Algorithms with node operations run over shm only.\n"
    "                         COLLECTIVE:@FILE: schedules in a file; they are proved first\n"
    "  -p, --ranks LIST       (default 2,8,32; with --build 2,4,...,1024; a file: its own)\n"
    "  -t, --transport NAME   null, shm or both (default both; shm up to 64 ranks)\n"
    "  -k, --elements N       float32 elements of each block (default 1)\n"
    "  -r, --rounds R         blocks of calls (default 21)\n"
    "  -b, --block US         microseconds of one block, at least one call (default 2000)\n"
    "      --slot BYTES       of a channel's slots (default: 64K)\n"
    "      --credits N        slots of a channel (default: TUTTI_CREDITS' default)\n"
    "      --calls N          make N calls, and measure nothing: for a profiler\n"
    "      --build            measure the time to build the schedules instead\n"
    "  -h, --help    -v, --version\n";

enum {
    OPT_SLOT = 256,
    OPT_CREDITS,
    OPT_CALLS,
    OPT_BUILD
};

static const struct option long_options[] = {
    { "algorithms", required_argument, NULL, 'a' },
    { "ranks", required_argument, NULL, 'p' },
    { "transport", required_argument, NULL, 't' },
    { "elements", required_argument, NULL, 'k' },
    { "rounds", required_argument, NULL, 'r' },
    { "block", required_argument, NULL, 'b' },
    { "slot", required_argument, NULL, OPT_SLOT },
    { "credits", required_argument, NULL, OPT_CREDITS },
    { "calls", required_argument, NULL, OPT_CALLS },
    { "build", no_argument, NULL, OPT_BUILD },
    { "help", no_argument, NULL, 'h' },
    { "version", no_argument, NULL, 'v' },
    { NULL, 0, NULL, 0 },
};

/* ---- time, instructions, statistics ---- */

static double now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

/* A counter of this thread's instructions in user mode; -1: not available, as in many virtual
   machines. */
static int open_counter(void)
{
    struct perf_event_attr attr = { .type = PERF_TYPE_HARDWARE,
                                    .size = sizeof(attr),
                                    .config = PERF_COUNT_HW_INSTRUCTIONS,
                                    .exclude_kernel = 1,
                                    .exclude_hv = 1 };

    return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
}

static double instructions(int counter)
{
    uint64_t value;

    if (counter < 0 || read(counter, &value, sizeof(value)) != sizeof(value))
        return 0;
    return (double)value;
}

typedef struct {
    double values[MOST_ROUNDS];
    int n;
} sample_t;

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double quantile(sample_t *sample, double q)
{
    qsort(sample->values, (size_t)sample->n, sizeof(double), ascending);
    return sample->values[(int)(q * (sample->n - 1) + 0.5)];
}

/* ---- the timed work ---- */

static void start_all(world_t *w)
{
    for (uint32_t r = 0; r < w->n; r++)
        if (tutti__run_start(&w->run[r], w->sched[r], &w->call[r]) != TUTTI_OK)
            die("start");
}

static void call_all(world_t *w)
{
    uint32_t open = w->n;

    start_all(w);
    while (open > 0) {
        for (uint32_t r = 0; r < w->n; r++) {
            tutti__hint_t hint;
            tutti_status_t status;

            if (w->run[r].sched == NULL)
                continue;
            status = tutti__run_step(&w->run[r], &hint);
            if (status == TUTTI_OK)
                open--;
            else if (status != TUTTI__AGAIN)
                die("step");
        }
    }
}

/* Only the copies and reductions of one call. */
static void move_all(world_t *w)
{
    tutti__reducer_t reducer;

    if (!tutti__reducer_find(TUTTI_FLOAT32, TUTTI_SUM, &reducer))
        die("kernel");
    for (uint32_t r = 0; r < w->n; r++) {
        const tutti__sched_t *sched = w->sched[r];

        for (uint32_t i = 0; i < sched->nops; i++) {
            const tutti__op_t *op = &sched->ops[i];
            uint32_t nblk = TUTTI__MIN(op->nblk, sched->nblocks); /* SCRATCH may have more blocks */
            size_t bytes = nblk * w->call[r].count / sched->nblocks * sizeof(float);
            void *out = w->call[r].out;

            if (op->kind == TUTTI__RECV_REDUCE || op->kind == TUTTI__REDUCE)
                tutti__reduce(&reducer, out, (const void *[]){ out, null_message }, 2,
                              bytes / sizeof(float), 0);
            else if (op->kind == TUTTI__RECV || op->kind == TUTTI__COPY)
                memcpy(out, null_message, bytes);
            else if (op->kind == TUTTI__SEND && w->arena != NULL)
                memcpy(null_message, out, bytes);
        }
    }
}

typedef struct {
    int counter;
    double block_ns;
    double count; /* instructions of the last block, per call */
} timer_t_;

/* Nanoseconds of one call of `what`, measured over a block of calls. */
static double block(timer_t_ *timer, world_t *w, void (*what)(world_t *w))
{
    double counted = instructions(timer->counter), begin = now_ns(), end;
    long calls = 0, more = 1;

    do {
        for (long i = 0; i < more; i++)
            what(w);
        calls += more;
        end = now_ns();
        /* Double the number of calls: the clock is read rarely, and the block is not too long. */
        more = calls;
    } while ((end - begin) * 2 < timer->block_ns);
    timer->count = (instructions(timer->counter) - counted) / (double)calls;
    return (end - begin) / (double)calls;
}

/* ---- the executor ---- */

static int can_run(const world_t *w)
{
    if (w->node[0] != NULL)
        return 1;
    for (uint32_t i = 0; i < w->sched[0]->nops; i++)
        if (w->sched[0]->ops[i].kind >= TUTTI__NODE_ALLREDUCE)
            return 0;
    return 1;
}

static double operations(const world_t *w)
{
    double n = 0;

    for (uint32_t r = 0; r < w->n; r++)
        for (uint32_t i = 0; i < w->sched[r]->nops; i++)
            n += w->sched[r]->ops[i].kind != TUTTI__LOOP &&
                 w->sched[r]->ops[i].kind != TUTTI__END_LOOP;
    return n;
}

/* A quantile of differences of two times. In short blocks, a difference may be below the noise. */
static const char *difference(sample_t *sample, double q, char text[32])
{
    double value = quantile(sample, q);

    snprintf(text, 32, value < 0 ? "<0" : "%.2f", value);
    return text;
}

static void measure(world_t *w, const options_t *options, const char *transport, const char *name)
{
    static sample_t ops, starts, data, counts;
    timer_t_ timer = { open_counter(), options->block_us * 1000, 0 };
    double n = operations(w);
    char text[32] = "-", op[32], low[32], high[32];

    ops.n = starts.n = data.n = counts.n = 0;
    for (int i = -1; i < options->rounds; i++) {
        double start = block(&timer, w, start_all), count = timer.count;
        double whole = block(&timer, w, call_all);

        count = timer.count - count;
        if (i < 0)
            continue; /* the first round opens channels, and the caches are cold */
        ops.values[ops.n++] = (whole - start) / n;
        starts.values[starts.n++] = start / w->n;
        counts.values[counts.n++] = count / n;
        data.values[data.n++] = block(&timer, w, move_all) / n;
    }
    if (timer.counter >= 0) {
        snprintf(text, sizeof(text), "%.0f", quantile(&counts, 0.5));
        close(timer.counter);
    }
    printf("%-9s %-33s %5u %8.0f %9.1f %9s %7s %7s %9.2f %8s\n", transport, name, w->n, n,
           quantile(&starts, 0.5), difference(&ops, 0.5, op), difference(&ops, 0.1, low),
           difference(&ops, 0.9, high), quantile(&data, 0.5), text);
    fflush(stdout);
}

static void left_out(const char *name, uint32_t n, const char *why)
{
    printf("# left out: %s of %u ranks%s\n", name, n, why);
    fflush(stdout);
}

static void run_one(const item_t *item, uint32_t n, const options_t *options)
{
    const tutti__algorithm_t *algorithm = item->source.algorithm;
    const char *reason = NULL;
    char why[200];
    host_t host;

    host_open(&host, n);
    if (algorithm != NULL && algorithm->refuses != NULL)
        reason = algorithm->refuses(&host.shape);
    if (reason != NULL) {
        snprintf(why, sizeof(why), ": %s", reason);
        left_out(item->name, n, why);
    }
    for (int is_shm = 0; is_shm < 2 && reason == NULL; is_shm++) {
        world_t w;

        if (!(is_shm ? options->shm : options->null))
            continue;
        if (is_shm && n > MOST_SHM_RANKS) {
            left_out(item->name, n, " over shm: it takes 64 at most");
            continue;
        }
        world_open(&w, &item->source, &host, is_shm, &options->world);
        if (can_run(&w) && options->calls > 0)
            for (long i = 0; i < options->calls; i++)
                call_all(&w);
        else if (can_run(&w))
            measure(&w, options, is_shm ? "shm" : "null", item->name);
        else
            left_out(item->name, n, " over null: it has node operations");
        world_close(&w);
    }
    host_close(&host);
}

/* ---- building ---- */

/* The time to build a schedule, on the slowest of a few ranks. */
static double build_ns(const source_t *source, const host_t *host, uint32_t *ret_ops)
{
    const tutti__algorithm_t *algorithm = source->algorithm;
    const uint32_t n = host->shape.size, ranks[] = { 0, 1, n / 2, n - 1 };
    double slowest = 0;

    for (int i = 0; i < 4; i++) {
        tutti__coll_args_t args = { .rank = ranks[i], .sub = source->sub, .radix = source->radix };
        tutti__sched_t *sched;
        double begin = now_ns(), took;

        if (algorithm->build(&host->shape, &args, &sched) != TUTTI_OK)
            die(algorithm->name);
        took = now_ns() - begin;
        if (took > slowest) {
            slowest = took;
            *ret_ops = sched->nops;
        }
        tutti__sched_free(sched);
    }
    return slowest;
}

/* The time of a look-up in the schedule cache: median of blocks of look-ups. */
static double cached_ns(const tutti__algorithm_t *algorithm, const host_t *host, const char *name,
                        const options_t *options)
{
    enum {
        LOOKUPS = 2000
    };
    tutti__want_t want = { .collective = algorithm->collective, .bytes = 4096 };
    static sample_t sample;
    const tutti__sched_t *sched;
    tutti__cache_t cache;

    tutti__cache_init(&cache, &host->shape, 0, name, TUTTI__ANY_ASSOCIATION, 0);
    if (tutti__cache_get(&cache, &want, 0, &sched) != TUTTI_OK)
        die(name);
    for (sample.n = 0; sample.n < options->rounds; sample.n++) {
        double begin = now_ns();

        for (int i = 0; i < LOOKUPS; i++)
            tutti__cache_get(&cache, &want, 0, &sched);
        sample.values[sample.n] = (now_ns() - begin) / LOOKUPS;
    }
    tutti__cache_fini(&cache);
    return quantile(&sample, 0.5);
}

static void build_one(const item_t *item, uint32_t n, const options_t *options)
{
    const tutti__algorithm_t *algorithm = item->source.algorithm;
    static sample_t sample;
    const char *reason;
    uint32_t ops = 0;
    char why[200];
    host_t host;

    if (algorithm == NULL) {
        left_out(item->name, n, ": a file is not built");
        return;
    }
    host_open(&host, n);
    reason = algorithm->refuses != NULL ? algorithm->refuses(&host.shape) : NULL;
    if (reason == NULL) {
        sample.n = 0;
        build_ns(&item->source, &host, &ops);
        for (int i = 0; i < options->rounds; i++)
            sample.values[sample.n++] = build_ns(&item->source, &host, &ops) / 1000;
        printf("%-33s %5u %8u %10.2f %8.2f %8.2f %11.1f\n", item->name, n, ops,
               quantile(&sample, 0.5), quantile(&sample, 0.1), quantile(&sample, 0.9),
               cached_ns(algorithm, &host, item->name, options));
        fflush(stdout);
    } else {
        snprintf(why, sizeof(why), ": %s", reason);
        left_out(item->name, n, why);
    }
    host_close(&host);
}

/* ---- schedules from files ---- */

/* Read and prove the schedules of a file; an error ends the program. */
static void open_file(item_t *item, const char *name, const world_options_t *options)
{
    tutti__files_t *files = NULL;
    const char *path;
    char *text;
    host_t host;

    if (tutti__files_list(name, &files) != TUTTI_OK)
        die(name);
    path = tutti__file_path(&files->file[0]);
    text = read_text(path);
    if (text == NULL) {
        fprintf(stderr, "tutti_exec: cannot read %s: %s\n", path, strerror(errno));
        exit(1);
    }
    if (tutti__sched_text_ranks(text, path, &item->source.ranks) != TUTTI_OK)
        die(name);
    if (item->source.ranks < 2 || item->source.ranks > MOST_RANKS) {
        fprintf(stderr, "tutti_exec: %s is for %u ranks, but 2 to %d can run here\n", name,
                item->source.ranks, MOST_RANKS);
        exit(1);
    }
    host_open(&host, item->source.ranks);
    if (tutti__file_take(&files->file[0], text, &host.shape, 0, 0, options->credits) != TUTTI_OK)
        die(name);
    item->source.scheds = need(calloc(item->source.ranks, sizeof(*item->source.scheds)));
    /* The text was proved, so it can be parsed. */
    if (tutti__sched_parse(text, "file", item->source.ranks, item->source.scheds) != TUTTI_OK)
        die(name);
    host_close(&host);
    tutti__files_free(files);
    free(text);
}

static void open_files(options_t *options, int ranks_were_said)
{
    for (int i = 0; i < options->nitems; i++) {
        item_t *item = &options->items[i];

        if (item->source.algorithm != NULL)
            continue;
        open_file(item, item->name, &options->world);
        for (int p = 0; p < options->nranks && ranks_were_said; p++) {
            if (options->ranks[p] == item->source.ranks)
                continue;
            fprintf(stderr, "tutti_exec: %s is for %u ranks, but -p says %u\n", item->name,
                    item->source.ranks, options->ranks[p]);
            exit(2);
        }
    }
}

static void close_files(options_t *options)
{
    for (int i = 0; i < options->nitems; i++) {
        source_t *source = &options->items[i].source;

        for (uint32_t r = 0; source->scheds != NULL && r < source->ranks; r++)
            tutti__sched_free(source->scheds[r]);
        free(source->scheds);
    }
}

/* ---- flags ---- */

__attribute__((noreturn)) static void refuse(const char *flag, const char *text,
                                             const char *allowed)
{
    fprintf(stderr, "tutti_exec: %s is \"%s\", but must be %s\n", flag, text, allowed);
    exit(2);
}

static uint64_t number(const char *flag, const char *text, uint64_t least, uint64_t most)
{
    char *end, allowed[80];
    uint64_t n;

    errno = 0;
    n = strtoull(text, &end, 10);
    snprintf(allowed, sizeof(allowed), "a number from %llu to %llu", (unsigned long long)least,
             (unsigned long long)most);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || n < least || n > most)
        refuse(flag, text, allowed);
    return n;
}

static item_t *new_item(options_t *options, const char *name)
{
    item_t *item = &options->items[options->nitems];

    if (options->nitems == MOST_ITEMS)
        refuse("--algorithms", name, "a list of up to 64 items");
    options->nitems++;
    snprintf(item->name, sizeof(item->name), "%s", name);
    return item;
}

static void add_all(options_t *options)
{
    for (const tutti__algorithm_t *a = tutti__algorithms; a->name != NULL; a++) {
        char name[80];

        snprintf(name, sizeof(name), "%s:%s", tutti__collective_name(a->collective), a->name);
        new_item(options, name)->source.algorithm = a;
    }
}

/* In the syntax of TUTTI_ALGORITHM, but without sizes. */
static void add_algorithm(options_t *options, const char *name)
{
    const char *what = "TUTTI_ALGORITHM: ", *why;
    tutti__override_t one;
    item_t *item;

    if (strcmp(name, "all") == 0) {
        add_all(options);
        return;
    }
    if (tutti__override_parse(name, &one) != TUTTI_OK) {
        why = tutti_last_error();
        fprintf(stderr, "tutti_exec: --algorithms: %s\n",
                why + (strncmp(why, what, strlen(what)) == 0 ? strlen(what) : 0));
        exit(2);
    }
    if (one.n != 1 || one.items[0].from != 0 || one.items[0].to != SIZE_MAX)
        refuse("--algorithms", name, "a list of COLLECTIVE:ALGORITHM, without sizes");
    item = new_item(options, name);
    item->source.algorithm = one.items[0].choice.algorithm;
    item->source.sub = one.items[0].choice.sub;
    item->source.radix = one.items[0].choice.radix;
}

static void add_ranks(options_t *options, const char *text)
{
    if (options->nranks == MOST_ITEMS)
        refuse("--ranks", text, "a list of up to 64 numbers");
    options->ranks[options->nranks++] = (uint32_t)number("--ranks", text, 2, MOST_RANKS);
}

static void each_word(options_t *options, char *list, void (*add)(options_t *, const char *))
{
    for (char *rest, *word = strtok_r(list, ",", &rest); word != NULL;
         word = strtok_r(NULL, ",", &rest))
        add(options, word);
}

static void say_version(const char *before, const char *behind)
{
    unsigned version = (unsigned)tutti_version();

    printf("%s%u.%u.%u%s", before, version >> 16, version >> 8 & 255, version & 255, behind);
}

static void parse_one(options_t *options, int flag)
{
    switch (flag) {
    case 'a':
        each_word(options, optarg, add_algorithm);
        return;
    case 'p':
        each_word(options, optarg, add_ranks);
        return;
    case 't':
        options->null = strcmp(optarg, "shm") != 0;
        options->shm = strcmp(optarg, "null") != 0;
        if (options->null && options->shm && strcmp(optarg, "both") != 0)
            refuse("--transport", optarg, "null, shm or both");
        return;
    case 'k':
        options->world.elements = number("--elements", optarg, 1, 1 << 20);
        return;
    case 'r':
        options->rounds = (int)number("--rounds", optarg, 1, MOST_ROUNDS);
        return;
    case 'b':
        options->block_us = (double)number("--block", optarg, 1, 10000000);
        return;
    case OPT_SLOT:
        options->world.slot_bytes = number("--slot", optarg, 64, 1 << 24);
        return;
    case OPT_CREDITS:
        options->world.credits = (uint32_t)number("--credits", optarg, 1, 64);
        return;
    case OPT_CALLS:
        options->calls = (long)number("--calls", optarg, 1, 1000000000);
        return;
    case OPT_BUILD:
        options->build = 1;
        return;
    case 'v':
        say_version("tutti_exec of Tutti ", "\n");
        exit(0);
    default: /* -h */
        fputs(usage, stdout);
        exit(0);
    }
}

static void parse(options_t *options, int argc, char **argv)
{
    char some[] = "allreduce:ring,allreduce:recursive_doubling,allreduce:halving_doubling,"
                  "allgather:bruck,alltoall:pairwise,broadcast:binomial,barrier:dissemination";
    char few[] = "2,8,32", many[] = "2,4,8,16,32,64,128,256,512,1024";
    tutti__conf_t conf;
    int flag, ranks_were_said;

    tutti__conf_defaults(&conf);
    *options = (options_t){ .null = 1,
                            .shm = 1,
                            .world = { 1, TUTTI__CHUNK_BYTES, (uint32_t)conf.shared.credits },
                            .rounds = 21,
                            .block_us = 2000 };
    opterr = 0;
    while ((flag = getopt_long(argc, argv, ":a:p:t:k:r:b:hv", long_options, NULL)) != -1) {
        if (flag == '?' || flag == ':')
            bench_refuse_option("tutti_exec", flag, argv, long_options);
        parse_one(options, flag);
    }
    if (optind < argc)
        bench_refuse_argument("tutti_exec", argv[optind]);
    ranks_were_said = options->nranks > 0;
    if (options->nitems == 0)
        each_word(options, some, add_algorithm);
    if (options->nranks == 0)
        each_word(options, options->build ? many : few, add_ranks);
    open_files(options, ranks_were_said);
}

static void say_command(char *text, size_t bytes, int argc, char **argv)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < argc && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, " %s", argv[i]);
}

static void run_item(const item_t *item, const options_t *options)
{
    void (*const run)(const item_t *, uint32_t, const options_t *) =
        options->build ? build_one : run_one;

    if (item->source.scheds != NULL) {
        run(item, item->source.ranks, options);
        return;
    }
    for (int p = 0; p < options->nranks; p++)
        run(item, options->ranks[p], options);
}

int main(int argc, char **argv)
{
    static options_t options;
    char host[64] = "?", command[1000];

    gethostname(host, sizeof(host) - 1);
    say_command(command, sizeof(command), argc, argv); /* first, since parsing changes argv */
    parse(&options, argc, argv);
    say_version("# Tutti ", ", executor\n");
    printf("# Command:%s\n# Host: %s\n", command, host);
    null_message = need(calloc(MOST_BLOCKS * options.world.elements, sizeof(float)));
    if (options.build)
        printf("# %-31s %5s %8s %10s %8s %8s %11s\n", "Algorithm", "Ranks", "Ops", "Build(us)",
               "P10", "P90", "Cached(ns)");
    else
        printf("# %-7s %-33s %5s %8s %9s %9s %7s %7s %9s %8s\n", "Over", "Algorithm", "Ranks",
               "Ops", "Start(ns)", "Op(ns)", "P10", "P90", "Data(ns)", "Instr");
    for (int a = 0; a < options.nitems; a++)
        run_item(&options.items[a], &options);
    close_files(&options);
    free(null_message);
    return 0;
}
