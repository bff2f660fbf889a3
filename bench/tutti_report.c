/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Explains why a job hangs or has failed: reads the dumps of the flight recorders of all ranks, and
 * reports in a paragraph which rank is the culprit, for which tensor or call the other ranks wait,
 * and what the culprit does instead.
 *
 * It does not link the library: a dump is text, which lib/record/dump.c describes.
 */
#include "harness/refuse.h"
#include "report/report.h"

#include <string.h>

enum {
    OPT_JSON = 256,
    OPT_TRACE
};

static const char usage[] =
    "Usage: tutti_report [options] FILE...\n"
    "       tutti_report --trace FILE PART...\n"
    "\n"
    "Reads the dumps of all ranks of a job, and says what went wrong. A job writes dumps if\n"
    "TUTTI_DUMP=PATH is set: PATH.0, PATH.1, ...; or if the program calls tutti_dump.\n"
    "\n"
    "      --json         one JSON object a line, for each communicator\n"
    "      --trace FILE   make a trace of the parts that a killed job has left: FILE.0.part, ...\n"
    "  -h, --help         this\n"
    "\n"
    "The exit status is 0 if all files were read, 1 if one is no dump or part, and 2 if the "
    "command\n"
    "line is wrong.\n";

static const struct option long_options[] = {
    { "json", no_argument, NULL, OPT_JSON },
    { "trace", required_argument, NULL, OPT_TRACE },
    { "help", no_argument, NULL, 'h' },
    { NULL, 0, NULL, 0 },
};

/* Print the verdicts, and return their number. all: also print those where nothing is wrong. */
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

/* Is this the name of a part of a trace? */
static int is_part(const char *path)
{
    size_t length = strlen(path);

    return length >= 5 && strcmp(path + length - 5, ".part") == 0;
}

int main(int argc, char **argv)
{
    dumps_t dumps = { NULL, 0 };
    const char *trace = NULL;
    int json = 0, status = 0, option;

    opterr = 0;
    while ((option = getopt_long(argc, argv, ":h", long_options, NULL)) != -1) {
        if (option == 'h') {
            fputs(usage, stdout);
            return 0;
        }
        if (option != OPT_JSON && option != OPT_TRACE)
            bench_refuse_option("tutti_report", option, argv, long_options);
        if (option == OPT_TRACE)
            trace = optarg;
        else
            json = 1;
    }
    if (optind == argc) {
        fprintf(stderr, "tutti_report: no file; see tutti_report --help\n");
        return 2;
    }
    if (trace != NULL && is_part(trace)) {
        fprintf(stderr,
                "tutti_report: --trace %s: this is a part; the name of the trace's file comes "
                "first\n",
                trace);
        return 2;
    }
    if (trace != NULL)
        return !join_parts(trace, argv + optind, argc - optind);
    for (int i = optind; i < argc; i++)
        if (!read_dump(argv[i], &dumps))
            status = 1;
    if (report(&dumps, json, 0) == 0)
        report(&dumps, json, 1);
    free_dumps(&dumps);
    return status;
}
