/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The flags: OSU 7's letters with OSU 7's meaning, and long ones for what OSU does not have.
 *
 * Parsed before MPI runs, on all ranks alike; rank 0 speaks for all afterwards.
 */
#include "bench.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const levels[] = { "single", "funneled", "serialized", "multiple" };

enum {
    OPT_PEER = 256,
    OPT_ASYNC,
    OPT_ROUNDS,
    OPT_BUFFERS,
    OPT_SEED,
    OPT_STATS,
    OPT_BARRIER,
    OPT_BACK_TO_BACK,
    OPT_MPI_LEVEL,
};

static const struct option long_options[] = {
    { "message-size", required_argument, NULL, 'm' },
    { "iterations", required_argument, NULL, 'i' },
    { "warmup", required_argument, NULL, 'x' },
    { "mem-limit", required_argument, NULL, 'M' },
    { "type", required_argument, NULL, 'T' },
    { "accelerator", required_argument, NULL, 'd' },
    { "full", no_argument, NULL, 'f' },
    { "validation", no_argument, NULL, 'c' },
    { "in-place", no_argument, NULL, 'l' },
    { "help", no_argument, NULL, 'h' },
    { "version", no_argument, NULL, 'v' },
    { "peer", required_argument, NULL, OPT_PEER },
    { "async", no_argument, NULL, OPT_ASYNC },
    { "rounds", required_argument, NULL, OPT_ROUNDS },
    { "buffers", required_argument, NULL, OPT_BUFFERS },
    { "seed", required_argument, NULL, OPT_SEED },
    { "stats", no_argument, NULL, OPT_STATS },
    { "barrier", required_argument, NULL, OPT_BARRIER },
    { "back-to-back", no_argument, NULL, OPT_BACK_TO_BACK },
    { "mpi-level", required_argument, NULL, OPT_MPI_LEVEL },
    { NULL, 0, NULL, 0 },
};

static const char usage[] =
    "  -m, --message-size [MIN:]MAX  sizes in bytes, doubled from MIN to MAX; K, M, G are binary\n"
    "                                (default 4:1M; MIN is at least one element)\n"
    "  -i, --iterations N            timed iterations of each contestant and size\n"
    "                                (default 1000 up to 8192 bytes, 100 above)\n"
    "  -x, --warmup N                untimed iterations before them (default 100 and 10)\n"
    "  -f, --full                    also least and largest rank's average, and iterations\n"
    "  -c, --validation              check results exactly, before and after timing\n"
    "  -l, --in-place                reduce in place\n"
    "  -T, --type TYPE               float32 (default), float64, int32, int64, uint8, bfloat16;\n"
    "                                OSU's mpi_float, mpi_int\n"
    "  -M, --mem-limit BYTES         no message above it (default 512M)\n"
    "  -d, --accelerator KIND        none so far\n"
    "  -h, --help    -v, --version\n"
    "\n"
    "Not in OSU:\n"
    "      --peer mpi                time MPI in the same run, in turns\n"
    "      --async                   time the asynchronous call and its wait, too\n"
    "      --rounds R                blocks per contestant, in random order (default 10)\n"
    "      --seed N                  of that order (default: the clock)\n"
    "      --buffers private|shared  shared: from tutti_mem_alloc (default private)\n"
    "      --stats                   medians and bus bandwidth, also without a peer\n"
    "      --barrier mpi|tutti       the barrier between iterations (default mpi, if MPI runs)\n"
    "      --back-to-back            no barrier between the iterations of a block\n"
    "      --mpi-level LEVEL         single, funneled (default), serialized or multiple\n";

void bench_usage(const char *name, const bench_program_t *program)
{
    printf("Usage: mpirun -np N %s [options]\n\nLatency of %s.\n\n%s", name, program->title, usage);
}

__attribute__((format(printf, 2, 3))) static void complain(bench_options_t *options,
                                                           const char *fmt, ...)
{
    va_list args;

    if (options->error[0] != '\0')
        return; /* the first counts */
    va_start(args, fmt);
    vsnprintf(options->error, sizeof(options->error), fmt, args);
    va_end(args);
}

/* A number with K, M or G; answers where it ends, NULL if there is none. */
static const char *number(const char *text, uint64_t *ret_number)
{
    char *end;
    uint64_t n;
    int shift = 0;

    if (*text < '0' || *text > '9')
        return NULL;
    n = strtoull(text, &end, 10);
    switch (*end) {
    case 'k':
    case 'K':
        shift = 10;
        break;
    case 'm':
    case 'M':
        shift = 20;
        break;
    case 'g':
    case 'G':
        shift = 30;
        break;
    default:
        break;
    }
    if (n > (UINT64_C(1) << 60) >> shift)
        return NULL;
    *ret_number = n << shift;
    return end + (shift != 0);
}

static uint64_t whole_number(bench_options_t *options, const char *flag, const char *text,
                             uint64_t least)
{
    uint64_t n = least;
    const char *end = number(text, &n);

    if (end == NULL || *end != '\0' || n < least)
        complain(options, "%s %s: want a number of at least %llu", flag, text,
                 (unsigned long long)least);
    return n;
}

static void sizes(bench_options_t *options, const char *text)
{
    uint64_t first = 0;
    uint64_t last = 0;
    const char *end = number(text, &first);

    if (end != NULL && *end == '\0') {
        options->max_bytes = first;
        return;
    }
    if (end == NULL || *end != ':' || (end = number(end + 1, &last)) == NULL || *end != '\0' ||
        first > last) {
        complain(options, "-m %s: want [MIN:]MAX", text);
        return;
    }
    options->min_bytes = first;
    options->max_bytes = last;
}

/* Which of `words` is it? Their number, and a complaint, if none. */
static int one_of(bench_options_t *options, const char *flag, const char *text,
                  const char *const *words, int count)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(words[i], text) == 0)
            return i;
    }
    complain(options, "%s %s: not known; see --help", flag, text);
    return count;
}

static void take_long(bench_options_t *options, int option)
{
    static const char *const peers[] = { "mpi" };
    static const char *const buffers[] = { "private", "shared" };
    static const char *const barriers[] = { "mpi", "tutti" };

    switch (option) {
    case OPT_PEER:
        options->peer_mpi = one_of(options, "--peer", optarg, peers, 1) == 0;
        break;
    case OPT_ASYNC:
        options->async = 1;
        break;
    case OPT_ROUNDS:
        options->rounds = (long)whole_number(options, "--rounds", optarg, 1);
        break;
    case OPT_BUFFERS:
        options->shared = one_of(options, "--buffers", optarg, buffers, 2);
        break;
    case OPT_SEED:
        options->seed = whole_number(options, "--seed", optarg, 1);
        break;
    case OPT_STATS:
        options->stats = 1;
        break;
    case OPT_BARRIER:
        options->barrier_tutti = one_of(options, "--barrier", optarg, barriers, 2);
        break;
    case OPT_BACK_TO_BACK:
        options->back_to_back = 1;
        break;
    case OPT_MPI_LEVEL:
        options->mpi_level = one_of(options, "--mpi-level", optarg, levels, 4);
        break;
    default:
        complain(options, "unknown option; see --help");
        break;
    }
}

static void take(bench_options_t *options, int option)
{
    switch (option) {
    case 'm':
        sizes(options, optarg);
        break;
    case 'i':
        options->iterations = (long)whole_number(options, "-i", optarg, 1);
        break;
    case 'x':
        options->skip = (long)whole_number(options, "-x", optarg, 0);
        break;
    case 'M':
        options->memory_bytes = whole_number(options, "-M", optarg, 1);
        break;
    case 'T':
        options->type = bench_type_find(optarg);
        if (options->type == NULL)
            complain(options, "-T %s: not known; see --help", optarg);
        break;
    case 'd':
        complain(options, "-d %s: this build measures host memory only", optarg);
        break;
    case 'f':
        options->full = 1;
        break;
    case 'c':
        options->validate = 1;
        break;
    case 'l':
        options->in_place = 1;
        break;
    case 'h':
        options->help = 1;
        break;
    case 'v':
        options->version = 1;
        break;
    default:
        take_long(options, option);
        break;
    }
}

void bench_parse(int argc, char **argv, bench_options_t *ret_options)
{
    int option;

    *ret_options = (bench_options_t){
        .min_bytes = 4,
        .max_bytes = 1 << 20,
        .memory_bytes = 512u << 20,
        .iterations = -1,
        .skip = -1,
        .rounds = 10,
        .type = bench_type_find("float32"),
        .mpi_level = 1,
    };
    opterr = 0;
    while ((option = getopt_long(argc, argv, "hvfclm:i:x:M:T:d:", long_options, NULL)) != -1)
        take(ret_options, option);
    if (optind < argc)
        complain(ret_options, "%s: what is this? see --help", argv[optind]);
    if (ret_options->type != NULL && ret_options->type->mpi_name == NULL && ret_options->peer_mpi)
        complain(ret_options, "-T %s: MPI has no such type; leave out --peer mpi",
                 ret_options->type->name);
}
