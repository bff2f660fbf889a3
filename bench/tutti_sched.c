/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Prints the schedules of an algorithm, and checks schedules in a file.
 *
 *      tutti_sched print allreduce:ring -n 4 >mine.txt
 *      (edit mine.txt)
 *      tutti_sched check mine.txt allreduce -n 4
 *
 * No schedule runs, and no other rank is needed: algorithms are pure functions, and the checker
 * simulates all ranks symbolically. lib/sched/text.c has the grammar of the text. The program
 * contains the library's code, because it calls functions that the library does not export.
 */
#include "harness/refuse.h"
#include "schedules/read_text.h"

#include "coll/files.h"
#include "coll/prove.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_RANKS 4096

static const char usage[] =
    "usage: tutti_sched print COLLECTIVE:ALGORITHM[/SUB][(RADIX)] -n RANKS [options]\n"
    "       tutti_sched check FILE COLLECTIVE -n RANKS [options]\n"
    "       tutti_sched list\n"
    "\n"
    "print: prints the schedules of all ranks as text. check: proves such a text; FILE may be -.\n"
    "It prints \"proved\"; otherwise it prints the reason and exits with 1. To run the schedules:\n"
    "tutti_exec -a COLLECTIVE:@FILE in one process, or TUTTI_ALGORITHM=COLLECTIVE:@FILE in any\n"
    "program that uses Tutti.\n"
    "\n"
    "  -n, --ranks N         number of ranks, all on one host unless --hosts is given\n"
    "      --hosts 2,2,...   ranks host by host\n"
    "      --root R          root of broadcast, reduce, gather, scatter (default 0)\n"
    "      --in-place        IN and OUT are the same buffer\n"
    "      --radix K         print: radix of algorithms that have one; as in knomial(4)\n"
    "      --rank R          print: only the schedule of this rank\n"
    "      --ordered         check: operands must also be in the order of ranks\n"
    "      --credits C       check: slots of each channel (default 1)\n"
    "  -l, --list            list all algorithms\n"
    "  -h, --help\n";

enum {
    OPT_HOSTS = 256,
    OPT_ROOT,
    OPT_IN_PLACE,
    OPT_RADIX,
    OPT_RANK,
    OPT_ORDERED,
    OPT_CREDITS,
};

static const struct option long_options[] = {
    { "ranks", required_argument, NULL, 'n' },
    { "hosts", required_argument, NULL, OPT_HOSTS },
    { "root", required_argument, NULL, OPT_ROOT },
    { "in-place", no_argument, NULL, OPT_IN_PLACE },
    { "radix", required_argument, NULL, OPT_RADIX },
    { "rank", required_argument, NULL, OPT_RANK },
    { "ordered", no_argument, NULL, OPT_ORDERED },
    { "credits", required_argument, NULL, OPT_CREDITS },
    { "list", no_argument, NULL, 'l' },
    { "help", no_argument, NULL, 'h' },
    { NULL, 0, NULL, 0 },
};

typedef struct {
    uint32_t ranks;
    const char *hosts; /* NULL: one host */
    tutti__coll_args_t args;
    int has_rank, has_root, ordered;
    uint32_t credits; /* 0: not given */
    tutti__sched_t *scheds[MOST_RANKS];
} job_t;

/* The tables of the shape; hosts have consecutive ranks. */
static struct {
    uint32_t host_of[MOST_RANKS], local_of[MOST_RANKS], by_host[MOST_RANKS];
    uint32_t host_first[MOST_RANKS + 1];
} places;

static int wrong(const char *what, const char *value)
{
    fprintf(stderr, "tutti_sched: %s%s%s\n", what, value != NULL ? ": " : "",
            value != NULL ? value : "");
    return 2;
}

static int parse_number(const char *text, uint32_t least, uint32_t most, uint32_t *ret_number)
{
    char *end;
    unsigned long value;

    errno = 0;
    value = strtoul(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || *text == '-' || value < least || value > most)
        return 0;
    *ret_number = (uint32_t)value;
    return 1;
}

/* ---- the shape ---- */

static int add_host(tutti__shape_t *shape, uint32_t n)
{
    uint32_t first = places.host_first[shape->nhosts];

    if (n == 0 || n > shape->size - first)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        places.host_of[first + i] = shape->nhosts;
        places.local_of[first + i] = i;
        places.by_host[first + i] = first + i;
    }
    places.host_first[++shape->nhosts] = first + n;
    if (n < shape->min_local)
        shape->min_local = n;
    return 1;
}

/* Make the shape from "2,2", whose sum must be the number of ranks. */
static int make_shape(const job_t *job, tutti__shape_t *shape)
{
    const char *next = job->hosts;

    *shape = (tutti__shape_t){ .size = job->ranks,
                               .host_of = places.host_of,
                               .local_of = places.local_of,
                               .host_first = places.host_first,
                               .by_host = places.by_host,
                               .min_local = job->ranks };
    if (next == NULL)
        return add_host(shape, job->ranks);
    while (*next != '\0') {
        char *end;
        unsigned long n = strtoul(next, &end, 10);

        if (end == next || n > MOST_RANKS || (*end != ',' && *end != '\0') ||
            !add_host(shape, (uint32_t)n))
            return 0;
        next = *end == ',' ? end + 1 : end;
    }
    return places.host_first[shape->nhosts] == job->ranks;
}

/* ---- names ---- */

static int find_collective(const char *name, size_t n, tutti__collective_t *ret_collective)
{
    for (int c = 0; c < TUTTI__COLLECTIVES; c++) {
        const char *known = tutti__collective_name((tutti__collective_t)c);

        if (strlen(known) == n && memcmp(known, name, n) == 0) {
            *ret_collective = (tutti__collective_t)c;
            return 1;
        }
    }
    return 0;
}

/* "allreduce:hierarchical/ring", as in TUTTI_ALGORITHM; NULL: the error was printed. */
static const tutti__algorithm_t *find_algorithm(job_t *job, const char *text)
{
    const char *what = "TUTTI_ALGORITHM: ";
    tutti__override_t one;

    if (tutti__override_parse(text, &one) != TUTTI_OK) {
        const char *why = tutti_last_error();

        wrong(why + (strncmp(why, what, strlen(what)) == 0 ? strlen(what) : 0), NULL);
        return NULL;
    }
    if (one.n != 1 || one.items[0].path != NULL || one.items[0].from != 0 ||
        one.items[0].to != SIZE_MAX) {
        wrong("print wants one COLLECTIVE:ALGORITHM", text);
        return NULL;
    }
    job->args.sub = one.items[0].choice.sub;
    if (one.items[0].choice.radix != 0)
        job->args.radix = one.items[0].choice.radix;
    return one.items[0].choice.algorithm;
}

static void list(void)
{
    for (const tutti__algorithm_t *a = tutti__algorithms; a->name != NULL; a++) {
        char name[128];

        snprintf(name, sizeof(name), "%s:%s", tutti__collective_name(a->collective), a->name);
        printf("%-34s %s", name, a->purpose);
        if (a->radix != 0)
            printf("; radix %u", a->radix);
        for (const char *const *sub = a->subs; sub != NULL && *sub != NULL; sub++)
            printf("%s /%s", sub == a->subs ? ";" : "", *sub);
        printf("\n");
    }
}

/* ---- print and check ---- */

static int print(job_t *job, const tutti__shape_t *shape, const char *name)
{
    const tutti__algorithm_t *algorithm;
    const char *reason;

    if (job->ordered || job->credits != 0)
        return wrong("--ordered and --credits are for check, not for print", NULL);
    algorithm = find_algorithm(job, name);
    if (algorithm == NULL)
        return 2;
    if (job->args.radix != 0 && algorithm->radix == 0)
        return wrong("--radix is for algorithms that have one, see list", name);
    if (job->has_root && !tutti__collective_has_root(algorithm->collective))
        return wrong("--root is for collectives that have one", name);
    if (algorithm->subs != NULL && shape->nhosts == 1 && job->ranks > 1)
        fprintf(stderr, "tutti_sched: note: all ranks are on one host, so that nothing"
                        " goes between hosts; --hosts places them\n");
    reason = algorithm->refuses != NULL ? algorithm->refuses(shape) : NULL;
    if (reason != NULL)
        return wrong(name, reason);
    if (job->has_rank && job->args.rank >= job->ranks)
        return wrong("--rank is not below -n", NULL);
    for (uint32_t r = 0; r < job->ranks; r++) {
        tutti__coll_args_t args = job->args;
        tutti__sched_t *sched;

        if (job->has_rank && r != job->args.rank)
            continue;
        args.rank = r;
        if (algorithm->build(shape, &args, &sched) != TUTTI_OK)
            return wrong(name, tutti_last_error());
        tutti__sched_print(sched, stdout);
        tutti__sched_free(sched);
    }
    return fflush(stdout) == 0 ? 0 : wrong("standard output", strerror(errno));
}

/* 0: proved; 1: not. The schedules were parsed without an error. */
static int prove(const job_t *job, const tutti__shape_t *shape, tutti__collective_t collective)
{
    const tutti__algorithm_t row = { .name = "yours",
                                     .collective = collective,
                                     .ordered = job->ordered };
    uint32_t credits = job->credits != 0 ? job->credits : 1;

    if (tutti__coll_prove_scheds(&row, shape, &job->args, job->scheds, credits) == TUTTI_OK) {
        printf("proved\n");
        return 0;
    }
    printf("not proved, %s\n", tutti_last_error());
    return 1;
}

static int check(job_t *job, const tutti__shape_t *shape, const char *path, const char *name)
{
    tutti__collective_t collective;
    char *text;
    int status = 1;

    if (!find_collective(name, strlen(name), &collective))
        return wrong("no such collective, see list", name);
    if (job->has_rank || job->args.radix != 0)
        return wrong("--rank and --radix are for print, not for check", NULL);
    if (job->has_root && !tutti__collective_has_root(collective))
        return wrong("--root is for collectives that have one", name);
    text = read_text(path);
    if (text == NULL) {
        fprintf(stderr, "tutti_sched: cannot read %s: %s\n", path, strerror(errno));
        return 2;
    }
    if (tutti__sched_parse(text, path, job->ranks, job->scheds) == TUTTI_OK)
        status = prove(job, shape, collective);
    else
        printf("%s\n", tutti_last_error());
    free(text);
    for (uint32_t r = 0; r < job->ranks; r++)
        tutti__sched_free(job->scheds[r]);
    return status;
}

/* ---- the command line ---- */

/* Report that a value is not a number in the range; returns 0, for `return bad_number(...)`. */
static int bad_number(const char *option, const char *value, uint32_t least, uint32_t most)
{
    fprintf(stderr, "tutti_sched: %s is \"%s\", but must be a number from %u to %u\n", option,
            value, least, most);
    return 0;
}

static int take_number(const char *option, const char *value, uint32_t least, uint32_t most,
                       uint32_t *ret_number)
{
    return parse_number(value, least, most, ret_number) || bad_number(option, value, least, most);
}

static int take_option(job_t *job, int option, const char *value)
{
    switch (option) {
    case 'n':
        return take_number("--ranks", value, 1, MOST_RANKS, &job->ranks);
    case OPT_HOSTS:
        job->hosts = value;
        return 1;
    case OPT_ROOT:
        job->has_root = 1;
        return take_number("--root", value, 0, MOST_RANKS - 1, &job->args.root);
    case OPT_IN_PLACE:
        job->args.in_place = 1;
        return 1;
    case OPT_RADIX:
        return take_number("--radix", value, 2, MOST_RANKS, &job->args.radix);
    case OPT_RANK:
        job->has_rank = 1;
        return take_number("--rank", value, 0, MOST_RANKS - 1, &job->args.rank);
    case OPT_ORDERED:
        job->ordered = 1;
        return 1;
    default: /* OPT_CREDITS */
        return take_number("--credits", value, 1, 64, &job->credits);
    }
}

static int command(job_t *job, int argc, char **argv)
{
    int is_print = strcmp(argv[0], "print") == 0, is_check = strcmp(argv[0], "check") == 0;
    tutti__shape_t shape;

    if (strcmp(argv[0], "list") == 0 && argc == 1) {
        list();
        return 0;
    }
    if (!is_print && !is_check && strcmp(argv[0], "list") != 0)
        return wrong("there are print, check and list, but not", argv[0]);
    if (argc != (is_print ? 2 : is_check ? 3 : 1)) {
        fputs(usage, stderr);
        return 2;
    }
    if (job->ranks == 0)
        return wrong("-n must say how many ranks there are", NULL);
    if (!make_shape(job, &shape))
        return wrong("--hosts does not make -n ranks", job->hosts);
    if (job->args.root >= job->ranks)
        return wrong("--root is not below -n", NULL);
    return is_print ? print(job, &shape, argv[1]) : check(job, &shape, argv[1], argv[2]);
}

int main(int argc, char **argv)
{
    static job_t job;
    int option;

    opterr = 0;
    while ((option = getopt_long(argc, argv, ":n:lh", long_options, NULL)) != -1) {
        if (option == 'h' || option == 'l') {
            if (option == 'h')
                fputs(usage, stdout);
            else
                list();
            return 0;
        }
        if (option == '?' || option == ':')
            bench_refuse_option("tutti_sched", option, argv, long_options);
        if (!take_option(&job, option, optarg))
            return 2;
    }
    if (argc == optind) {
        fputs(usage, stderr);
        return 2;
    }
    return command(&job, argc - optind, argv + optind);
}
