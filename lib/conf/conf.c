/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of all TUTTI_* variables, and the function that reads them from the environment.
 *
 * Called by tutti_init, tutti_comm_connect and tutti_unique_id_create, on their thread. An invalid
 * value is an error: a job that does not start is better than a job that runs for days without the
 * setting. An unknown name is only a warning: the name may belong to another version of Tutti. An
 * invalid tuned file is a warning as well: the job works without the file, but is slower.
 */
#include "conf/conf.h"

#include "base/compiler.h"
#include "base/log.h"
#include "base/status.h"
#include "conf/conf_inside.h"
#include "conf/parse.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum {
    CONF_BYTES,   /* uint64_t, rounded up to a multiple of 64; `choices`: the word for AUTO */
    CONF_COUNT,   /* uint64_t */
    CONF_SECONDS, /* uint64_t milliseconds */
    CONF_NUMBER,  /* int64_t; -1 if not given */
    CONF_CHOICE,  /* uint64_t or int64_t: index into `choices` */
    CONF_WORD,    /* char[]: one of `choices`, in the spelling of the table */
    CONF_TEXT,    /* char[] */
    CONF_SECRET   /* char[] that is never printed */
} type_t;

typedef struct {
    const char *name;
    type_t type;
    size_t offset;
    const char *value; /* the default, as in the environment */
    const char *help;
    uint64_t least, most; /* limits, in the stored unit; for a text, `most` is the field's size */
    const char *choices;
} row_t;

#define AT(field) offsetof(tutti__conf_t, field)
#define SIZE(field) sizeof(((tutti__conf_t *)0)->field)
#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define LONGEST_MS (1000000 * (uint64_t)1000) /* 11 days; fits in an int, for poll() */
#define MOST_RANKS ((uint64_t)1 << 24)

/* Each row has name, type, field, default; help; limits, choices. */
/* clang-format off */
static const row_t rows[] = {
    { "TUTTI_FUSION_BYTES", CONF_BYTES, AT(shared.fusion_bytes), "auto",
      "Largest fused buffer of asynchronous calls; auto: 1M on one host, 64M between hosts, 16M\n"
      "    in device memory, where each communicator allocates four of them.\n"
      "    0: no fusion, each tensor is a collective of its own.",
      0, 16 * GIB, "auto" },
    { "TUTTI_PLANS", CONF_CHOICE, AT(shared.plans), "1",
      "1: asynchronous calls with the same names in each step become a plan, and are not\n"
      "    agreed on any more. 0: they are agreed on in each step.",
      0, 0, "0|1" },
    { "TUTTI_CHUNK_BYTES", CONF_BYTES, AT(shared.chunk_bytes), "auto",
      "Size of the pieces into which a message between two ranks is cut; auto: 64K\n"
      "    on one host, otherwise the bytes that the link carries during a round trip, rounded\n"
      "    up to a power of two, from 64K to 1M. With up to 64 ranks and several hosts, pieces\n"
      "    are twice as long over MPI and four times as long over UCX, up to 1M.",
      KIB, 64 * MIB, "auto" },
    { "TUTTI_CREDITS", CONF_COUNT, AT(shared.credits), "4",
      "Pieces that a sender may send before the receiver has taken the first.",
      1, 64, NULL },
    { "TUTTI_ONESHOT_BYTES", CONF_BYTES, AT(shared.oneshot_bytes), "32K",
      "Inside a host: up to this size (bytes of a call times ranks), each rank reads the data of\n"
      "    all ranks in one step.",
      0, MIB, NULL },
    { "TUTTI_NODE_CHUNK_BYTES", CONF_BYTES, AT(shared.node_chunk_bytes), "256K",
      "Inside a host: size of the pieces in which a large call is pipelined.",
      4 * KIB, GIB, NULL },
    { "TUTTI_L3_BYTES", CONF_BYTES, AT(shared.l3_bytes), "auto",
      "Size of an L3 cache; auto: as the system reports it. If the results of the ranks under a\n"
      "    cache exceed its size, results in memory of tutti_mem_alloc are prefetched, or bypass\n"
      "    the cache.",
      1, 16 * GIB, "auto" },
    { "TUTTI_HUGE_PAGES", CONF_CHOICE, AT(shared.huge_pages), "auto",
      "Huge pages for shared memory of 2 MiB and more; auto: as the system allows in\n"
      "    /sys/kernel/mm/transparent_hugepage/shmem_enabled; 1: also if this file has `never`,\n"
      "    which is the system's default; 0: no huge pages.",
      0, 0, "auto|0|1" },
    { "TUTTI_TIMEOUT", CONF_SECONDS, AT(shared.timeout_ms), "600",
      "Deadline of every wait for a peer. Decimals are allowed.",
      1, LONGEST_MS, NULL },
    { "TUTTI_STALL_WARNING", CONF_SECONDS, AT(shared.stall_ms), "60",
      "Warn if a tensor, a direct call or tutti_init has waited this long, and again after each\n"
      "    further interval. 0: no warning.",
      0, LONGEST_MS, NULL },
    { "TUTTI_DUMP", CONF_TEXT, AT(shared.dump), "",
      "Write the flight recorder to this file, with .RANK behind the name, when a communicator\n"
      "    fails and when a stall is reported. tutti_report explains the files of all ranks.",
      0, SIZE(shared.dump), NULL },
    { "TUTTI_TRACE", CONF_TEXT, AT(shared.trace), "",
      "Write a trace of all ranks to this file, from tutti_init to tutti_finalize, for Perfetto\n"
      "    (ui.perfetto.dev) and chrome://tracing.",
      0, SIZE(shared.trace), NULL },
    { "TUTTI_DETERMINISTIC", CONF_CHOICE, AT(shared.strict), "default",
      "default: a repeated run gives the same bits; strict: the bits of an element also do not\n"
      "    depend on the call's size and on fusion.",
      0, 0, "default|strict" },
    { "TUTTI_ALGORITHM", CONF_TEXT, AT(shared.algorithm), "",
      "Force algorithms: COLLECTIVE:[BYTES-BYTES:]NAME[(RADIX)][/SUB], separated by commas.\n"
      "    0-4k is up to 4095 bytes. @FILE instead of NAME: schedules of your own, each for one\n"
      "    number of ranks and one root; rank 0 reads the file, and the checker proves them.\n"
      "    `tutti_sched list` prints the names of each collective.",
      0, SIZE(shared.algorithm), NULL },
    { "TUTTI_LINK_MBPS", CONF_COUNT, AT(shared.link_mbps), "0",
      "Speed of a host's link to others, in Mbit/s, for the choice of algorithms. 0: that of the\n"
      "    slowest host's network card, as the system reports it, or 10000 if it reports none.",
      0, 1000000000, NULL },
    { "TUTTI_LINK_NS", CONF_COUNT, AT(shared.link_ns), "0",
      "Time of a small message from one host to another, in nanoseconds, for the choice of\n"
      "    algorithms. 0: 2000 if all hosts have cards for RDMA, otherwise 10000.",
      0, 1000000000, NULL },
    { "TUTTI_WIRE", CONF_CHOICE, AT(shared.wire), "float32",
      "Type in which sums and averages of float32 in host memory go from one host to another. A\n"
      "    narrower type than float32 takes less time, and rounds the result.",
      0, 0, "float32|bfloat16|float16|float8_e4m3" },
    { "TUTTI_CHECK", CONF_CHOICE, AT(shared.check), "0",
      "1: run the checker on each schedule when it is built.",
      0, 0, "0|1" },
    { "TUTTI_COMPARE", CONF_CHOICE, AT(shared.compare), "1",
      "1: between hosts, and for messages between two ranks, compare the arguments of direct\n"
      "    calls before data moves. 0: compare only lengths; a mismatch ends the communicator.\n"
      "    Collectives inside a host are always compared.",
      0, 0, "0|1" },
    { "TUTTI_GROUP_SIZE", CONF_COUNT, AT(shared.group_size), "0",
      "Ranks of a core group: inside a host, reductions start inside core groups. 0: a group is\n"
      "    the ranks under one L3 cache or NUMA node, at most 16; for algorithms of three levels\n"
      "    it is the whole host.",
      0, MOST_RANKS, NULL },
    { "TUTTI_STAGE_BYTES", CONF_BYTES, AT(shared.stage_bytes), "32M",
      "Device memory: size of a pinned host buffer for data to and from other hosts; each\n"
      "    communicator allocates five of them.",
      64 * KIB, 16 * GIB, NULL },
    { "TUTTI_DEVICE_CHUNK_BYTES", CONF_BYTES, AT(shared.device_chunk_bytes), "1M",
      "Device memory: size of the pieces in which a large call is pipelined between hosts.",
      4 * KIB, GIB, NULL },
    { "TUTTI_DEVICE_STAGED_BYTES", CONF_BYTES, AT(shared.device_staged_bytes), "auto",
      "Device memory: on several hosts, allreduces of up to this many bytes run in host memory;\n"
      "    larger ones use NCCL inside the hosts. auto: a cost model decides; 0: none.",
      0, 16 * GIB, "auto" },
    { "TUTTI_GPU_DIRECT", CONF_CHOICE, AT(shared.gpu_direct), "1",
      "1: between hosts, MPI or UCX sends and receives sums in device memory, if it can do so on\n"
      "    all ranks; each communicator allocates up to ten times TUTTI_STAGE_BYTES of device\n"
      "    memory. 0: sums go through pinned host memory. If a job hangs, try 0.",
      0, 0, "0|1" },
    { "TUTTI_STREAM_WAIT", CONF_CHOICE, AT(shared.stream_wait), "host",
      "Device memory: how tutti_cuda_wait orders a stream behind work of the host. host: the call\n"
      "    returns when the work is done; device: the call returns earlier, and the stream waits\n"
      "    on the device. The latter has hardly been tried on a GPU: CUDA does not know which\n"
      "    work ends such a wait, so a call that synchronises the device (cudaFree, loading a\n"
      "    kernel) may hang until TUTTI_TIMEOUT.",
      0, 0, "host|device" },
    { "TUTTI_TRANSPORT", CONF_WORD, AT(shared.transport), "auto",
      "Transport between ranks of different hosts. mpi: the MPI that started the job; ucx: UCX,\n"
      "    which needs no MPI; shm: shared memory, only if all hosts are on one machine. auto: on\n"
      "    several machines the faster one of UCX and MPI, or UCX if the ranks met without MPI;\n"
      "    on one machine MPI, or shm if the ranks met without MPI.",
      0, SIZE(shared.transport), "auto|ucx|mpi|shm" },
    { "TUTTI_LOG", CONF_CHOICE, AT(log_level), "warn",
      "Highest level of the lines that are printed on stderr.",
      0, 0, "none|error|warn|info|debug|trace|data" },
    { "TUTTI_STATS", CONF_CHOICE, AT(stats), "0",
      "Statistics: 1: measure times, and print a table on rank 0 when a communicator ends; quiet:\n"
      "    measure times, for tutti_comm_get_stats. Counters are always on.",
      0, 0, "0|1|quiet" },
    { "TUTTI_STATS_FILE", CONF_TEXT, AT(stats_file), "",
      "File for statistics in the text format of Prometheus, written every 5 s and at the end. %r\n"
      "    is the rank; without it, only rank 0 writes. Measures times.",
      0, SIZE(stats_file), NULL },
    { "TUTTI_STATS_PORT", CONF_NUMBER, AT(stats_port), "",
      "Serve the same text to Prometheus: http://127.0.0.1:PORT/metrics, where each rank adds its\n"
      "    local rank to the port. Measures times.",
      1, 65535, NULL },
    { "TUTTI_TEST_ISA", CONF_WORD, AT(isa), "auto",
      "Instruction set of the reductions; all give the same bits. For tests: auto is the fastest.",
      0, SIZE(isa), "auto|scalar|sse2|neon|avx2|avx512" },
    { "TUTTI_HOST_ID", CONF_TEXT, AT(host_id), "",
      "Name of this rank's host: ranks with equal names form a host. Not set: the ranks of a\n"
      "    machine form a host. To try several hosts on one machine.",
      0, SIZE(host_id), NULL },
    { "TUTTI_MODULE_DIR", CONF_TEXT, AT(module_dir), "",
      "Folder of the modules (mpi_openmpi.so, ...). Not set: the folder tutti/ next to\n"
      "    libtutti.so, or in the configured libdir if the program is linked with libtutti.a.",
      0, SIZE(module_dir), NULL },
    { "TUTTI_BOOT", CONF_TEXT, AT(boot), "",
      "How ranks find each other: self (no other ranks), mpi, env (MASTER_ADDR and so on, or a\n"
      "    launcher's variables, without MPI), pmix or pmi2 (the launcher's process manager,\n"
      "    without MPI), or local:NAME. Not set: MPI and the launcher's variables decide.",
      0, SIZE(boot), NULL },
    { "TUTTI_RANK", CONF_NUMBER, AT(rank), "",
      "Rank of this process, from 0, for TUTTI_BOOT=local:NAME.",
      0, MOST_RANKS - 1, NULL },
    { "TUTTI_SIZE", CONF_NUMBER, AT(size), "",
      "Number of ranks, for TUTTI_BOOT=local:NAME.",
      1, MOST_RANKS, NULL },
    { "TUTTI_PORT", CONF_NUMBER, AT(port), "",
      "TCP port at which rank 0 listens if the ranks meet without MPI. Not set: MASTER_PORT, or\n"
      "    the first free one of the 16 ports above it if torchrun's agent uses MASTER_PORT.",
      1, 65535, NULL },
    { "TUTTI_JOB_SECRET", CONF_SECRET, AT(job_secret), "",
      "Secret of the job, equal on all ranks: a process that does not prove it cannot join. For\n"
      "    ranks that meet without MPI. Needs libcrypto.",
      0, SIZE(job_secret), NULL },
    { "TUTTI_JOB_SECRET_FILE", CONF_TEXT, AT(job_secret_file), "",
      "File with the job's secret, instead of TUTTI_JOB_SECRET.",
      0, SIZE(job_secret_file), NULL },
    { "TUTTI_INTERFACE", CONF_TEXT, AT(interface), "",
      "Network interface between hosts, such as eth0. Not set: all interfaces that are up.",
      0, SIZE(interface), NULL },
    { "TUTTI_TUNED", CONF_TEXT, AT(tuned), "",
      "File with settings that tutti_tune has measured; none: no file. Not set: the file for\n"
      "    this machine and number of local ranks in ~/.config/tutti/tuned. A setting of the file\n"
      "    replaces the default; a variable replaces the setting of the file.",
      0, SIZE(tuned), NULL },
    { "TUTTI_DEVICE", CONF_TEXT, AT(device), "auto",
      "Device whose memory calls accept, besides host memory: auto: CUDA, if the program has\n"
      "    loaded it before tutti_init; none; or the name of a module: cuda.",
      0, SIZE(device), NULL },
    { "TUTTI_DEVICE_ID", CONF_NUMBER, AT(device_id), "",
      "Number of this rank's device. Not set: the current device of the thread that calls\n"
      "    tutti_init, or a device chosen by local rank.",
      0, 1023, NULL },
};
/* clang-format on */

#define ROWS (sizeof(rows) / sizeof(*rows))

/* Prefixes of names, and known names that are not in the table. */
static const char prefix[] = "TUTTI_";
static const char help_name[] = "TUTTI_HELP";
static const char python_name[] = "TUTTI_LIBRARY"; /* read by the Python package */
static const char old_transport[] = "TUTTI_XPORT"; /* the name of TUTTI_TRANSPORT until 0.1 */
static const char new_transport[] = "TUTTI_TRANSPORT";
static const char test_prefix[] = "TUTTI_TEST_"; /* for the tests' variables */
static const char local_prefix[] = "local:";     /* in TUTTI_BOOT's value; see boot/meet.c */

static int parse_number(const row_t *row, const char *text, uint64_t *ret_value)
{
    uint64_t value;
    int ok;

    if (row->choices != NULL && strcmp(text, row->choices) == 0) {
        *ret_value = TUTTI__CONF_AUTO;
        return 1;
    }
    if (row->type == CONF_BYTES)
        ok = tutti__parse_bytes(text, &value);
    else if (row->type == CONF_SECONDS)
        ok = tutti__parse_seconds(text, &value);
    else
        ok = tutti__parse_count(text, &value);
    if (!ok || value < row->least || value > row->most)
        return 0;
    *ret_value = row->type == CONF_BYTES ? TUTTI__ROUND_UP(value, (uint64_t)64) : value;
    return 1;
}

/* Copy the text into a field, and zero the other bytes: ranks send each other the whole field. */
static int put_text(const row_t *row, const char *text, size_t length, void *field)
{
    if (length >= row->most)
        return 0;
    memset(field, 0, row->most);
    memcpy(field, text, length);
    return 1;
}

/* Store a word in the spelling of the table. */
static int put_word(const row_t *row, const char *text, void *field)
{
    const char *word = row->choices;
    uint64_t index;

    if (!tutti__parse_choice(text, row->choices, &index))
        return 0;
    while (index-- > 0)
        word = strchr(word, '|') + 1;
    return put_text(row, word, strcspn(word, "|"), field);
}

/* Set one field from text. Returns 0 if the text is invalid. */
static int put(tutti__conf_t *conf, const row_t *row, const char *text)
{
    void *field = (char *)conf + row->offset;
    uint64_t value;

    switch (row->type) {
    case CONF_TEXT:
    case CONF_SECRET:
        return put_text(row, text, strlen(text), field);
    case CONF_WORD:
        return put_word(row, text, field);
    case CONF_CHOICE:
        if (!tutti__parse_choice(text, row->choices, &value))
            return 0;
        break;
    default:
        if (!parse_number(row, text, &value))
            return 0;
        break;
    }
    memcpy(field, &value, sizeof(value)); /* a uint64_t, or an int64_t with these bits */
    return 1;
}

void tutti__conf_defaults(tutti__conf_t *ret_conf)
{
    memset(ret_conf, 0, sizeof(*ret_conf));
    ret_conf->rank = -1;
    ret_conf->size = -1;
    ret_conf->port = -1;
    ret_conf->device_id = -1;
    ret_conf->stats_port = -1;
    for (size_t i = 0; i < ROWS; i++) {
        int ok = rows[i].value[0] == '\0' || put(ret_conf, &rows[i], rows[i].value);

        assert(ok && "a default that is not allowed");
        (void)ok;
    }
}

const char *tutti__conf_text(const char *name)
{
    const char *text = secure_getenv(name);

    return text != NULL && text[0] != '\0' ? text : NULL;
}

const char *tutti__conf_row_text(size_t i)
{
    const char *text = tutti__conf_text(rows[i].name);

    return text == NULL && strcmp(rows[i].name, new_transport) == 0
               ? tutti__conf_text(old_transport)
               : text;
}

int tutti__conf_nccl_shares_gpus(void)
{
    const char *text = tutti__conf_text("NCCL_MULTI_RANK_GPU_ENABLE");

    return text != NULL && strcmp(text, "0") != 0;
}

const char *tutti__conf_nccl_host(void)
{
    return secure_getenv("NCCL_HOSTID");
}

/* Write the allowed values of a setting, such as "bytes, 1K to 64M". */
static void describe(const row_t *row, char *text, size_t capacity)
{
    static const char units[] = { 'K', 'M', 'G' };
    uint64_t least = row->least, most = row->most;
    char least_unit[2] = "", most_unit[2] = "";

    switch (row->type) {
    case CONF_BYTES:
        for (size_t u = 0; u < 3 && least > 0 && least % 1024 == 0; u++, least /= 1024)
            least_unit[0] = units[u];
        for (size_t u = 0; u < 3 && most > 0 && most % 1024 == 0; u++, most /= 1024)
            most_unit[0] = units[u];
        snprintf(text, capacity, "bytes, %" PRIu64 "%s to %" PRIu64 "%s%s%s", least, least_unit,
                 most, most_unit, row->choices != NULL ? "; " : "",
                 row->choices != NULL ? row->choices : "");
        break;
    case CONF_SECONDS:
        snprintf(text, capacity, "seconds, %s to %" PRIu64, least == 0 ? "0" : "0.001",
                 most / 1000);
        break;
    case CONF_COUNT:
    case CONF_NUMBER:
        snprintf(text, capacity, "a number, %" PRIu64 " to %" PRIu64, least, most);
        break;
    case CONF_CHOICE:
    case CONF_WORD:
        snprintf(text, capacity, "%s", row->choices);
        break;
    case CONF_TEXT:
    case CONF_SECRET:
        snprintf(text, capacity, "text, up to %" PRIu64 " bytes", most - 1);
        break;
    }
}

/* Find a setting that a tuned file may contain: a CONF_BYTES setting, or TUTTI_LINK_MBPS or _NS.
   These settings change the speed of a call, not its meaning. */
static const row_t *find_tunable(const char *name)
{
    static const char link_prefix[] = "TUTTI_LINK_";

    for (size_t i = 0; i < ROWS; i++)
        if ((rows[i].type == CONF_BYTES || strncmp(name, link_prefix, strlen(link_prefix)) == 0) &&
            strcmp(name, rows[i].name) == 0)
            return &rows[i];
    return NULL;
}

int tutti__conf_is_tunable(const char *name)
{
    return find_tunable(name) != NULL;
}

int tutti__conf_put(tutti__conf_t *conf, const char *name, const char *text, char *ret_allowed,
                    size_t capacity)
{
    const row_t *row = find_tunable(name);

    if (put(conf, row, text))
        return 1;
    describe(row, ret_allowed, capacity);
    return 0;
}

int tutti__conf_row(size_t i, tutti__conf_row_t *ret_row)
{
    if (i >= ROWS)
        return 0;
    ret_row->name = rows[i].name;
    ret_row->standard = rows[i].value;
    ret_row->is_secret = rows[i].type == CONF_SECRET;
    describe(&rows[i], ret_row->allowed, sizeof(ret_row->allowed));
    return 1;
}

int tutti__conf_row_put(tutti__conf_t *conf, size_t i, const char *text)
{
    return put(conf, &rows[i], text);
}

static void print_help(void)
{
    static const char head[] =
        "Tutti is set up by these environment variables. For the variables above TUTTI_LOG, rank\n"
        "0's values apply to all ranks. In brackets: allowed values; default. The program "
        "continues\n"
        "after this list.\n\n";
    char help[ROWS * 320 + sizeof(head)], allowed[128];
    size_t used = (size_t)snprintf(help, sizeof(help), "%s", head);

    for (size_t i = 0; i < ROWS; i++) {
        const row_t *row = &rows[i];

        describe(row, allowed, sizeof(allowed));
        used +=
            (size_t)snprintf(help + used, sizeof(help) - used, "%s [%s; %s]\n    %s\n", row->name,
                             allowed, row->value[0] == '\0' ? "not set" : row->value, row->help);
        assert(used < sizeof(help));
    }
    tutti__log_text(help);
}

static int is_known(const char *name)
{
    for (size_t i = 0; i < ROWS; i++)
        if (strcmp(name, rows[i].name) == 0)
            return 1;
    return strcmp(name, help_name) == 0 || strcmp(name, python_name) == 0 ||
           strncmp(name, test_prefix, strlen(test_prefix)) == 0;
}

/* Find a setting whose name begins with the words of `name` (for TUTTI_FUSION: TUTTI_FUSION_BYTES),
   or whose name is the beginning of `name` (for TUTTI_LOGLEVEL: TUTTI_LOG). If several settings
   fit, return the setting with the longest common beginning. If none fits, return NULL. */
static const char *begins_alike(const char *name)
{
    size_t length = strlen(name), most = 0;
    const char *found = NULL;

    for (size_t i = 0; i < ROWS; i++) {
        size_t own = strlen(rows[i].name), common = TUTTI__MIN(own, length);

        if (common <= most || strncmp(name, rows[i].name, common) != 0 ||
            (own > common && rows[i].name[common] != '_'))
            continue;
        most = common;
        found = rows[i].name;
    }
    return found;
}

/* Find the most similar known name. At most two letters may differ, and less than a third of the
   letters after TUTTI_. If no name is so similar, return the result of begins_alike. */
static const char *nearest(const char *name)
{
    size_t best = tutti__parse_distance(name, help_name);
    const char *found = help_name;

    if (strcmp(name, old_transport) == 0)
        return new_transport;
    for (size_t i = 0; i < ROWS; i++) {
        size_t distance = tutti__parse_distance(name, rows[i].name);

        if (distance < best) {
            best = distance;
            found = rows[i].name;
        }
    }
    return best <= 2 && 3 * best < strlen(name) - strlen(prefix) ? found : begins_alike(name);
}

int tutti__conf_next_unknown(char ***at, char ret_name[64], const char **ret_guess)
{
    for (char **entry = *at == NULL ? environ : *at + 1; entry != NULL && *entry != NULL; entry++) {
        if (strncmp(*entry, prefix, strlen(prefix)) != 0)
            continue;
        snprintf(ret_name, 64, "%.*s", (int)strcspn(*entry, "="), *entry);
        if (is_known(ret_name))
            continue;
        *ret_guess = nearest(ret_name);
        *at = entry;
        return 1;
    }
    return 0;
}

static void warn_unknown(void)
{
    char **at = NULL;
    const char *guess;
    char name[64];

    while (tutti__conf_next_unknown(&at, name, &guess)) {
        if (strcmp(name, old_transport) == 0)
            TUTTI__LOG(TUTTI__LOG_WARN,
                       "%s is the old name of %s; the next version will not know it", name, guess);
        else if (guess != NULL)
            TUTTI__LOG(TUTTI__LOG_WARN, "%s is no setting; did you mean %s?", name, guess);
        else
            TUTTI__LOG(TUTTI__LOG_WARN, "%s is no setting; TUTTI_HELP=1 lists them", name);
    }
}

int tutti__conf_is_local(const tutti__conf_t *conf)
{
    return strncmp(conf->boot, local_prefix, strlen(local_prefix)) == 0;
}

/* If TUTTI_RANK or TUTTI_SIZE is set without TUTTI_BOOT, warn that the variable has no effect. */
static void warn_lonely(const tutti__conf_t *conf)
{
    if (conf->boot[0] == '\0' && (conf->rank >= 0 || conf->size >= 0))
        TUTTI__LOG(TUTTI__LOG_WARN, "%s is set, but it counts only with TUTTI_BOOT=local:NAME",
                   conf->rank >= 0 ? "TUTTI_RANK" : "TUTTI_SIZE");
}

/* Print the messages that appear once per process, and only on rank 0 if the rank is known. */
static void say_once(const tutti__conf_t *conf, int help, const tutti__conf_note_t *note)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;

    if (tutti__conf_launcher_rank() > 0 || (tutti__conf_is_local(conf) && conf->rank > 0) ||
        atomic_flag_test_and_set(&said))
        return;
    if (help)
        print_help();
    if (conf->log_level >= TUTTI__LOG_WARN) {
        warn_unknown();
        warn_lonely(conf);
    }
    /* TUTTI__LOG cannot be used yet, because tutti__log_setup sets the log's level later. */
    if (note->text[0] != '\0' && conf->log_level >= (int64_t)note->level)
        tutti__log_write(note->level, "%s", note->text);
}

/* Check TUTTI_HELP, which is not in the table, and settings that need each other. */
static tutti_status_t check_rest(const tutti__conf_t *conf, int *ret_help)
{
    const char *text = tutti__conf_text(help_name);

    if (text != NULL && !tutti__parse_boolean(text, ret_help))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%s=%.80s makes no sense; allowed: 0|1",
                           help_name, text);
    if (tutti__conf_is_local(conf) && (conf->rank < 0 || conf->size < 0))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "TUTTI_BOOT=%s needs TUTTI_RANK and TUTTI_SIZE; %s is not set",
                           conf->boot, conf->rank < 0 ? "TUTTI_RANK" : "TUTTI_SIZE");
    if (conf->job_secret[0] != '\0' && conf->job_secret_file[0] != '\0')
        return tutti__fail(
            TUTTI_ERR_INVALID_ARGUMENT,
            "TUTTI_JOB_SECRET and TUTTI_JOB_SECRET_FILE are both set; one is enough");
    return TUTTI_OK;
}

static tutti_status_t read_environment(tutti__conf_t *conf)
{
    char allowed[128];

    for (size_t i = 0; i < ROWS; i++) {
        const char *text = tutti__conf_row_text(i);

        if (text == NULL || put(conf, &rows[i], text))
            continue;
        describe(&rows[i], allowed, sizeof(allowed));
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%s=%.80s makes no sense; allowed: %s",
                           rows[i].name, rows[i].type == CONF_SECRET ? "..." : text, allowed);
    }
    return TUTTI_OK;
}

tutti_status_t tutti__conf_read(tutti__conf_t *ret_conf)
{
    tutti_status_t status;
    tutti__conf_t conf;
    tutti__conf_note_t note;
    int help = 0;

    tutti__conf_defaults(&conf);
    status = read_environment(&conf); /* finds the tuned file's name */
    if (status == TUTTI_OK)
        status = check_rest(&conf, &help);
    if (status != TUTTI_OK)
        return status;
    tutti__conf_use_tuned(&conf, &note);
    status = read_environment(&conf); /* variables replace the tuned file's values */
    if (status != TUTTI_OK)
        return status;
    say_once(&conf, help, &note);
    *ret_conf = conf;
    return TUTTI_OK;
}
