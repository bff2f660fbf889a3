/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The flags: OSU 7's letters with OSU 7's meaning, and long flags for features that OSU lacks.
 */
#include "harness/flags.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void bench_complain(bench_options_t *options, const char *fmt, ...)
{
    va_list args;

    if (options->error[0] != '\0')
        return; /* the first error is reported */
    va_start(args, fmt);
    vsnprintf(options->error, sizeof(options->error), fmt, args);
    va_end(args);
}

const char *bench_flag_shown(const bench_flag_t *flag)
{
    static char text[40];

    if (flag->letter < 256)
        snprintf(text, sizeof(text), "-%c", flag->letter);
    else
        snprintf(text, sizeof(text), "--%s", flag->name);
    return text;
}

static void *target(const bench_parse_t *parse, const bench_flag_t *flag)
{
    return (char *)parse->options + flag->offset;
}

/* For a field of type int. */
static void take_switch(bench_parse_t *parse, const bench_flag_t *flag, const char *text)
{
    (void)text;
    *(int *)target(parse, flag) = 1;
}

/* For a field of type int64_t or uint64_t. The highest bit is not used in either. */
static void take_number(bench_parse_t *parse, const bench_flag_t *flag, const char *text)
{
    uint64_t number = 0;

    if (!bench_number(text, &number) || number < flag->least) {
        bench_complain(parse->options, "%s %s: want a number of at least %llu",
                       bench_flag_shown(flag), text, (unsigned long long)flag->least);
        return;
    }
    memcpy(target(parse, flag), &number, sizeof(number));
}

/* For a field of type const char *. */
static void take_text(bench_parse_t *parse, const bench_flag_t *flag, const char *text)
{
    if (text[0] == '\0')
        bench_complain(parse->options, "%s: want the name of a file", bench_flag_shown(flag));
    *(const char **)target(parse, flag) = text;
}

static void take_sizes(bench_parse_t *parse, const bench_flag_t *flag, const char *text)
{
    bench_options_t *options = parse->options;
    const char *wrong = bench_range(text, &options->min_bytes, &options->max_bytes);

    if (wrong != NULL)
        bench_complain(options, "%s %s: %s", bench_flag_shown(flag), text, wrong);
}

static void take_type(bench_parse_t *parse, const bench_flag_t *flag, const char *text)
{
    parse->options->type = bench_type_find(text);
    if (parse->options->type == NULL)
        bench_complain(parse->options, "%s %s: not known; see --help", bench_flag_shown(flag),
                       text);
}

static void take_device(bench_parse_t *parse, const bench_flag_t *flag, const char *text)
{
    parse->options->device = text;
    if (!bench_is_module(text))
        bench_complain(parse->options, "%s %s: want a module's name, such as cuda",
                       bench_flag_shown(flag), text);
}

static void take_tails(bench_parse_t *parse, const bench_flag_t *flag, const char *text)
{
    bench_options_t *options = parse->options;

    options->ntails = bench_percentiles(text != NULL ? text : "50,90,99", options->tails);
    if (options->ntails == 0)
        bench_complain(parse->options, "%s%s: want up to %d numbers from 1 to 100",
                       bench_flag_shown(flag), text, BENCH_TAILS);
}

static void add_peer(bench_parse_t *parse, const char *flag_text, const char *name, size_t length)
{
    const bench_contestant_t *contestants = parse->program->contestants;
    bench_options_t *options = parse->options;

    for (int i = 1; contestants[i].name != NULL; i++) {
        if (strncmp(contestants[i].flag, name, length) != 0 || contestants[i].flag[length] != '\0')
            continue;
        if (contestants[i].run == NULL)
            bench_complain(parse->options, "%s %.*s: built without %s", flag_text, (int)length,
                           name, strcmp(contestants[i].flag, "ucc") == 0 ? "UCC" : "MPI");
        for (int j = 0; j < options->npeers; j++) {
            if (options->peers[j] == i)
                return;
        }
        options->peers[options->npeers++] = i;
        return;
    }
    bench_complain(parse->options, "%s %.*s: not known; see --help", flag_text, (int)length, name);
}

static void take_peers(bench_parse_t *parse, const bench_flag_t *flag, const char *text)
{
    size_t length;

    for (const char *name = text;; name += length + 1) {
        length = strcspn(name, ",");
        add_peer(parse, bench_flag_shown(flag), name, length);
        if (name[length] == '\0')
            break;
    }
}

static void take_async(bench_parse_t *parse, const bench_flag_t *flag, const char *text)
{
    (void)text;
    add_peer(parse, bench_flag_shown(flag), "async", 5);
}

static void take_buffers(bench_parse_t *parse, const bench_flag_t *flag, const char *text)
{
    bench_options_t *options = parse->options;

    options->shared = strstr(text, "shared") != NULL;
    options->rotate = strstr(text, "rotate") != NULL;
    if (strcmp(text, "private") != 0 && strcmp(text, "shared") != 0 &&
        strcmp(text, "rotate") != 0 && strcmp(text, "shared,rotate") != 0)
        bench_complain(parse->options, "%s %s: want private, shared, rotate or shared,rotate",
                       bench_flag_shown(flag), text);
}

static void take_align(bench_parse_t *parse, const bench_flag_t *flag, const char *text)
{
    bench_options_t *options = parse->options;

    options->align_text = text;
    options->naligns = bench_aligns(text, options->aligns);
    if (options->naligns == 0)
        bench_complain(parse->options,
                       "%s %s: want up to %d of N or N+OFFSET, with commas; N a power of two, and "
                       "OFFSET less than N",
                       bench_flag_shown(flag), text, BENCH_ALIGNS);
}

static void take_barrier(bench_parse_t *parse, const bench_flag_t *flag, const char *text)
{
    parse->options->barrier_tutti = strcmp(text, "tutti") == 0;
    parse->options->barrier_mpi = strcmp(text, "mpi") == 0;
    if (!parse->options->barrier_tutti && !parse->options->barrier_mpi)
        bench_complain(parse->options, "%s %s: want mpi or tutti", bench_flag_shown(flag), text);
}

static void take_level(bench_parse_t *parse, const bench_flag_t *flag, const char *text)
{
    static const char *const levels[] = { "single", "funneled", "serialized", "multiple" };

    for (int i = 0; i < 4; i++) {
        if (strcmp(levels[i], text) == 0) {
            parse->options->mpi_level = i;
            return;
        }
    }
    bench_complain(parse->options, "%s %s: want single, funneled, serialized or multiple",
                   bench_flag_shown(flag), text);
}

/* For a field of type double: percent. */
static void take_percent(bench_parse_t *parse, const bench_flag_t *flag, const char *text)
{
    char *end;
    double percent = strtod(text, &end);

    if (!isdigit((unsigned char)text[0]) || (strcmp(end, "%") != 0 && *end != '\0'))
        bench_complain(parse->options, "%s %s: want a percentage, such as 5%%",
                       bench_flag_shown(flag), text);
    *(double *)target(parse, flag) = percent;
}

#define AT(member) offsetof(bench_options_t, member)

const bench_flag_t bench_flags[BENCH_FLAGS + 1] = {
    { 'm', "message-size", "[MIN:]MAX", take_sizes, 0, 0,
      "bytes, doubled from MIN to MAX; K, M, G are binary (default 4:1M)" },
    { 'i', "iterations", "N", take_number, AT(iterations), 1,
      "timed iterations of each contestant and size (1000; above 8192 bytes: 100)" },
    { 'x', "warmup", "N", take_number, AT(skip), 0, "untimed iterations before that (100; 10)" },
    { 'f', "full", NULL, take_switch, AT(full), 0,
      "also the least and largest average of a rank, and the iterations" },
    { 'c', "validation", NULL, take_switch, AT(validate), 0,
      "check results exactly, before and after timing" },
    { 'l', "in-place", NULL, take_switch, AT(in_place), 0, "in place" },
    { 'z', "tail-lat", "[LIST]", take_tails, 0, 0,
      "percentiles of the ranks' mean (default 50,90,99; -z50,90 without a space)" },
    { 'T', "type", "TYPE", take_type, 0, 0,
      "float32 (default), float64, int32, int64, int8, uint8, bfloat16; mpi_char and so on" },
    { 'M', "mem-limit", "BYTES", take_number, AT(memory_bytes), 1,
      "largest message size (default 512M)" },
    { 'd', "accelerator", "KIND", take_device, 0, 0, "buffers in device memory: cuda" },
    { 'h', "help", NULL, take_switch, AT(help), 0, "this" },
    { 'v', "version", NULL, take_switch, AT(version), 0, "version" },
    { 256, "peer", "LIST", take_peers, 0, 0, "also time these, in the same run, in turns:" },
    { 257, "async", NULL, take_async, 0, 0, "the same as --peer async" },
    { 258, "stats", NULL, take_switch, AT(stats), 0, "the long columns also without a peer" },
    { 259, "rounds", "R", take_number, AT(rounds), 1,
      "blocks per contestant, in random order (default 10)" },
    { 260, "seed", "N", take_number, AT(seed), 1, "seed of that order (default: the clock)" },
    { 261, "buffers", "KIND", take_buffers, 0, 0,
      "private (default), shared (tutti_mem_alloc), rotate (cold), shared,rotate" },
    { 273, "align", "N[+OFFSET]", take_align, 0, 0,
      "buffers begin OFFSET bytes after a multiple of N (default 4096); several places, with\n"
      "                                commas, are timed in turns and compared with the first" },
    { 262, "skew", "US", take_number, AT(skew_us), 1,
      "in each iteration, one rank is late by this many microseconds" },
    { 263, "load", "N", take_number, AT(load), 1, "run N busy threads on each host" },
    { 264, "barrier", "WHOSE", take_barrier, 0, 0,
      "the barrier between iterations: mpi or tutti (default mpi, if MPI runs)" },
    { 265, "back-to-back", NULL, take_switch, AT(back_to_back), 0,
      "no barrier between the iterations of a block" },
    { 266, "mpi-level", "LEVEL", take_level, 0, 0,
      "MPI's thread level: single, funneled (default), serialized or multiple" },
    { 267, "csv", "FILE", take_text, AT(csv), 0, "write the results; -: to stdout, without table" },
    { 268, "json", "FILE", take_text, AT(json), 0, "write the results, with each round's median" },
    { 269, "plot", "FILE", take_text, AT(plot), 0,
      "draw latency and bandwidth with gnuplot: .svg or .png" },
    { 270, "compare", "OLD.json", take_text, AT(compare), 0,
      "exit with status 1 if a size is slower than in this --json file" },
    { 271, "fail-above", "P%", take_percent, AT(fail_above), 0,
      "threshold of --compare (default 5%)" },
    { 272, "spoil", NULL, take_switch, AT(spoil), 0,
      "damage one element of each result, to test -c" },
};
