/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The command line of tutti_gradients. A flag that other programs in bench/ also have means the
 * same here.
 */
#include "gradients/gradients.h"

#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    FUNNELED = 1, /* values of mpi_level */
    SERIALIZED
};

enum {
    OPT_MODEL = 256,
    OPT_BACKWARD,
    OPT_FUSION,
    OPT_ROUNDS,
    OPT_SEED,
    OPT_BUFFERS,
    OPT_ALIGN,
    OPT_SCALE,
    OPT_ORDERS,
    OPT_TENSORS,
    OPT_RANDOM,
    OPT_AVERAGE,
    OPT_PEER,
    OPT_CYCLE,
    OPT_SPIN,
    OPT_WARM,
    OPT_ALONE,
    OPT_LIST,
    OPT_SPOIL,
    OPT_CSV,
    OPT_JSON
};

static const struct option long_options[] = {
    { "model", required_argument, NULL, OPT_MODEL },
    { "tensors", required_argument, NULL, OPT_TENSORS },
    { "random", no_argument, NULL, OPT_RANDOM },
    { "average", no_argument, NULL, OPT_AVERAGE },
    { "peer", required_argument, NULL, OPT_PEER },
    { "cycle", required_argument, NULL, OPT_CYCLE },
    { "spin", no_argument, NULL, OPT_SPIN },
    { "warm", required_argument, NULL, OPT_WARM },
    { "type", required_argument, NULL, 'T' },
    { "accelerator", required_argument, NULL, 'd' },
    { "backward", required_argument, NULL, OPT_BACKWARD },
    { "fusion", required_argument, NULL, OPT_FUSION },
    { "iterations", required_argument, NULL, 'i' },
    { "warmup", required_argument, NULL, 'x' },
    { "rounds", required_argument, NULL, OPT_ROUNDS },
    { "seed", required_argument, NULL, OPT_SEED },
    { "buffers", required_argument, NULL, OPT_BUFFERS },
    { "align", required_argument, NULL, OPT_ALIGN },
    { "scale", required_argument, NULL, OPT_SCALE },
    { "orders", required_argument, NULL, OPT_ORDERS },
    { "alone", no_argument, NULL, OPT_ALONE },
    { "list", no_argument, NULL, OPT_LIST },
    { "validation", no_argument, NULL, 'c' },
    { "spoil", no_argument, NULL, OPT_SPOIL },
    { "csv", required_argument, NULL, OPT_CSV },
    { "json", required_argument, NULL, OPT_JSON },
    { "help", no_argument, NULL, 'h' },
    { NULL, 0, NULL, 0 },
};

static const char usage[] =
    "Time to reduce all gradients of a network by name, in the order of the backward pass;\n"
    "compared with MPI or, on a device, with NCCL.\n\n"
    "      --model NAME        resnet50 (default), bert-large, gpt2 or all\n"
    "      --tensors NxBYTES   N tensors of so many bytes instead of a network: 1000x1K\n"
    "      --random            each rank submits in an order of its own, a new one each time;\n"
    "                          contestants that need one order keep the list's\n"
    "      --average           divide the sums by the number of ranks: float32, float64\n"
    "      --peer LIST         with commas: tutti-start, mpi-per-tensor, mpi-fused, mpi-cycle,\n"
    "                          nccl-per-tensor, nccl-fused; or all (default: all but tutti-start\n"
    "                          and mpi-cycle)\n"
    "  -T, --type TYPE         float32 (default), float64, int32, int64, int8, uint8, bfloat16\n"
    "  -d, --accelerator KIND  gradients in device memory: cuda\n"
    "      --backward MS       length of the backward pass, in which the gradients become ready\n"
    "                          (default 0: all are ready at the beginning)\n"
    "      --fusion BYTES      buffer of mpi-fused, mpi-cycle and nccl-fused (default 64M)\n"
    "      --cycle MS          of mpi-cycle: from one cycle to the next (default 1)\n"
    "      --spin              of mpi-cycle: the program's thread spins while it waits\n"
    "      --warm N            untimed iterations of each contestant before the first block\n"
    "                          (default 5)\n"
    "  -i, --iterations N      timed iterations of each contestant (default: one in each round)\n"
    "  -x, --warmup N          untimed iterations before each block (default 1)\n"
    "      --rounds R          blocks per contestant, in random order (default 10)\n"
    "      --seed N            seed of all orders (default: the clock)\n"
    "      --buffers KIND      private (default) or shared (tutti_mem_alloc)\n"
    "      --align N[+OFFSET]  each gradient begins OFFSET bytes after a multiple of N\n"
    "                          (default 64)\n"
    "      --scale N           each gradient has 1/N of its elements\n"
    "      --orders N          submit the same data in N random orders, and compare the bits\n"
    "                          (default 3; 0: no comparison)\n"
    "      --alone             no peers\n"
    "      --list              print the gradients, reduce nothing\n"
    "  -c, --validation        check results exactly, before and after timing\n"
    "      --spoil             damage one element of each result, to test -c\n"
    "      --csv FILE          write the results; -: to stdout, without table\n"
    "      --json FILE         write the results, with each round's median\n"
    "  -h, --help              this\n";

void gradients_usage(const char *name)
{
    printf("Usage: mpirun -np N %s [options]\n\n%s", name, usage);
}

static const char *flag_name(int letter)
{
    for (size_t i = 0; long_options[i].name != NULL; i++) {
        if (long_options[i].val == letter)
            return long_options[i].name;
    }
    return "?";
}

/* A number from `least` to `most`. */
static uint64_t take_number(bench_options_t *common, int letter, uint64_t least, uint64_t most)
{
    uint64_t number = least;

    if (!bench_number(optarg, &number) || number < least || number > most)
        bench_complain(common, "--%s %s: want a number from %llu to %llu", flag_name(letter),
                       optarg, (unsigned long long)least, (unsigned long long)most);
    return number;
}

static const char *take_file(bench_options_t *common, int letter)
{
    if (optarg[0] == '\0')
        bench_complain(common, "--%s: want the name of a file", flag_name(letter));
    return optarg;
}

static void take_model(bench_options_t *common, gradients_options_t *options)
{
    options->model = NULL;
    options->has_model = 1;
    if (strcmp(optarg, "all") == 0)
        return;
    for (size_t i = 0; options->model == NULL && gradients_model(i) != NULL; i++) {
        if (strcmp(optarg, gradients_model(i)) == 0)
            options->model = gradients_model(i);
    }
    if (options->model == NULL)
        bench_complain(common, "--model %s: want resnet50, bert-large, gpt2 or all", optarg);
}

static void take_tensors(bench_options_t *common, gradients_options_t *options)
{
    uint64_t tensors;
    uint64_t bytes;

    options->model = optarg;
    options->has_tensors = 1;
    if (!gradients_tensors(optarg, &tensors, &bytes))
        bench_complain(common,
                       "--tensors %s: want NxBYTES, such as 1000x1K; N up to 1M, BYTES up to 1G",
                       optarg);
}

/* Milliseconds with a fraction. */
static void take_cycle(bench_options_t *common, gradients_options_t *options)
{
    char *end;
    double ms = strtod(optarg, &end);

    if (optarg[0] < '0' || optarg[0] > '9' || *end != '\0' || !(ms <= 1000.0))
        bench_complain(common, "--cycle %s: want milliseconds from 0 to 1000, such as 0.1", optarg);
    else
        options->cycle_ns = (uint64_t)(ms * 1e6);
}

static void take_type(bench_options_t *common)
{
    const bench_type_t *type = bench_type_find(optarg);

    if (type == NULL)
        bench_complain(common, "--type %s: not known; see --help", optarg);
    else
        common->type = type;
}

static void take_buffers(bench_options_t *common)
{
    common->shared = strcmp(optarg, "shared") == 0;
    if (!common->shared && strcmp(optarg, "private") != 0)
        bench_complain(common, "--buffers %s: want private or shared", optarg);
}

static void take_align(bench_options_t *common)
{
    common->align_text = optarg;
    common->naligns = bench_aligns(optarg, common->aligns);
    if (common->naligns != 1 || common->aligns[0].bytes > 4096)
        bench_complain(
            common, "--align %s: want N or N+OFFSET, N a power of two to 4096, OFFSET less than N",
            optarg);
}

/* Takes a flag with a value that other programs do not have. Returns 0 for other flags. */
static int take_own(int letter, gradients_options_t *options, bench_options_t *common)
{
    const uint64_t many = UINT64_C(1) << 20;

    switch (letter) {
    case OPT_MODEL:
        take_model(common, options);
        return 1;
    case OPT_TENSORS:
        take_tensors(common, options);
        return 1;
    case OPT_BACKWARD:
        options->backward_ms = take_number(common, letter, 0, many);
        return 1;
    case OPT_FUSION:
        options->fusion_bytes = take_number(common, letter, 1, INT_MAX);
        return 1;
    case OPT_CYCLE:
        take_cycle(common, options);
        return 1;
    case OPT_PEER:
        gradients_take_peers(common, options, optarg);
        return 1;
    case OPT_SCALE:
        options->scale = take_number(common, letter, 1, UINT64_C(1) << 40);
        return 1;
    case OPT_ORDERS:
        options->orders = take_number(common, letter, 0, many);
        return 1;
    case OPT_WARM:
        options->warm = take_number(common, letter, 0, many);
        return 1;
    case OPT_ALIGN:
        take_align(common);
        return 1;
    case OPT_BUFFERS:
        take_buffers(common);
        return 1;
    default:
        return 0;
    }
}

/* Takes a flag without a value. Returns 0 for other flags. */
static int take_switch(int letter, gradients_options_t *options, bench_options_t *common)
{
    const struct {
        int letter;
        int *target;
    } switches[] = {
        { OPT_RANDOM, &options->random }, { OPT_AVERAGE, &options->average },
        { OPT_SPIN, &options->spin },     { OPT_ALONE, &options->alone },
        { OPT_LIST, &options->list },     { OPT_SPOIL, &common->spoil },
        { 'c', &common->validate },
    };

    for (size_t i = 0; i < sizeof(switches) / sizeof(switches[0]); i++) {
        if (switches[i].letter == letter) {
            *switches[i].target = 1;
            return 1;
        }
    }
    return 0;
}

static void take(int letter, gradients_options_t *options, bench_options_t *common)
{
    const uint64_t many = UINT64_C(1) << 20;

    if (take_switch(letter, options, common) || take_own(letter, options, common))
        return;
    switch (letter) {
    case 'T':
        take_type(common);
        break;
    case 'd':
        common->device = optarg;
        break;
    case 'i':
        common->iterations = (int64_t)take_number(common, letter, 1, many);
        break;
    case 'x':
        common->skip = (int64_t)take_number(common, letter, 0, many);
        break;
    case OPT_ROUNDS:
        common->rounds = (int64_t)take_number(common, letter, 1, many);
        break;
    case OPT_SEED:
        common->seed = take_number(common, letter, 1, UINT64_C(1) << 60);
        break;
    case OPT_CSV:
        common->csv = take_file(common, letter);
        break;
    case OPT_JSON:
        common->json = take_file(common, letter);
        break;
    default:
        common->help = 1;
        break;
    }
}

/* Check combinations of flags. */
static void judge(const gradients_options_t *options, bench_options_t *common)
{
    gradients_judge_peers(options, common);
    if (options->has_tensors && options->has_model)
        bench_complain(common, "--tensors: not with --model");
    if (options->random && options->backward_ms > 0)
        bench_complain(common, "--random: not with --backward, which has an order");
    if (options->average && common->device != NULL)
        bench_complain(common, "--average: not with -d");
    if (options->average && common->type->dtype != TUTTI_FLOAT32 &&
        common->type->dtype != TUTTI_FLOAT64)
        bench_complain(common, "--average: only with -T float32 or float64");
    if (common->device != NULL && !bench_is_module(common->device))
        bench_complain(common, "-d %s: want a module's name, such as cuda", common->device);
    if (common->device != NULL && common->shared)
        bench_complain(common, "--buffers shared: that is host memory; leave it out with -d");
    if (common->spoil && !common->validate)
        bench_complain(common, "--spoil: only with -c");
    bench_judge_files(common);
#ifndef HAVE_JANSSON
    if (common->json != NULL)
        bench_complain(common, "--json: built without jansson");
#endif
}

void gradients_parse(int argc, char **argv, gradients_options_t *ret_options,
                     bench_options_t *ret_common)
{
    int letter;

    *ret_options = (gradients_options_t){
        .model = gradients_model(0),
        .fusion_bytes = 64u << 20,
        .scale = 1,
        .orders = 3,
        .warm = 5,
        .cycle_ns = 1000000,
    };
    *ret_common = (bench_options_t){
        .iterations = -1,
        .skip = 1,
        .rounds = 10,
        .type = bench_type_find("float32"),
        .in_place = 1,
        .mpi_level = FUNNELED,
        .fail_above = -1.0,
        .naligns = 1,
        .aligns = { { .bytes = 64 } }, /* like memory of an allocator */
    };
    while ((letter = getopt_long(argc, argv, "+:T:d:i:x:ch", long_options, NULL)) != -1) {
        if (letter == ':')
            bench_complain(ret_common, "%s: wants a value; see --help", argv[optind - 1]);
        else if (letter == '?' && optopt > 0 && optopt < 256)
            bench_complain(ret_common, "-%c: unknown option; see --help", optopt);
        else if (letter == '?')
            bench_complain(ret_common, "%s: unknown option; see --help", argv[optind - 1]);
        else
            take(letter, ret_options, ret_common);
    }
    if (optind < argc)
        bench_complain(ret_common, "%s: unexpected argument; see --help", argv[optind]);
    judge(ret_options, ret_common);
    for (int i = 0; gradients_contestants[i].name != NULL; i++) {
        if (gradients_chosen(ret_options, ret_common, i) &&
            gradients_way(&gradients_contestants[i])->calls_from_thread)
            ret_common->mpi_level = SERIALIZED;
    }
}
