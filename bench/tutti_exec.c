/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the executor costs: nanoseconds per operation of a schedule, and what building one takes.
 *
 * All ranks' runs are stepped in turns by one thread, so nothing is waited for and no cache line
 * changes its core: what is left is the executor and the transport's own work. Over "null", a
 * transport that answers at once and moves nothing, it is the executor alone. README.md has the
 * method.
 *
 * Neither ranks nor MPI: it calls the rooms directly, so it links libtutti_all.la.
 */
#include "exec_world.h"

#include "coll/cache.h"

#include <errno.h>
#include <getopt.h>
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
    MOST_ROUNDS = 1001
};

typedef struct {
    const tutti__algorithm_t *algorithms[MOST_ITEMS];
    uint32_t ranks[MOST_ITEMS];
    int nalgorithms, nranks;
    int null, shm, build;
    world_options_t world;
    int rounds;
    double block_us;
} options_t;

static const char usage[] =
    "Usage: tutti_exec [options]\n\n"
    "Cost of the executor per operation: all ranks' schedules, run by one thread.\n\n"
    "  -a, --algorithms LIST  COLLECTIVE:ALGORITHM,... or all (default: some). Those with\n"
    "                         operations of a whole host are built, not run\n"
    "  -p, --ranks LIST       (default 2,8,32; with --build 2,4,...,1024)\n"
    "  -t, --transport NAME   null, shm or both (default both; shm up to 64 ranks)\n"
    "  -k, --elements N       float32 elements of each block (default 1)\n"
    "  -r, --rounds R         blocks of calls (default 21)\n"
    "  -b, --block US         microseconds of one block, at least one call (default 2000)\n"
    "      --slot BYTES       of a channel's slots (default: TUTTI_CHUNK_BYTES' default)\n"
    "      --credits N        slots of a channel (default: TUTTI_CREDITS' default)\n"
    "      --build            how long it takes to build the schedules instead\n"
    "  -h, --help    -v, --version\n";

enum {
    OPT_SLOT = 256,
    OPT_CREDITS,
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

/* Instructions of this thread in user mode; -1 where there is no counter, as in many virtual
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

/* ---- what is timed ---- */

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
            tutti__stuck_t stuck;
            tutti_status_t status;

            if (w->run[r].sched == NULL)
                continue;
            status = tutti__run_step(&w->run[r], &stuck);
            if (status == TUTTI_OK)
                open--;
            else if (status != TUTTI__AGAIN)
                die("step");
        }
    }
}

/* The copies and reductions of one call, and nothing else. */
static void move_all(world_t *w)
{
    tutti__reducer_t reducer;

    if (!tutti__reducer_find(TUTTI_FLOAT32, TUTTI_SUM, &reducer))
        die("kernel");
    for (uint32_t r = 0; r < w->n; r++) {
        const tutti__sched_t *sched = w->sched[r];

        for (uint32_t i = 0; i < sched->nops; i++) {
            const tutti__op_t *op = &sched->ops[i];
            size_t bytes = op->nblk * w->call[r].count / sched->nblocks * sizeof(float);
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

/* Nanoseconds of one call of `what`, in one block of them. */
static double block(timer_t_ *timer, world_t *w, void (*what)(world_t *w))
{
    double counted = instructions(timer->counter), begin = now_ns(), end;
    long calls = 0, more = 1;

    do {
        for (long i = 0; i < more; i++)
            what(w);
        calls += more;
        end = now_ns();
        /* Looking at the clock must not count, nor the block become much too long. */
        more = calls;
    } while ((end - begin) * 2 < timer->block_ns);
    timer->count = (instructions(timer->counter) - counted) / (double)calls;
    return (end - begin) / (double)calls;
}

/* ---- the executor ---- */

static int can_run(const world_t *w)
{
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

static void measure(world_t *w, const options_t *options, const char *transport, const char *name)
{
    static sample_t ops, starts, data, counts;
    timer_t_ timer = { open_counter(), options->block_us * 1000, 0 };
    double n = operations(w);
    char text[32] = "-";

    ops.n = starts.n = data.n = counts.n = 0;
    for (int i = -1; i < options->rounds; i++) {
        double start = block(&timer, w, start_all), count = timer.count;
        double whole = block(&timer, w, call_all);

        count = timer.count - count;
        if (i < 0)
            continue; /* opens channels, finds the caches cold */
        ops.values[ops.n++] = (whole - start) / n;
        starts.values[starts.n++] = start / w->n;
        counts.values[counts.n++] = count / n;
        data.values[data.n++] = block(&timer, w, move_all) / n;
    }
    if (timer.counter >= 0) {
        snprintf(text, sizeof(text), "%.0f", quantile(&counts, 0.5));
        close(timer.counter);
    }
    printf("%-10s%-34s%6u%9.0f%10.1f%10.2f%8.2f%8.2f%10.2f%9s\n", transport, name, w->n, n,
           quantile(&starts, 0.5), quantile(&ops, 0.5), quantile(&ops, 0.1), quantile(&ops, 0.9),
           quantile(&data, 0.5), text);
    fflush(stdout);
}

static void run_one(const tutti__algorithm_t *algorithm, uint32_t n, const options_t *options)
{
    char name[80];
    host_t host;

    host_open(&host, n);
    snprintf(name, sizeof(name), "%s:%s", tutti__collective_name(algorithm->collective),
             algorithm->name);
    for (int is_shm = 0; is_shm < 2; is_shm++) {
        world_t w;

        if (!(is_shm ? options->shm && n <= MOST_SHM_RANKS : options->null) ||
            (algorithm->refuses != NULL && algorithm->refuses(&host.shape) != NULL))
            continue;
        world_open(&w, algorithm, &host, is_shm, &options->world);
        if (can_run(&w))
            measure(&w, options, is_shm ? "shm" : "null", name);
        world_close(&w);
    }
    host_close(&host);
}

/* ---- building ---- */

/* The slowest of a few ranks. */
static double build_ns(const tutti__algorithm_t *algorithm, const host_t *host, uint32_t *ret_ops)
{
    const uint32_t n = host->shape.size, ranks[] = { 0, 1, n / 2, n - 1 };
    double slowest = 0;

    for (int i = 0; i < 4; i++) {
        tutti__coll_args_t args = { .rank = ranks[i] };
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

/* The same call again: median of blocks of lookups. */
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

static void build_one(const tutti__algorithm_t *algorithm, uint32_t n, const options_t *options)
{
    static sample_t sample;
    uint32_t ops = 0;
    char name[80];
    host_t host;

    host_open(&host, n);
    snprintf(name, sizeof(name), "%s:%s", tutti__collective_name(algorithm->collective),
             algorithm->name);
    if (algorithm->refuses == NULL || algorithm->refuses(&host.shape) == NULL) {
        sample.n = 0;
        build_ns(algorithm, &host, &ops);
        for (int i = 0; i < options->rounds; i++)
            sample.values[sample.n++] = build_ns(algorithm, &host, &ops) / 1000;
        printf("%-34s%6u%9u%11.2f%9.2f%9.2f%12.1f\n", name, n, ops, quantile(&sample, 0.5),
               quantile(&sample, 0.1), quantile(&sample, 0.9),
               cached_ns(algorithm, &host, name, options));
        fflush(stdout);
    }
    host_close(&host);
}

/* ---- flags ---- */

__attribute__((noreturn)) static void refuse(const char *flag, const char *text)
{
    fprintf(stderr, "tutti_exec: %s %s makes no sense; see --help\n", flag, text);
    exit(2);
}

static uint64_t number(const char *flag, const char *text, uint64_t least, uint64_t most)
{
    char *end;
    uint64_t n;

    errno = 0;
    n = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || n < least || n > most)
        refuse(flag, text);
    return n;
}

static void add_algorithm(options_t *options, const char *name)
{
    char full[80];
    int found = 0;

    for (const tutti__algorithm_t *a = tutti__algorithms; a->name != NULL; a++) {
        snprintf(full, sizeof(full), "%s:%s", tutti__collective_name(a->collective), a->name);
        if (strcmp(name, "all") != 0 && strcmp(name, full) != 0)
            continue;
        if (options->nalgorithms == MOST_ITEMS)
            refuse("--algorithms", name);
        options->algorithms[options->nalgorithms++] = a;
        found = 1;
    }
    if (!found)
        refuse("--algorithms", name);
}

static void add_ranks(options_t *options, const char *text)
{
    if (options->nranks == MOST_ITEMS)
        refuse("--ranks", text);
    options->ranks[options->nranks++] = (uint32_t)number("--ranks", text, 2, MOST_RANKS);
}

static void each_word(options_t *options, char *list, void (*add)(options_t *, const char *))
{
    for (char *rest, *word = strtok_r(list, ",", &rest); word != NULL;
         word = strtok_r(NULL, ",", &rest))
        add(options, word);
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
            refuse("--transport", optarg);
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
    case OPT_BUILD:
        options->build = 1;
        return;
    case 'v':
        printf("tutti_exec of Tutti %x\n", tutti_version());
        exit(0);
    default:
        fputs(usage, flag == 'h' ? stdout : stderr);
        exit(flag == 'h' ? 0 : 2);
    }
}

static void parse(options_t *options, int argc, char **argv)
{
    char some[] = "allreduce:ring,allreduce:recursive_doubling,allreduce:halving_doubling,"
                  "allgather:bruck,alltoall:pairwise,broadcast:binomial,barrier:dissemination";
    char few[] = "2,8,32", many[] = "2,4,8,16,32,64,128,256,512,1024";
    tutti__conf_t conf;
    int flag;

    tutti__conf_defaults(&conf);
    *options = (options_t){ .null = 1,
                            .shm = 1,
                            .world = { 1, conf.shared.chunk_bytes, (uint32_t)conf.shared.credits },
                            .rounds = 21,
                            .block_us = 2000 };
    while ((flag = getopt_long(argc, argv, "a:p:t:k:r:b:hv", long_options, NULL)) != -1)
        parse_one(options, flag);
    if (optind < argc)
        refuse("argument", argv[optind]);
    if (options->nalgorithms == 0)
        each_word(options, some, add_algorithm);
    if (options->nranks == 0)
        each_word(options, options->build ? many : few, add_ranks);
}

static void say_command(char *text, size_t bytes, int argc, char **argv)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < argc && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, " %s", argv[i]);
}

int main(int argc, char **argv)
{
    static options_t options;
    char host[64] = "?", command[1000];

    gethostname(host, sizeof(host) - 1);
    say_command(command, sizeof(command), argc, argv); /* parsing cuts lists into pieces */
    parse(&options, argc, argv);
    printf("# Tutti %x, executor\n# Command:%s\n# Host: %s\n", tutti_version(), command, host);
    null_message = need(calloc(MOST_RANKS * options.world.elements, sizeof(float)));
    if (options.build)
        printf("# %-32s%6s%9s%11s%9s%9s%12s\n", "Algorithm", "Ranks", "Ops", "Build(us)", "P10",
               "P90", "Cached(ns)");
    else
        printf("# %-8s%-34s%6s%9s%10s%10s%8s%8s%10s%9s\n", "Over", "Algorithm", "Ranks", "Ops",
               "Start(ns)", "Op(ns)", "P10", "P90", "Data(ns)", "Instr");
    for (int a = 0; a < options.nalgorithms; a++)
        for (int p = 0; p < options.nranks; p++)
            (options.build ? build_one : run_one)(options.algorithms[a], options.ranks[p],
                                                  &options);
    free(null_message);
    return 0;
}
