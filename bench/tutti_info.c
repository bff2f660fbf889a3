/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Report about this installation of Tutti: version, build, modules, machine, limits, settings, and
 * the algorithm for each collective and size. Every bug report should contain it.
 *
 * It starts the library like any program, alone or under mpirun, so it reports the state that such
 * a program would find. Facts that the public interface lacks come from lib/api/info.h. Rank 0
 * prints. If the library does not start, the report has the reason and all other sections.
 */
#include "api/info.h"
#include "info/info.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_RANKS 65536
#define HOSTS_BYTES 65536

enum {
    OPT_HOSTS = 256,
    OPT_JSON,
    OPT_PROBE
};

static const char usage[] =
    "Usage: tutti_info [options]\n"
    "       mpirun -np N tutti_info [options]\n"
    "\n"
    "Prints version and build of Tutti, its modules and the libraries that they find, this\n"
    "machine and its limits, all settings with their sources, and the algorithm for each\n"
    "collective and size: under mpirun for the job's ranks, otherwise for one rank per core.\n"
    "\n"
    "  -n, --ranks N      algorithms for N ranks\n"
    "      --hosts H      on H hosts of nearly equal size; or ranks host by host: 4,4,2\n"
    "      --json         print the report as one JSON object\n"
    "  -h, --help         this\n"
    "  -v, --version      the library's version\n";

static const struct option long_options[] = {
    { "ranks", required_argument, NULL, 'n' },
    { "hosts", required_argument, NULL, OPT_HOSTS },
    { "json", no_argument, NULL, OPT_JSON },
    { "help", no_argument, NULL, 'h' },
    { "version", no_argument, NULL, 'v' },
    { "probe", required_argument, NULL, OPT_PROBE }, /* info_modules.c */
    { NULL, 0, NULL, 0 },
};

typedef struct {
    unsigned ranks;    /* 0: not given */
    const char *hosts; /* NULL: not given */
    int json;
} options_t;

/* Each rank sends this to rank 0. */
typedef struct {
    int32_t host, pid;
    char name[64], processors[128];
} place_t;

/* The job; nranks 0: the library does not start. */
typedef struct {
    int rank, nranks, nhosts, is_launched;
    place_t *places;
    char error[512];
} job_t;

/* ---- the command line ---- */

/* The launcher's rank of this process, for messages before the library has started; 0 if alone. */
static int launcher_rank(void)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID" };

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (getenv(names[i]) != NULL)
            return atoi(getenv(names[i]));
    return 0;
}

static void refuse(const char *what, const char *why)
{
    if (launcher_rank() == 0)
        fprintf(stderr, "tutti_info: %s: %s; see --help\n", what, why);
    exit(2);
}

/* A number from 1 to MOST_RANKS; 0: invalid. */
static unsigned read_number(const char *text)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);

    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && number <= MOST_RANKS
               ? (unsigned)number
               : 0;
}

static void take(int option, char **argv, options_t *options)
{
    switch (option) {
    case 'n':
        options->ranks = read_number(optarg);
        if (options->ranks == 0)
            refuse("--ranks", "wants a number from 1 to 65536");
        return;
    case OPT_HOSTS:
        options->hosts = optarg;
        return;
    case OPT_JSON:
        options->json = 1;
        return;
    case OPT_PROBE:
        info_probe(optarg);
    case 'h':
        if (launcher_rank() == 0)
            fputs(usage, stdout);
        exit(0);
    case 'v':
        if (launcher_rank() == 0)
            printf("%u.%u.%u\n", tutti_version() >> 16, tutti_version() >> 8 & 0xff,
                   tutti_version() & 0xff);
        exit(0);
    default:
        refuse(argv[optind - 1], option == ':' ? "wants a value" : "unknown option");
    }
}

/* "4,4": ranks host by host, from --ranks and --hosts; most: the default of --ranks. */
static void make_hosts(const options_t *options, unsigned most, char text[HOSTS_BYTES])
{
    unsigned ranks = options->ranks != 0 ? options->ranks : most, hosts = 1;
    size_t used = 0;

    if (options->hosts != NULL && strchr(options->hosts, ',') != NULL) {
        snprintf(text, HOSTS_BYTES, "%s", options->hosts);
        return;
    }
    if (options->hosts != NULL)
        hosts = read_number(options->hosts);
    if (options->ranks == 0)
        ranks *= hosts;
    for (unsigned host = 0; host < hosts && used < HOSTS_BYTES; host++)
        used += (size_t)snprintf(text + used, HOSTS_BYTES - used, "%s%u", host > 0 ? "," : "",
                                 ranks / hosts + (host < ranks % hosts));
}

/* Refuse invalid options before the library starts. */
static void judge(const options_t *options)
{
    unsigned long sum = 0;

    if (options->hosts == NULL)
        return;
    if (strchr(options->hosts, ',') == NULL) {
        unsigned hosts = read_number(options->hosts);

        if (hosts == 0 || hosts > 8192 || (options->ranks != 0 && hosts > options->ranks))
            refuse("--hosts", "wants the number of hosts, not more than ranks, or a list like 4,4");
        return;
    }
    for (const char *at = options->hosts; at != NULL; at = strchr(at, ',')) {
        char number[16];

        at += *at == ',';
        snprintf(number, sizeof(number), "%.*s", (int)strcspn(at, ","), at);
        if (read_number(number) == 0)
            refuse("--hosts", "wants ranks host by host, such as 4,4,2");
        sum += read_number(number);
    }
    if (strlen(options->hosts) >= HOSTS_BYTES || sum > MOST_RANKS)
        refuse("--hosts", "too many ranks");
    if (options->ranks != 0 && sum != options->ranks)
        refuse("--hosts", "does not make --ranks");
}

/* ---- the job ---- */

static void take_processors(void *arg, const tutti__info_item_t *item)
{
    place_t *place = arg;

    if (strcmp(item->name, "processors") == 0)
        snprintf(place->processors, sizeof(place->processors), "%s", item->value);
}

static tutti_status_t meet(job_t *job, place_t *mine)
{
    tutti_status_t status = tutti_init(NULL);

    if (status != TUTTI_OK)
        return status;
    job->rank = tutti_rank(tutti_world());
    job->nranks = tutti_size(tutti_world());
    job->nhosts = tutti_host_count(tutti_world());
    mine->host = tutti_host_rank(tutti_world());
    job->places = calloc((size_t)job->nranks, sizeof(*job->places));
    if (job->places == NULL) {
        snprintf(job->error, sizeof(job->error), "out of memory");
        return TUTTI_ERR_NO_MEMORY;
    }
    return tutti_allgather(mine, job->places, sizeof(*mine), TUTTI_UINT8, tutti_world());
}

static void start(job_t *job)
{
    place_t mine;

    memset(&mine, 0, sizeof(mine));
    mine.pid = (int32_t)getpid();
    gethostname(mine.name, sizeof(mine.name) - 1);
    tutti__info(TUTTI__INFO_PLACE, NULL, take_processors, &mine);
    job->rank = launcher_rank();
    if (meet(job, &mine) == TUTTI_OK)
        return;
    if (job->error[0] == '\0')
        snprintf(job->error, sizeof(job->error), "%s", tutti_last_error());
    job->nranks = 0;
}

/* ---- sections ---- */

static void put_item(void *arg, const tutti__info_item_t *item)
{
    info_put(arg, INFO_BOTH, item->name, "%s", item->value);
}

static void put_version(info_t *info)
{
    char title[32];

    snprintf(title, sizeof(title), "Tutti %u.%u.%u", tutti_version() >> 16,
             tutti_version() >> 8 & 0xff, tutti_version() & 0xff);
    info_object(info, "build", title);
    info_put(info, INFO_JSON, "version", "%s", title + strlen("Tutti "));
    tutti__info(TUTTI__INFO_BUILD, NULL, put_item, info);
}

/* The ranks of a host, such as "0-3,8", and their processors, where they differ. This reads all of
   job->places, which is not sorted by hosts. */
static void describe_host(const job_t *job, int host, char *ranks, size_t ranks_room,
                          char *processors, size_t processors_room)
{
    const char *last = NULL;
    size_t used = 0, used_processors = 0;

    ranks[0] = processors[0] = '\0';
    for (int rank = 0; rank < job->nranks; rank++) {
        int first = rank;

        if (job->places[rank].host != host)
            continue;
        while (rank + 1 < job->nranks && job->places[rank + 1].host == host)
            rank++;
        if (used < ranks_room)
            used += (size_t)snprintf(ranks + used, ranks_room - used,
                                     first == rank ? "%s%d" : "%s%d-%d", used > 0 ? "," : "", first,
                                     rank);
        for (int i = first; i <= rank && used_processors < processors_room; i++) {
            if (last != NULL && strcmp(job->places[i].processors, last) == 0)
                continue;
            last = job->places[i].processors;
            used_processors +=
                (size_t)snprintf(processors + used_processors, processors_room - used_processors,
                                 "%s%s", used_processors > 0 ? "; " : "", last);
        }
    }
}

static void put_job(info_t *info, const job_t *job)
{
    char ranks[1024], processors[2048];

    info_object(info, "job", NULL);
    info_put(info, INFO_BOTH, "tutti_init", "%s", job->nranks > 0 ? "works" : job->error);
    if (job->nranks == 0)
        return;
    info_number(info, INFO_BOTH, "ranks", (uint64_t)job->nranks);
    info_number(info, INFO_BOTH, "hosts", (uint64_t)job->nhosts);
    info_list(info, "hosts", "hosts: name, ranks, processors of each rank (where they differ)");
    for (int host = 0; host < job->nhosts; host++) {
        int first = 0;

        while (job->places[first].host != host)
            first++;
        describe_host(job, host, ranks, sizeof(ranks), processors, sizeof(processors));
        info_record(info);
        info_put(info, INFO_BOTH, "name", "%s", job->places[first].name);
        info_put(info, INFO_JSON, "ranks", "%s", ranks);
        info_put(info, INFO_JSON, "processors", "%s", processors);
        info_put(info, INFO_TEXT, "", "ranks %s", ranks);
        info_put(info, INFO_TEXT, "", "processors %s", processors);
    }
}

static void put_setting(void *arg, const tutti__info_item_t *item)
{
    const char *wrong = item->note[0] != '\0' ? ", makes no sense; allowed: " : "";

    if (strcmp(item->from, "unknown") == 0 || strcmp(item->from, "tuned") == 0)
        return;
    info_record(arg);
    info_put(arg, INFO_BOTH, "name", "%s", item->name);
    info_put(arg, INFO_JSON, "value", "%s", item->value);
    info_put(arg, INFO_JSON, "from", "%s", item->from);
    info_put(arg, INFO_JSON, "allowed", "%s", item->note);
    info_put(arg, INFO_TEXT, "", "%s", item->value[0] != '\0' ? item->value : "not set");
    info_put(arg, INFO_TEXT, "", "%s%s%s", item->from, wrong, item->note);
}

static void put_unknown(void *arg, const tutti__info_item_t *item)
{
    if (strcmp(item->from, "unknown") != 0)
        return;
    info_record(arg);
    info_put(arg, INFO_BOTH, "name", "%s", item->name);
    info_put(arg, INFO_JSON, "meant", "%s", item->note);
    info_put(arg, INFO_TEXT, "", "%s%s%s", "is no setting",
             item->note[0] != '\0' ? "; did you mean " : "", item->note);
}

static void put_tuned(void *arg, const tutti__info_item_t *item)
{
    if (strcmp(item->from, "tuned") != 0 || item->value[0] == '\0')
        return;
    info_put(arg, INFO_BOTH, item->name, "%s", item->value);
    if (strcmp(item->name, "place") == 0)
        info_put(arg, INFO_BOTH, "is_there", "%s",
                 access(item->value, R_OK) == 0 ? "yes" : strerror(errno));
}

static void put_settings(info_t *info, const char *local_ranks)
{
    info_list(info, "settings", "settings: name, value, origin");
    tutti__info(TUTTI__INFO_SETTINGS, local_ranks, put_setting, info);
    info_list(info, "unknown_settings", "TUTTI_* variables that are no settings");
    tutti__info(TUTTI__INFO_SETTINGS, local_ranks, put_unknown, info);
    info_object(info, "tuned_file", "tuned file");
    tutti__info(TUTTI__INFO_SETTINGS, local_ranks, put_tuned, info);
}

static void put_algorithm(void *arg, const tutti__info_item_t *item)
{
    char from[24], to[24];

    info_bytes(item->from_bytes - (item->from_bytes > 0), from);
    info_bytes(item->to_bytes, to);
    info_record(arg);
    info_put(arg, INFO_BOTH, "collective", "%s", item->name);
    info_number(arg, INFO_JSON, "from_bytes", item->from_bytes);
    if (item->to_bytes != SIZE_MAX)
        info_number(arg, INFO_JSON, "to_bytes", item->to_bytes);
    if (item->from_bytes == 0 && item->to_bytes == SIZE_MAX)
        info_put(arg, INFO_TEXT, "", "any size");
    else if (item->to_bytes == 0)
        info_put(arg, INFO_TEXT, "", "unknown");
    else if (item->to_bytes == SIZE_MAX)
        info_put(arg, INFO_TEXT, "", "above %s", from);
    else
        info_put(arg, INFO_TEXT, "", "to %s", to);
    info_put(arg, INFO_BOTH, "algorithm", "%s", item->value[0] != '\0' ? item->value : "none");
    info_put(arg, INFO_BOTH, "why", "%s", item->note);
}

static void put_algorithms(info_t *info, const char *hosts)
{
    char title[256];

    snprintf(title, sizeof(title),
             "algorithms, ranks host by host: %.100s; sizes are bytes of the whole buffer%s", hosts,
             strchr(hosts, ',') != NULL ? "; small direct calls ride in the comparison of calls"
                                        : "");
    info_list(info, "algorithms", title);
    if (tutti__info(TUTTI__INFO_ALGORITHMS, hosts, put_algorithm, info) == TUTTI_OK)
        return;
    info_record(info);
    info_put(info, INFO_BOTH, "error", "%s", tutti_last_error());
}

/* The job's ranks host by host. */
static void job_hosts(const job_t *job, char text[HOSTS_BYTES])
{
    size_t used = 0;

    for (int host = 0; host < job->nhosts && used < HOSTS_BYTES; host++) {
        int n = 0;

        for (int rank = 0; rank < job->nranks; rank++)
            n += job->places[rank].host == host;
        used += (size_t)snprintf(text + used, HOSTS_BYTES - used, "%s%d", host > 0 ? "," : "", n);
    }
}

static int report(const options_t *options, const job_t *job)
{
    static char hosts[HOSTS_BYTES];
    info_t *info = info_new();
    char local[16];
    place_t mine = { 0 };
    unsigned cores;
    int failed;

    put_version(info);
    info_modules(info);
    put_job(info, job);
    tutti__info(TUTTI__INFO_PLACE, NULL, take_processors, &mine);
    cores = info_machine(info, mine.processors);
    info_limits(info);
    info_kernel(info);
    if (options->ranks == 0 && options->hosts == NULL && job->nranks > 1)
        job_hosts(job, hosts);
    else
        make_hosts(options, cores, hosts);
    snprintf(local, sizeof(local), "%d", atoi(hosts));
    put_settings(info, local);
    put_algorithms(info, hosts);
    failed = options->json ? info_print_json(info, stdout) : info_print_text(info, stdout);
    if (failed)
        fprintf(stderr, "tutti_info: standard output cannot be written\n");
    info_free(info);
    return failed;
}

int main(int argc, char **argv)
{
    options_t options = { 0, NULL, 0 };
    job_t job = { .rank = 0 };
    int option, failed = 0;

    opterr = 0;
    while ((option = getopt_long(argc, argv, "+:n:hv", long_options, NULL)) != -1)
        take(option, argv, &options);
    if (optind < argc)
        refuse(argv[optind], "unexpected argument");
    judge(&options);
    if (tutti_version() != TUTTI_API_VERSION) {
        fprintf(stderr, "tutti_info: this program is of version %x, but the library of %x\n",
                (unsigned)TUTTI_API_VERSION, tutti_version());
        return 1;
    }
    start(&job);
    if (job.rank == 0)
        failed = report(&options, &job);
    tutti_finalize();
    free(job.places);
    /* A launcher ends all ranks when one fails, so only rank 0 may fail: it has printed. */
    return job.rank == 0 && (failed || job.nranks == 0) ? 1 : 0;
}
