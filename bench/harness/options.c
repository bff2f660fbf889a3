/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading the command line. All ranks parse it, before MPI is started; later, rank 0 prints the
 * error.
 */
#include "harness/flags.h"

#include <getopt.h>
#include <limits.h>
#include <string.h>

/* The arguments of getopt: "+:m:z::f", and the table of long options. */
static void describe(char *letters, struct option *longs)
{
    *letters++ = '+';
    *letters++ = ':';
    for (int i = 0; i < BENCH_FLAGS; i++) {
        const char *value = bench_flags[i].value;
        int optional = value != NULL && strcmp(value, "[LIST]") == 0;

        longs[i] = (struct option){ .name = bench_flags[i].name,
                                    .has_arg = optional        ? optional_argument
                                               : value != NULL ? required_argument
                                                               : no_argument,
                                    .val = bench_flags[i].letter };
        if (bench_flags[i].letter > 255)
            continue;
        *letters++ = (char)bench_flags[i].letter;
        for (int colons = longs[i].has_arg; colons > 0; colons--)
            *letters++ = ':';
    }
    *letters = '\0';
    longs[BENCH_FLAGS] = (struct option){ 0 };
}

static const bench_flag_t *find(int letter)
{
    for (int i = 0; i < BENCH_FLAGS; i++) {
        if (bench_flags[i].letter == letter)
            return &bench_flags[i];
    }
    return NULL;
}

static int has_data(const bench_program_t *program)
{
    return program->collective->recv != BENCH_NOTHING;
}

/* Does the flag mean nothing for a collective without data, such as a barrier? */
static int is_for_data(const bench_flag_t *flag)
{
    static const char *const names[] = { "message-size", "validation", "in-place",
                                         "type",         "mem-limit",  "buffers",
                                         "align",        "plot",       "spoil" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(flag->name, names[i]) == 0)
            return 1;
    }
    return 0;
}

/* Report an option that getopt has rejected. */
static void refuse(bench_parse_t *parse, int why, char **argv)
{
    const bench_flag_t *flag = find(optopt);

    if (why == ':' && flag != NULL)
        bench_complain(parse->options, "%s: wants a value, %s", bench_flag_shown(flag),
                       flag->value);
    else if (optopt != 0 && flag == NULL)
        bench_complain(parse->options, "-%c: unknown option; see --help", optopt);
    else if (flag != NULL)
        bench_complain(parse->options, "%s: takes no value", argv[optind - 1]);
    else
        bench_complain(parse->options, "%s: unknown option; see --help", argv[optind - 1]);
}

/* Check combinations with -d, and flags that need it. */
static void judge_device(bench_parse_t *parse)
{
    const bench_options_t *options = parse->options;
    const bench_collective_t *collective = parse->program->collective;
    int exchanges = collective->send == BENCH_ALL_RANKS && collective->recv == BENCH_ALL_RANKS;
    int has_nccl = 0;

    for (int i = 0; i < options->npeers; i++) {
        const char *flag = parse->program->contestants[options->peers[i]].flag;

        has_nccl |= strcmp(flag, "nccl") == 0;
        if (options->device == NULL && strcmp(flag, "nccl") == 0)
            bench_complain(parse->options, "--peer nccl: only with -d");
        if (options->in_place && exchanges && strcmp(flag, "nccl") == 0)
            bench_complain(parse->options, "--peer nccl: has no alltoall in place; leave out -l");
        if (options->device != NULL && (strcmp(flag, "naive") == 0 || strcmp(flag, "ucc") == 0))
            bench_complain(parse->options,
                           "--peer %s: takes host memory only; leave it out with -d", flag);
    }
    if (options->device == NULL)
        return;
    if (options->shared)
        bench_complain(parse->options,
                       "--buffers shared: that is host memory; leave it out with -d");
    if (!has_data(parse->program) && !has_nccl)
        bench_complain(parse->options, "-d: %s has no buffers; it is for --peer nccl",
                       parse->program->title);
}

static void judge_align(bench_parse_t *parse)
{
    const bench_options_t *options = parse->options;

    for (int i = 0; i < options->naligns; i++) {
        if (options->rotate && options->aligns[i].bytes > 64)
            bench_complain(parse->options,
                           "--align %s: rotating buffers begin at lines; want at most 64",
                           options->align_text);
    }
    if (options->naligns > 1 && options->compare != NULL)
        bench_complain(parse->options, "--compare: only with one place of --align");
}

/* Check combinations of flags. */
static void judge(bench_parse_t *parse)
{
    const bench_options_t *options = parse->options;
    const bench_collective_t *collective = parse->program->collective;

    for (int i = 0; i < options->npeers; i++) {
        const char *flag = parse->program->contestants[options->peers[i]].flag;
        int mpi = strcmp(flag, "mpi") == 0 || strcmp(flag, "naive") == 0;

        if (mpi && options->type != NULL && options->type->mpi_name == NULL)
            bench_complain(parse->options, "-T %s: MPI has no such type; leave out --peer %s",
                           options->type->name, flag);
        if (mpi && options->type != NULL && options->max_bytes / options->type->bytes > INT_MAX)
            bench_complain(parse->options,
                           "-m: MPI's counts end at 2^31 - 1 elements; leave out --peer %s", flag);
    }
    judge_device(parse);
    if (options->align_text != NULL)
        judge_align(parse);
    if (options->in_place && collective->in_place == BENCH_NO_IN_PLACE)
        bench_complain(parse->options, "-l: %s does not have two buffers", parse->program->title);
    if (options->spoil && !options->validate)
        bench_complain(parse->options, "--spoil: only with -c");
    if (options->skew_us > 0 && options->back_to_back)
        bench_complain(parse->options,
                       "--skew: not with --back-to-back, where iterations have no begin");
    if (options->fail_above >= 0.0 && options->compare == NULL)
        bench_complain(parse->options, "--fail-above: only with --compare");
    bench_judge_files(parse->options);
    if (options->plot != NULL && !bench_plot_known(options->plot))
        bench_complain(parse->options, "--plot %.120s: must end in .svg or .png", options->plot);
}

void bench_parse(int argc, char **argv, const bench_program_t *program,
                 bench_options_t *ret_options)
{
    bench_parse_t parse = { ret_options, program };
    char letters[2 + 3 * BENCH_FLAGS + 1];
    struct option longs[BENCH_FLAGS + 1];
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
        .fail_above = -1.0,
        .naligns = 1,
        .aligns = { { .bytes = 4096 } },
    };
    describe(letters, longs);
    while ((option = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
        const bench_flag_t *flag = find(option);

        if (flag == NULL)
            refuse(&parse, option, argv);
        else if (!has_data(program) && is_for_data(flag))
            bench_complain(ret_options, "%s: %s has no data", bench_flag_shown(flag),
                           program->title);
        else
            flag->take(&parse, flag, optarg);
    }
    if (optind < argc)
        bench_complain(ret_options, "%s: unexpected argument; see --help", argv[optind]);
    judge(&parse);
}

static void print_flag(const bench_flag_t *flag, const bench_program_t *program)
{
    char start[48];
    int length = snprintf(start, sizeof(start), "--%s", flag->name);

    if (flag->value != NULL)
        snprintf(start + length, sizeof(start) - (size_t)length, " %s", flag->value);
    printf(flag->letter < 256 ? "  -%c, " : "      ", flag->letter);
    printf("%-24s  %s", start, flag->help);
    for (int i = 1; strcmp(flag->name, "peer") == 0 && program->contestants[i].name != NULL; i++)
        printf("%s%s", i > 1 ? ", " : " ", program->contestants[i].flag);
    if (strcmp(flag->name, "peer") == 0 && program->nccl_is != NULL)
        printf(" (%s)", program->nccl_is);
    printf("\n");
}

void bench_usage(const char *name, const bench_program_t *program)
{
    printf("Usage: mpirun -np N %s [options]\n\nLatency of %s.\n\n", name, program->title);
    for (int i = 0; i < BENCH_FLAGS; i++) {
        if (strcmp(bench_flags[i].name, "peer") == 0)
            printf("\nNot in OSU:\n");
        if (has_data(program) || !is_for_data(&bench_flags[i]))
            print_flag(&bench_flags[i], program);
    }
}
