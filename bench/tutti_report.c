/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Explains why a job hangs or has failed: reads the dumps of the flight recorders of all ranks, and
 * says in a paragraph which rank is the culprit, what the other ranks wait for, and what the
 * culprit does instead.
 *
 * It needs no library: a dump is text, which lib/record/dump.c describes.
 */
#include "report/report.h"

#include <getopt.h>
#include <string.h>

enum {
    OPT_JSON = 256
};

static const char usage[] =
    "Usage: tutti_report [options] FILE...\n"
    "\n"
    "Reads the dumps of all ranks of a job, and says what went wrong. A job writes dumps if\n"
    "TUTTI_DUMP=PATH is set: PATH.0, PATH.1, ...; or if the program calls tutti_dump.\n"
    "\n"
    "      --json         one JSON object a line, for each communicator\n"
    "  -h, --help         this\n"
    "\n"
    "The exit status is 0 if a report was printed, 1 if a file is no dump, and 2 if the command\n"
    "line is wrong.\n";

static const struct option long_options[] = {
    { "json", no_argument, NULL, OPT_JSON },
    { "help", no_argument, NULL, 'h' },
    { NULL, 0, NULL, 0 },
};

/* Is there more to say than that nothing is wrong? */
static int report(const dumps_t *dumps, int json, int all)
{
    judged_t judged;
    int printed = 0;

    for (size_t i = 0; i < dumps->nparts; i++) {
        if (!judge(dumps, i, &judged))
            continue;
        if (all || judged.verdict != VERDICT_NOTHING) {
            print_judged(stdout, &judged, json);
            printed++;
        }
        free_judged(&judged);
    }
    return printed;
}

int main(int argc, char **argv)
{
    dumps_t dumps = { NULL, 0 };
    int json = 0, status = 0, option;

    while ((option = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        if (option == 'h') {
            fputs(usage, stdout);
            return 0;
        }
        if (option != OPT_JSON)
            return 2;
        json = 1;
    }
    if (optind == argc) {
        fprintf(stderr, "tutti_report: no file; see tutti_report --help\n");
        return 2;
    }
    for (int i = optind; i < argc; i++)
        if (!read_dump(argv[i], &dumps))
            status = 1;
    if (report(&dumps, json, 0) == 0)
        report(&dumps, json, 1);
    free_dumps(&dumps);
    return status;
}
