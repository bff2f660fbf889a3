/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Speed of the element-wise kernels on one core: type x operation x size x instruction set.
 *
 * In each round, memcpy and all instruction sets of the machine have one block of calls each, in a
 * random order, on the same buffers; ratios are computed in each round. README.md describes the
 * method.
 *
 * Needs neither ranks nor MPI: it calls the reduce room directly, so it links libtutti_all.la.
 */
#include <tutti/tutti.h>

#include "harness/refuse.h"

#include "base/names.h"
#include "reduce/reduce.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_SOURCES = 16,
    MAX_SIZES = 16,
    MAX_ISAS = 5,
    MAX_PLACES = 4,
    MAX_ROWS = (MAX_ISAS + 1) * MAX_PLACES,
    DTYPES = TUTTI_INT64_INT64 + 1,
    OPS = TUTTI_MAXLOC + 1,
    COPY = 0 /* memcpy is the first contestant of each place, before the instruction sets */
};

static const char *const all_isas[] = { "scalar", "sse2", "neon", "avx2", "avx512" };

/* Where arrays begin: a multiple of `bytes`, a power of two, plus `offset`. */
typedef struct {
    size_t bytes, offset;
} place_t;

typedef struct {
    char dtypes[DTYPES], ops[OPS]; /* 1: measure it */
    const char *isas[MAX_ISAS];
    int nisas;
    size_t sizes[MAX_SIZES];
    int nsizes;
    place_t places[MAX_PLACES];
    int nplaces;
    size_t sources;
    long rounds;
    double block_us;
    int in_place, csv;
    uint64_t random;
} options_t;

typedef struct {
    void *dst;
    const void *srcs[MAX_SOURCES];
    size_t sources, bytes, count;
    const tutti__reducer_t *reducer; /* NULL: memcpy */
} call_t;

/* One row: an instruction set, or memcpy, at one place. */
typedef struct {
    call_t call;
    tutti__reducer_t reducer;
    char name[64];
    long calls;    /* in one block */
    int same;      /* the row of memcpy at the same place */
    int reference; /* the row with which this row is compared */
    double *us;    /* [rounds] */
} contestant_t;

static const char usage[] =
    "Usage: tutti_kernels [options]\n\n"
    "Speed of the element-wise kernels on one core, compared with memcpy.\n\n"
    "  -T, --type LIST          types: float32,bfloat16,... or all (default\n"
    "                           float32,bfloat16,float16)\n"
    "  -o, --op LIST            operations: sum,max,... or all (default sum)\n"
    "  -I, --isa LIST           instruction sets (default: all of this machine)\n"
    "  -m, --message-size LIST  bytes of one array; K, M, G are binary (default 16K,64M)\n"
    "  -k, --sources N          arrays that are reduced to one, 1 to 16 (default 2)\n"
    "  -l, --in-place           the result overwrites the first source\n"
    "      --align LIST         arrays begin at N[+OFFSET]: OFFSET bytes after a multiple of\n"
    "                           N; several places are measured in turns (default 4096)\n"
    "  -r, --rounds R           blocks of each contestant (default 21)\n"
    "  -b, --block US           microseconds of one block, at least one call (default 2000)\n"
    "  -S, --seed N             seed of the order of the blocks (default: the clock)\n"
    "      --csv                comma-separated, one head line, no comments\n"
    "  -h, --help    -v, --version\n";

static const struct option long_options[] = {
    { "type", required_argument, NULL, 'T' },    { "op", required_argument, NULL, 'o' },
    { "isa", required_argument, NULL, 'I' },     { "message-size", required_argument, NULL, 'm' },
    { "sources", required_argument, NULL, 'k' }, { "in-place", no_argument, NULL, 'l' },
    { "align", required_argument, NULL, 'a' },   { "rounds", required_argument, NULL, 'r' },
    { "block", required_argument, NULL, 'b' },   { "seed", required_argument, NULL, 'S' },
    { "csv", no_argument, NULL, 'c' },           { "help", no_argument, NULL, 'h' },
    { "version", no_argument, NULL, 'v' },       { NULL, 0, NULL, 0 },
};

/* ---- flags ---- */

__attribute__((noreturn)) static void refuse(const char *flag, const char *text)
{
    fprintf(stderr, "tutti_kernels: %s %s makes no sense; see --help\n", flag, text);
    exit(2);
}

/* Refuse a word that is none of the names 1 to `end` - 1. `name` returns NULL for a name that this
   machine does not have. */
__attribute__((noreturn)) static void refuse_word(const char *flag, const char *word, int end,
                                                  const char *(*name)(int), const char *last)
{
    fprintf(stderr, "tutti_kernels: %s %s: not known; there are", flag, word);
    for (int i = 1; i < end; i++)
        if (name(i) != NULL)
            fprintf(stderr, " %s", name(i));
    fprintf(stderr, "%s\n", last);
    exit(2);
}

static uint64_t number(const char *flag, const char *text, uint64_t least, uint64_t most)
{
    static const char units[] = "KMG";
    const char *unit;
    char *end;
    uint64_t n;
    int shift = 0;

    errno = 0;
    n = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || errno != 0)
        refuse(flag, text);
    if (*end != '\0' && (unit = strchr(units, *end & ~0x20)) != NULL && end[1] == '\0')
        shift = 10 * (int)(unit - units + 1);
    else if (*end != '\0')
        refuse(flag, text);
    if (n > UINT64_MAX >> shift || n << shift < least || n << shift > most)
        refuse(flag, text);
    return n << shift;
}

/* Mark the numbers from 1 to `end` - 1 whose names are in the list. */
static void choose(const char *flag, char *list, char *marks, int end, const char *(*name)(int))
{
    memset(marks, 0, (size_t)end);
    for (char *rest, *word = strtok_r(list, ",", &rest); word != NULL;
         word = strtok_r(NULL, ",", &rest)) {
        int found = 0;

        for (int i = 1; i < end; i++)
            if (strcmp(word, "all") == 0 || strcmp(word, name(i)) == 0)
                marks[i] = 1, found = 1;
        if (!found)
            refuse_word(flag, word, end, name, " all");
    }
    if (memchr(marks, 1, (size_t)end) == NULL)
        refuse(flag, list);
}

static const char *dtype_name(int i)
{
    return tutti__dtype_name((tutti_dtype_t)i);
}

static const char *op_name(int i)
{
    return tutti__op_name((tutti_op_t)i);
}

static const char *isa_name(int i)
{
    return tutti__reduce_force(all_isas[i - 1]) ? all_isas[i - 1] : NULL;
}

static void take_isas(options_t *options, char *list)
{
    options->nisas = 0;
    for (char *rest, *word = strtok_r(list, ",", &rest); word != NULL;
         word = strtok_r(NULL, ",", &rest)) {
        if (!tutti__reduce_force(word))
            refuse_word("--isa", word, MAX_ISAS + 1, isa_name, "");
        if (options->nisas == MAX_ISAS)
            refuse("--isa", word);
        options->isas[options->nisas++] = tutti__reduce_isa();
    }
    if (options->nisas == 0)
        refuse("--isa", list);
}

static void take_sizes(options_t *options, char *list)
{
    options->nsizes = 0;
    for (char *rest, *word = strtok_r(list, ",", &rest); word != NULL;
         word = strtok_r(NULL, ",", &rest)) {
        if (options->nsizes == MAX_SIZES)
            refuse("-m", word);
        options->sizes[options->nsizes++] = number("-m", word, 16, UINT64_C(1) << 40);
    }
    if (options->nsizes == 0)
        refuse("-m", list);
}

static void take_places(options_t *options, char *list)
{
    options->nplaces = 0;
    for (char *rest, *word = strtok_r(list, ",", &rest); word != NULL;
         word = strtok_r(NULL, ",", &rest)) {
        char *offset = strchr(word, '+');
        place_t place = { 0 };

        if (options->nplaces == MAX_PLACES)
            refuse("--align", word);
        if (offset != NULL)
            *offset++ = '\0';
        place.bytes = number("--align", word, 1, 1 << 30);
        if (place.bytes & (place.bytes - 1))
            refuse("--align", word);
        if (offset != NULL)
            place.offset = number("--align", offset, 0, place.bytes - 1);
        options->places[options->nplaces++] = place;
    }
    if (options->nplaces == 0)
        refuse("--align", list);
}

static void parse(int argc, char **argv, options_t *options)
{
    char types[] = "float32,bfloat16,float16", ops[] = "sum", sizes[] = "16K,64M";
    int option;

    *options = (options_t){ .sources = 2, .rounds = 21, .block_us = 2000, .nplaces = 1 };
    options->places[0].bytes = 4096;
    options->random = (uint64_t)time(NULL) | 1;
    choose("-T", types, options->dtypes, DTYPES, dtype_name);
    choose("-o", ops, options->ops, OPS, op_name);
    take_sizes(options, sizes);
    for (size_t i = 0; i < MAX_ISAS; i++)
        if (tutti__reduce_force(all_isas[i]))
            options->isas[options->nisas++] = all_isas[i];
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":T:o:I:m:k:lr:b:S:hv", long_options, NULL)) != -1)
        switch (option) {
        case 'T':
            choose("-T", optarg, options->dtypes, DTYPES, dtype_name);
            break;
        case 'o':
            choose("-o", optarg, options->ops, OPS, op_name);
            break;
        case 'I':
            take_isas(options, optarg);
            break;
        case 'm':
            take_sizes(options, optarg);
            break;
        case 'k':
            options->sources = (size_t)number("-k", optarg, 1, MAX_SOURCES);
            break;
        case 'l':
            options->in_place = 1;
            break;
        case 'a':
            take_places(options, optarg);
            break;
        case 'r':
            options->rounds = (long)number("-r", optarg, 1, 1000000);
            break;
        case 'b':
            options->block_us = (double)number("-b", optarg, 1, 1000000000);
            break;
        case 'S':
            options->random = number("-S", optarg, 1, UINT64_MAX);
            break;
        case 'c':
            options->csv = 1;
            break;
        case 'h':
            fputs(usage, stdout);
            exit(0);
        case 'v':
            printf("tutti_kernels of Tutti %u.%u.%u\n", tutti_version() >> 16,
                   tutti_version() >> 8 & 255, tutti_version() & 255);
            exit(0);
        default:
            bench_refuse_option("tutti_kernels", option, argv, long_options);
        }
    if (optind < argc)
        bench_refuse_argument("tutti_kernels", argv[optind]);
}

/* ---- measuring ---- */

static double now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec * 1e-3;
}

static uint64_t draw(options_t *options, uint64_t below)
{
    options->random ^= options->random << 13;
    options->random ^= options->random >> 7;
    options->random ^= options->random << 17;
    return options->random % below;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Sorts the values. */
static double quantile(double *values, long count, double at)
{
    double place = at * (double)(count - 1);
    long low = (long)place, high = low + 1 < count ? low + 1 : low;

    qsort(values, (size_t)count, sizeof(*values), compare);
    return values[low] + (values[high] - values[low]) * (place - (double)low);
}

static void *allocate(size_t bytes)
{
    void *memory = NULL;

    if (posix_memalign(&memory, 4096, bytes) != 0) {
        fprintf(stderr, "tutti_kernels: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return memory;
}

static void run(const call_t *call)
{
    if (call->reducer == NULL)
        memcpy(call->dst, call->srcs[call->sources - 1], call->bytes);
    else
        tutti__reduce(call->reducer, call->dst, call->srcs, call->sources, call->count, 0);
}

/* Microseconds of one call, measured over `calls` calls, after an untimed call. */
static double time_block(const call_t *call, long calls)
{
    double begin;

    run(call);
    begin = now_us();
    for (long i = 0; i < calls; i++)
        run(call);
    return (now_us() - begin) / (double)calls;
}

/* Bytes read and written by one call. */
static double traffic(const call_t *call)
{
    return (double)call->bytes * (call->reducer == NULL ? 2 : (double)call->sources + 1);
}

typedef struct {
    double middle, p10, p90;
} spread_t;

static spread_t spread_of(double *values, long count)
{
    return (spread_t){ quantile(values, count, 0.5), quantile(values, count, 0.1),
                       quantile(values, count, 0.9) };
}

static void print_row(const options_t *options, const call_t *call, int dtype, int op,
                      const char *isa, const spread_t rows[3])
{
    static const char *const formats[] = {
        "%-13s %-6s %10zu %-16s %9.2f %9.2f %7.2f %7.2f %10.2f %7.2f %7.2f\n",
        "%s,%s,%zu,%s,%.3f,%.3f,%.4f,%.4f,%.3f,%.4f,%.4f\n"
    };

    printf(formats[options->csv], dtype_name(dtype), op_name(op), call->bytes, isa, rows[0].middle,
           rows[1].middle, rows[1].p10, rows[1].p90, rows[2].middle, rows[2].p10, rows[2].p90);
}

/* The first address of this place at or after `memory`. */
static void *at_place(void *memory, place_t place)
{
    char *at = memory;

    return at + (-(uintptr_t)at & (place.bytes - 1)) + place.offset;
}

/* Fill in all contestants for one type and operation; returns their number. call: the arrays
   without --align. */
static int enter(const options_t *options, const call_t *call, int dtype, int op,
                 contestant_t *contestants)
{
    int n = options->nisas + 1;

    for (int i = 0; i < options->nplaces * n; i++) {
        contestant_t *c = &contestants[i];
        place_t place = options->places[i / n];
        const char *isa = i % n == COPY ? "memcpy" : options->isas[i % n - 1];

        *c = (contestant_t){ .call = *call, .same = i / n * n, .reference = i < n ? 1 : i % n };
        if (i < n)
            snprintf(c->name, sizeof(c->name), "%s", isa);
        else
            snprintf(c->name, sizeof(c->name), "%s@%zu+%zu", isa, place.bytes, place.offset);
        c->call.dst = at_place(call->dst, place);
        for (size_t s = 0; s < call->sources; s++)
            c->call.srcs[s] = at_place((void *)(uintptr_t)call->srcs[s], place);
        if (i % n == COPY)
            continue;
        tutti__reduce_force(isa);
        tutti__reducer_find((tutti_dtype_t)dtype, (tutti_op_t)op, &c->reducer);
        c->call.reducer = &c->reducer;
    }
    return options->nplaces * n;
}

static void print_contestant(const options_t *options, const contestant_t *contestants, int i,
                             int dtype, int op, double *values)
{
    const contestant_t *c = &contestants[i], *copy = &contestants[c->same];
    double bytes = traffic(&c->call), copied = traffic(&copy->call);
    spread_t rows[3];

    for (long r = 0; r < options->rounds; r++)
        values[r] = bytes / c->us[r] * 1e-3;
    rows[0] = spread_of(values, options->rounds);
    for (long r = 0; r < options->rounds; r++)
        values[r] = bytes / c->us[r] / (copied / copy->us[r]);
    rows[1] = spread_of(values, options->rounds);
    for (long r = 0; r < options->rounds; r++)
        values[r] = contestants[c->reference].us[r] / c->us[r];
    rows[2] = spread_of(values, options->rounds);
    print_row(options, &c->call, dtype, op, c->name, rows);
}

/* Measure all contestants with one type, operation and size. */
static void measure(options_t *options, call_t *call, int dtype, int op)
{
    contestant_t contestants[MAX_ROWS];
    int n = enter(options, call, dtype, op, contestants);
    double *values = allocate((size_t)options->rounds * sizeof(double));

    for (int i = 0; i < n; i++) {
        contestants[i].us = allocate((size_t)options->rounds * sizeof(double));
        contestants[i].calls = (long)(options->block_us / time_block(&contestants[i].call, 1)) + 1;
    }
    for (long r = 0; r < options->rounds; r++) {
        int order[MAX_ROWS];

        for (int i = 0; i < n; i++) {
            int j = (int)draw(options, (uint64_t)i + 1);

            order[i] = order[j];
            order[j] = i;
        }
        for (int i = 0; i < n; i++) {
            contestant_t *c = &contestants[order[i]];

            c->us[r] = time_block(&c->call, c->calls);
        }
    }
    for (int i = 0; i < n; i++)
        print_contestant(options, contestants, i, dtype, op, values);
    for (int i = 0; i < n; i++)
        free(contestants[i].us);
    free(values);
    fflush(stdout);
}

/* Fill with floats of 1.0, or with integers whose bytes are all 1. So repeated operations do not
   soon make numbers that are subnormal or infinite. */
static void fill(void *data, size_t bytes, int dtype)
{
    static const unsigned char ones[DTYPES][8] = {
        [TUTTI_FLOAT16] = { 0, 0x3c },          [TUTTI_BFLOAT16] = { 0x80, 0x3f },
        [TUTTI_FLOAT32] = { 0, 0, 0x80, 0x3f }, [TUTTI_FLOAT64] = { 0, 0, 0, 0, 0, 0, 0xf0, 0x3f },
        [TUTTI_FLOAT8_E4M3] = { 0x38 },         [TUTTI_FLOAT8_E5M2] = { 0x3c },
    };
    size_t esize = tutti_dtype_bytes((tutti_dtype_t)dtype);
    char *at = data;

    memset(data, 1, bytes);
    if (tutti__reduce_scales((tutti_dtype_t)dtype))
        for (size_t i = 0; i + esize <= bytes; i += esize)
            memcpy(at + i, ones[dtype], esize);
}

static void print_head(const options_t *options, const char *command)
{
    char host[64] = "";

    if (options->csv) {
        puts("type,op,bytes,isa,gb_per_s,ratio_memcpy,ratio_memcpy_p10,ratio_memcpy_p90,"
             "ratio_first,ratio_first_p10,ratio_first_p90");
        return;
    }
    gethostname(host, sizeof(host) - 1);
    printf("# Tutti Kernels, %zu source(s)%s\n# Command:%s\n", options->sources,
           options->in_place ? ", in place" : "", command);
    printf("# Ranks: none, one process\n# Host: %s, %ld processors\n", host,
           sysconf(_SC_NPROCESSORS_ONLN));
    printf("# GB/s count what is read and written; ratios are of each round: median, P10, P90\n");
    printf("%-13s %-6s %10s %-16s %9s %9s %7s %7s %10s %7s %7s\n", "# Type", "Op", "Size", "ISA",
           "GB/s", "/memcpy", "P10", "P90", "/first", "P10", "P90");
}

int main(int argc, char **argv)
{
    options_t options;
    void *arrays[MAX_SOURCES + 1];
    size_t largest = 0, room = 0;
    call_t call = { 0 };
    char command[1024] = "";

    /* First, since parsing changes argv. */
    for (int i = 0; i < argc; i++)
        snprintf(command + strlen(command), sizeof(command) - strlen(command), " %s", argv[i]);
    parse(argc, argv, &options);
    if (options.in_place && options.sources == 1)
        refuse("-l", "with -k 1"); /* memcpy would copy an array to itself */
    for (int i = 0; i < options.nsizes; i++)
        largest = options.sizes[i] > largest ? options.sizes[i] : largest;
    for (int i = 0; i < options.nplaces; i++) {
        size_t most = options.places[i].bytes + options.places[i].offset;

        room = most > room ? most : room;
    }
    for (size_t s = 0; s <= options.sources; s++)
        arrays[s] = allocate(largest + room);
    call.sources = options.sources;
    for (size_t s = 0; s < options.sources; s++)
        call.srcs[s] = arrays[s];
    call.dst = arrays[options.in_place ? 0 : options.sources];
    print_head(&options, command);
    for (int t = 1; t < DTYPES; t++)
        for (int o = 1; options.dtypes[t] && o < OPS; o++) {
            if (!options.ops[o] || tutti__reduce_find((tutti_dtype_t)t, (tutti_op_t)o) == NULL)
                continue;
            for (size_t s = 0; s <= options.sources; s++)
                fill(arrays[s], largest + room, t);
            for (int i = 0; i < options.nsizes; i++) {
                call.count = options.sizes[i] / tutti_dtype_bytes((tutti_dtype_t)t);
                call.bytes = call.count * tutti_dtype_bytes((tutti_dtype_t)t);
                measure(&options, &call, t, o);
            }
        }
    for (size_t s = 0; s <= options.sources; s++)
        free(arrays[s]);
    return 0;
}
