/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schedules on the command line: what an algorithm does, and whether one of your own is right.
 *
 *      tutti_sched print allreduce:ring -n 4 >mine.txt
 *      (edit mine.txt)
 *      tutti_sched check mine.txt allreduce -n 4
 *
 * Nothing runs and no other rank is needed: algorithms are pure functions, and the checker is a
 * symbolic run of all ranks. The text's grammar stands in lib/sched/text.c. Not installed: it looks
 * inside the library.
 */
#include "coll/prove.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_RANKS 4096
#define MOST_TEXT ((size_t)1 << 30)

static const char usage[] =
    "usage: tutti_sched print COLLECTIVE:ALGORITHM[/SUB] -n RANKS [options]\n"
    "       tutti_sched check FILE COLLECTIVE -n RANKS [options]\n"
    "       tutti_sched --list\n"
    "\n"
    "print: the schedules of all ranks, as text. check: prove such a text; FILE may be -. Says\n"
    "\"proved\", or why not and exits with 1.\n"
    "\n"
    "  -n, --ranks N         all of them on one host, but for\n"
    "      --hosts 2,2,...   ranks host by host\n"
    "      --root R          of broadcast, reduce, gather, scatter (default 0)\n"
    "      --in-place        IN is OUT\n"
    "      --radix K         print: of algorithms that have one\n"
    "      --rank R          print: this one only\n"
    "      --ordered         check: operands in the order of ranks, too\n"
    "      --credits C       check: slots of each channel (default 1)\n"
    "  -l, --list            all algorithms\n"
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
    const char *hosts; /* NULL: one */
    tutti__coll_args_t args;
    char sub[64];
    int has_rank, ordered;
    uint32_t credits;
    tutti__sched_t *scheds[MOST_RANKS];
} job_t;

/* Of one host after the other. */
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

/* ---- who sits where ---- */

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

/* "2,2": they must make `ranks`. */
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

/* "allreduce:hierarchical/ring"; NULL: there is none of that name. */
static const tutti__algorithm_t *find_algorithm(job_t *job, const char *text)
{
    size_t n = strcspn(text, ":");
    tutti__collective_t collective;
    const tutti__algorithm_t *algorithm;
    char name[64];
    char *slash;

    if (text[n] != ':' || !find_collective(text, n, &collective))
        return NULL;
    snprintf(name, sizeof(name), "%s", text + n + 1);
    slash = strchr(name, '/');
    if (slash != NULL) {
        *slash = '\0';
        snprintf(job->sub, sizeof(job->sub), "%s", slash + 1);
        job->args.sub = job->sub;
    }
    algorithm = tutti__algorithm_find(collective, name);
    if (algorithm == NULL || slash == NULL)
        return algorithm;
    for (const char *const *sub = algorithm->subs; sub != NULL && *sub != NULL; sub++) {
        if (strcmp(*sub, job->sub) == 0)
            return algorithm;
    }
    return NULL;
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
    const tutti__algorithm_t *algorithm = find_algorithm(job, name);
    const char *reason;

    if (algorithm == NULL)
        return wrong("no such algorithm, see --list", name);
    reason = algorithm->refuses != NULL ? algorithm->refuses(shape) : NULL;
    if (reason != NULL)
        return wrong(name, reason);
    if (job->has_rank && job->args.rank >= job->ranks)
        return wrong("there is no such rank", NULL);
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

/* The whole file with an end; NULL: it cannot be read. */
static char *read_file(const char *path)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    size_t room = (size_t)1 << 16, used = 0, n;
    char *text = file != NULL ? malloc(room) : NULL, *more;

    while (text != NULL && (n = fread(text + used, 1, room - used - 1, file)) > 0) {
        used += n;
        if (used < room - 1)
            continue;
        more = room < MOST_TEXT ? realloc(text, 2 * room) : NULL;
        if (more == NULL)
            free(text);
        text = more;
        room *= 2;
    }
    if (text != NULL)
        text[used] = '\0';
    if (file != NULL && file != stdin)
        fclose(file);
    return text;
}

/* 0 if it is proved, else 1; the schedules are right as such. */
static int prove(const job_t *job, const tutti__shape_t *shape, tutti__collective_t collective)
{
    const tutti__algorithm_t row = { .name = "yours",
                                     .collective = collective,
                                     .ordered = job->ordered };
    const uint32_t trips[] = { 1, 2, job->credits + 1, 2 * job->credits + 1 };
    tutti__check_t check = tutti__coll_check(&row, shape, &job->args, job->scheds);
    char why[1200];

    check.credits = job->credits;
    for (size_t i = 0; i < sizeof(trips) / sizeof(*trips); i++) {
        check.trips = trips[i];
        if (tutti__sched_check(&check, why, sizeof(why)) == TUTTI_OK)
            continue;
        printf("not proved, with %u credits and %u trips: %s\n", check.credits, check.trips,
               why[0] != '\0' ? why : tutti_last_error());
        return 1;
    }
    printf("proved\n");
    return 0;
}

static int check(job_t *job, const tutti__shape_t *shape, const char *path, const char *name)
{
    tutti__collective_t collective;
    char *text;
    int status = 1;

    if (!find_collective(name, strlen(name), &collective))
        return wrong("no such collective, see --list", name);
    text = read_file(path);
    if (text == NULL)
        return wrong("cannot be read", path);
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

static int take_option(job_t *job, int option, const char *value)
{
    switch (option) {
    case 'n':
        return parse_number(value, 1, MOST_RANKS, &job->ranks);
    case OPT_HOSTS:
        job->hosts = value;
        return 1;
    case OPT_ROOT:
        return parse_number(value, 0, MOST_RANKS - 1, &job->args.root);
    case OPT_IN_PLACE:
        job->args.in_place = 1;
        return 1;
    case OPT_RADIX:
        return parse_number(value, 2, MOST_RANKS, &job->args.radix);
    case OPT_RANK:
        job->has_rank = 1;
        return parse_number(value, 0, MOST_RANKS - 1, &job->args.rank);
    case OPT_ORDERED:
        job->ordered = 1;
        return 1;
    default: /* OPT_CREDITS */
        return parse_number(value, 1, 64, &job->credits);
    }
}

int main(int argc, char **argv)
{
    static job_t job = { .credits = 1 };
    tutti__shape_t shape;
    int option;

    while ((option = getopt_long(argc, argv, "n:lh", long_options, NULL)) != -1) {
        if (option == 'h' || option == 'l') {
            if (option == 'h')
                fputs(usage, stdout);
            else
                list();
            return 0;
        }
        if (option == '?') {
            fputs(usage, stderr);
            return 2;
        }
        if (!take_option(&job, option, optarg))
            return wrong("that makes no sense", optarg);
    }
    argv += optind;
    argc -= optind;
    if (job.ranks == 0 && argc > 0)
        return wrong("-n says how many ranks there are", NULL);
    if (argc > 0 && !make_shape(&job, &shape))
        return wrong("--hosts does not make -n ranks", job.hosts);
    if (argc > 0 && job.args.root >= job.ranks)
        return wrong("there is no such --root", NULL);
    if (argc == 2 && strcmp(argv[0], "print") == 0)
        return print(&job, &shape, argv[1]);
    if (argc == 3 && strcmp(argv[0], "check") == 0)
        return check(&job, &shape, argv[1], argv[2]);
    fputs(usage, stderr);
    return 2;
}
