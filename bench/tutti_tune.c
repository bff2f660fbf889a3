/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tutti_tune: measures settings on this machine, and writes those that beat the defaults to a file.
 * On several hosts it measures the link between them, and writes the link's figures unless calls
 * are slower with them. The library reads the file from then on. The measurements are some seconds
 * of real calls.
 */
#include "tune/tune.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    OPT_QUICK = 256,
    OPT_ROUNDS,
    OPT_SECONDS,
    OPT_SEED,
    OPT_SPOIL,
    OPT_SPOIL_END,
    OPT_GRADIENTS
};

typedef struct {
    tune_effort_t effort;
    const char *output;    /* NULL: the path that the library reads */
    const char *gradients; /* NULL: tune for all programs */
    int dry_run, verbose, help, quick;
    char error[200];
} options_t;

static const struct option long_options[] = {
    { "output", required_argument, NULL, 'o' },
    { "dry-run", no_argument, NULL, 'n' },
    { "verbose", no_argument, NULL, 'v' },
    { "help", no_argument, NULL, 'h' },
    { "quick", no_argument, NULL, OPT_QUICK },
    { "rounds", required_argument, NULL, OPT_ROUNDS },
    { "seconds", required_argument, NULL, OPT_SECONDS },
    { "seed", required_argument, NULL, OPT_SEED },
    { "spoil", no_argument, NULL, OPT_SPOIL },
    { "spoil-end", no_argument, NULL, OPT_SPOIL_END },
    { "gradients", required_argument, NULL, OPT_GRADIENTS },
    { NULL, 0, NULL, 0 },
};

static const char usage[] =
    "Finds the settings that are fastest for N ranks on this machine, and writes those that\n"
    "beat the defaults to a file that Tutti reads from then on. On several hosts it measures the\n"
    "link between them.\n\n"
    "      --gradients FILE    tune for a step that submits these tensors together: a line each,\n"
    "                          [NAME] COUNT [TYPE], float32 if there is no type; # comments\n"
    "  -o, --output FILE       the file; its folder must exist (default: the path that Tutti\n"
    "                          reads)\n"
    "  -n, --dry-run           write no file\n"
    "  -v, --verbose           print each candidate's time at each size as well\n"
    "      --rounds R          turns of each candidate, in random order (default 15)\n"
    "      --seconds S         approximate time for each setting (default 3)\n"
    "      --quick             a short test run: 3 rounds of the least length\n"
    "      --seed N            seed of the orders (default: the clock)\n"
    "      --spoil             divide the candidates' times by a million, so that some win\n"
    "      --spoil-end         the winners together (with --gradients) and the link's figures\n"
    "                          count as slow\n"
    "  -h, --help              this\n";

/* ---- flags ---- */

static uint64_t take_number(options_t *options, const char *name, uint64_t most)
{
    uint64_t number = 1;

    if (!bench_number(optarg, &number) || number < 1 || number > most)
        snprintf(options->error, sizeof(options->error), "--%s %.60s: want a number from 1 to %llu",
                 name, optarg, (unsigned long long)most);
    return number;
}

static void take(int letter, char **argv, options_t *options)
{
    switch (letter) {
    case 'o':
        options->output = optarg;
        if (optarg[0] == '\0')
            snprintf(options->error, sizeof(options->error), "-o: want the name of a file");
        break;
    case 'n':
        options->dry_run = 1;
        break;
    case 'v':
        options->verbose = 1;
        break;
    case 'h':
        options->help = 1;
        break;
    case OPT_QUICK:
        options->effort.quick = 1;
        options->effort.rounds = 3;
        options->effort.setting_ms = 1.0;
        break;
    case OPT_ROUNDS:
        options->effort.rounds = (int64_t)take_number(options, "rounds", 10000);
        break;
    case OPT_SECONDS:
        options->effort.setting_ms = 1e3 * (double)take_number(options, "seconds", 86400);
        break;
    case OPT_SEED:
        options->effort.seed = take_number(options, "seed", UINT64_MAX);
        break;
    case OPT_GRADIENTS:
        options->gradients = optarg;
        if (optarg[0] == '\0')
            snprintf(options->error, sizeof(options->error),
                     "--gradients: want the name of a file");
        break;
    case OPT_SPOIL:
        options->effort.spoil = 1;
        break;
    case OPT_SPOIL_END:
        options->effort.spoil_end = 1;
        break;
    default:
        snprintf(options->error, sizeof(options->error), "%.80s: %s; see --help", argv[optind - 1],
                 letter == ':' ? "wants a value" : "unknown option");
    }
}

static options_t parse(int argc, char **argv)
{
    options_t options = { .effort = { .rounds = 15, .setting_ms = 3000.0 } };
    int letter;

    while ((letter = getopt_long(argc, argv, "+:o:nvh", long_options, NULL)) != -1 &&
           options.error[0] == '\0')
        take(letter, argv, &options);
    if (optind < argc && options.error[0] == '\0')
        snprintf(options.error, sizeof(options.error), "%.80s: unexpected argument; see --help",
                 argv[optind]);
    return options;
}

/* --help and invalid flags: only rank 0 prints. */
static int answer_only(const options_t *options, const char *name)
{
    if (!options->help && options->error[0] == '\0')
        return 0;
    if (!bench_speaks())
        return 1;
    if (options->error[0] != '\0')
        fprintf(stderr, "%s: %s\n", name, options->error);
    else
        printf("Usage: mpirun -np N %s [options]\n\n%s", name, usage);
    return 1;
}

/* ---- output ---- */

static void print_head(const bench_world_t *world, const options_t *options)
{
    char text[256];

    bench_fact_host(text, sizeof(text));
    printf("\n# Tutti Tune v%d.%d.%d\n# Host: %s, %ld processors\n# Ranks: %d\n",
           TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH, text,
           sysconf(_SC_NPROCESSORS_ONLN), world->size);
    bench_fact_cpu(text, sizeof(text));
    printf("# Processor: %s; commit %s\n# Rounds %lld, seed %llu\n", text, bench_fact_commit(),
           (long long)options->effort.rounds, (unsigned long long)options->effort.seed);
    printf("%-24s%-10s%12s%11s%10s%10s\n", "# Setting", "Value", "Mean(us)", "/Default", "95% Low",
           "95% High");
    fflush(stdout);
}

static const char *shown(const tune_result_t *result, int who)
{
    if (who < 2)
        return who == 0 ? "default" : "again";
    return result->of[who].value;
}

static void print_sizes(const tune_setting_t *setting, const tune_result_t *result, int ranks)
{
    printf("# %-22s%-10s", "  bytes:", "");
    for (size_t k = 0; setting->sizes[k] != 0; k++)
        printf(" %11zu", tune_bytes(setting, k, ranks));
    for (int who = 0; who < result->count; who++) {
        printf("\n# %-22s%-10s", "  us:", shown(result, who));
        for (size_t k = 0; setting->sizes[k] != 0; k++)
            printf(" %11.3f", result->of[who].size_us[k]);
    }
    printf("\n");
}

/* ranks: their number with --verbose, otherwise 0. */
static void print_result(const tune_setting_t *setting, const tune_result_t *result, int ranks)
{
    for (int who = 0; who < result->count; who++) {
        const tune_figures_t *f = &result->of[who];

        printf("%-24s%-10s %11.3f", setting->name, shown(result, who), f->mean_us);
        if (who == 0)
            printf("%11s%10s%10s\n", "-", "-", "-");
        else
            printf(" %10.3f %9.3f %9.3f\n", f->ratio.middle, f->ratio.low, f->ratio.high);
    }
    printf("# %s, %lld rounds: ", setting->name, (long long)result->rounds);
    if (result->winner == 0)
        printf("the default stays\n");
    else
        printf("%s takes %.3f of the default's time\n", result->of[result->winner].value,
               result->of[result->winner].ratio.middle);
    if (ranks > 0)
        print_sizes(setting, result, ranks);
    fflush(stdout);
}

/* ---- the main program ---- */

/* Remove the tuned settings' variables, so that the defaults are measured as defaults. */
static void clear_settings(const options_t *options)
{
    setenv("TUTTI_TUNED", "none", 1);
    tune_link_clear();
    if (options->gradients != NULL) {
        tune_search_clear();
        return;
    }
    for (size_t i = 0; tune_settings[i].name != NULL; i++)
        unsetenv(tune_settings[i].name);
}

/* On rank 0, before the measurements: find the path of the output, and test it and the older file
   there. Only the library's own path may need new folders. */
static int find_output(const bench_world_t *world, options_t *options)
{
    static char path[4096];
    int can = 1;

    if (world->rank == 0 && options->output == NULL && !options->dry_run) {
        can = tune_path(tutti_local_size(world->comm), path, sizeof(path));
        options->output = path;
        if (can)
            tune_make_folders(path);
        else
            fprintf(stderr, "tutti_tune: neither HOME nor XDG_CONFIG_HOME is set; use -o FILE\n");
    }
    if (world->rank == 0 && !options->dry_run)
        can = can && tune_can_write(options->output);
    if (world->rank == 0 && options->output != NULL)
        can = can && tune_can_keep(options->output);
    return (int)bench_same(world, (uint64_t)can);
}

static int can_tune(const bench_world_t *world)
{
    if (world->size == 1)
        fprintf(stderr, "tutti_tune: wants two ranks or more: mpirun -np 2 tutti_tune\n");
    return world->size > 1;
}

/* Write the file, on rank 0. */
static int end_output(const options_t *options, const tune_search_t *found, const char *command)
{
    char *text = tune_text(found, command);
    int ok = 1;

    if (options->dry_run) {
        printf("# nothing is written\n");
    } else {
        ok = tune_write(options->output, text) == 0;
        if (ok)
            printf("# written: %s\n", options->output);
    }
    free(text);
    return ok;
}

/* The settings of all programs, one after the other. */
static void tune_settings_all(bench_world_t *world, const tune_effort_t *effort,
                              tune_search_t *found)
{
    for (size_t i = 0; i < found->count; i++) {
        found->results[i] = tune_measure(world, &tune_settings[i], effort);
        if (found->print != NULL)
            found->print(&tune_settings[i], &found->results[i], found->verbose_ranks);
    }
}

/* Print which settings are not measured on this number of hosts. */
static void print_left_out(int hosts, int has_list)
{
    if (hosts == 1)
        printf("# One host: the link between hosts is not measured\n");
    else if (!has_list)
        printf("# %d hosts: only the link is measured; other settings need ranks on one host\n",
               hosts);
}

/* All measurements. Settings of the old file that are not measured are in use during them. */
static void measure_all(bench_world_t *world, const options_t *options, const tune_list_t *list,
                        tune_search_t *found)
{
    int hosts = tutti_host_count(world->comm), has_list = options->gradients != NULL;

    if (has_list)
        tune_search_names(world, found);
    else
        for (; hosts == 1 && tune_settings[found->count].name != NULL; found->count++)
            found->results[found->count].name = tune_settings[found->count].name;
    if (world->rank == 0) { /* all ranks use rank 0's settings */
        tune_keep(options->output, hosts > 1, found);
        print_left_out(hosts, has_list);
    }
    if (hosts > 1)
        tune_link(world, &options->effort, found);
    if (has_list)
        tune_search(world, list, &options->effort, found);
    else
        tune_settings_all(world, &options->effort, found);
}

/* The end of a search: all winners together, and those that are not in the file. */
static void print_found(const tune_search_t *found)
{
    static const tune_setting_t together = { .name = "all settings" };

    if (found->has_last)
        print_result(&together, &found->last, 0);
    for (size_t i = 0; i < found->count; i++) {
        const tune_result_t *result = &found->results[i];

        if (result->winner > 0 && !result->in_file)
            printf("# not in the file; set it for such jobs:\nexport %s=%s\n", result->name,
                   result->of[result->winner].value);
    }
}

static int tune_all(bench_world_t *world, options_t *options, const char *program)
{
    static tune_search_t found;
    tune_list_t list = { 0 };
    char command[4200];
    int ok = 1;

    if (!can_tune(world) || !find_output(world, options) ||
        (options->gradients != NULL && tune_list_read(world, options->gradients, &list) != 0))
        return 0;
    if (options->effort.seed == 0)
        options->effort.seed = bench_now_ns() | 1;
    options->effort.seed = bench_same(world, options->effort.seed);
    found.verbose_ranks = options->verbose ? world->size : 0;
    found.print = world->rank == 0 ? print_result : NULL;
    if (world->rank == 0)
        print_head(world, options);
    measure_all(world, options, &list, &found);
    snprintf(command, sizeof(command), "mpirun -np %d %s%s%s", world->size, program,
             options->gradients != NULL ? " --gradients " : "",
             options->gradients != NULL ? options->gradients : "");
    for (char *at = command; *at != '\0'; at++) /* it stands in a comment */
        *at = *at < ' ' && *at > 0 ? '?' : *at;
    if (world->rank == 0) {
        print_found(&found);
        ok = end_output(options, &found, command);
    }
    tune_list_free(&list);
    return (int)bench_same(world, (uint64_t)ok);
}

int main(int argc, char **argv)
{
    options_t options = parse(argc, argv);
    bench_options_t common = { .mpi_level = 1 };
    bench_world_t world;
    int ok;

    if (answer_only(&options, argv[0]))
        return options.error[0] != '\0' ? 2 : 0;
    clear_settings(&options);
    bench_world_open(&common, 0, &world);
    ok = tune_all(&world, &options, argv[0]);
    bench_world_close(&world);
    return !ok;
}
