/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of all TUTTI_* variables, and reading it from the environment.
 *
 * Called by tutti_init, on its thread. A value that makes no sense is an error, because a job that
 * runs for days with a setting that was ignored is worse than one that does not start; a name that
 * is unknown is a warning, because it may belong to another version. Tuned files only make faster,
 * so one that makes no sense is a warning, too.
 */
#include "conf/conf.h"

#include "base/compiler.h"
#include "base/log.h"
#include "base/status.h"
#include "conf/inside.h"
#include "conf/parse.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum {
    CONF_BYTES,   /* uint64_t, rounded up to a multiple of 64; or what `choices` says: AUTO */
    CONF_COUNT,   /* uint64_t */
    CONF_SECONDS, /* uint64_t milliseconds */
    CONF_NUMBER,  /* int64_t; -1 if not given */
    CONF_CHOICE,  /* uint64_t or int64_t: which one of `choices` */
    CONF_WORD,    /* char[]: one of `choices` as it is spelled there */
    CONF_TEXT     /* char[] */
} type_t;

typedef struct {
    const char *name;
    type_t type;
    size_t offset;
    const char *value; /* the default, as one would write it */
    const char *help;
    uint64_t least, most; /* numbers, in the stored unit; texts: `most` is the field's size */
    const char *choices;
} row_t;

#define AT(field) offsetof(tutti__conf_t, field)
#define SIZE(field) sizeof(((tutti__conf_t *)0)->field)
#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define LONGEST_MS (1000000 * (uint64_t)1000) /* 11 days; still an int, for poll() */
#define MOST_RANKS ((uint64_t)1 << 24)

/* A row is name, type, field, default; help; limits. */
/* clang-format off */
static const row_t rows[] = {
    { "TUTTI_FUSION_BYTES", CONF_BYTES, AT(shared.fusion_bytes), "auto",
      "Largest fused buffer of asynchronous calls; auto: 1M on one host, 64M between hosts, 16M\n"
      "    in device memory, where each communicator takes it four times.\n"
      "    0 sends every tensor on its own.",
      0, 16 * GIB, "auto" },
    { "TUTTI_CHUNK_BYTES", CONF_BYTES, AT(shared.chunk_bytes), "64K",
      "Messages between two ranks are cut into pieces of this size.",
      KIB, 64 * MIB, NULL },
    { "TUTTI_CREDITS", CONF_COUNT, AT(shared.credits), "4",
      "Pieces that may be on their way to one receiver before it takes the first.",
      1, 64, NULL },
    { "TUTTI_ONESHOT_BYTES", CONF_BYTES, AT(shared.oneshot_bytes), "32K",
      "Within a host: up to this many bytes, times ranks, everyone reads everyone's data.",
      0, MIB, NULL },
    { "TUTTI_NODE_CHUNK_BYTES", CONF_BYTES, AT(shared.node_chunk_bytes), "256K",
      "Within a host: large messages are pipelined in pieces of this size.",
      4 * KIB, GIB, NULL },
    { "TUTTI_L3_BYTES", CONF_BYTES, AT(shared.l3_bytes), "auto",
      "Size of an L3 cache. Where it cannot hold the results of the ranks that share it, those in\n"
      "    tutti_mem_alloc's memory are fetched ahead or go around it; auto: as the system says.",
      1, 16 * GIB, "auto" },
    { "TUTTI_HUGE_PAGES", CONF_CHOICE, AT(shared.huge_pages), "auto",
      "Shared memory of 2 MiB and more on huge pages: 1: also where the system says never,\n"
      "    in /sys/kernel/mm/transparent_hugepage/shmem_enabled, which is its default; 0: no.",
      0, 0, "auto|0|1" },
    { "TUTTI_TIMEOUT", CONF_SECONDS, AT(shared.timeout_ms), "600",
      "Deadline of every wait for a peer; decimals are fine.",
      1, LONGEST_MS, NULL },
    { "TUTTI_STALL_WARNING", CONF_SECONDS, AT(shared.stall_ms), "60",
      "Warn about tensors, direct calls and an MPI_Init that have waited for so long, and again\n"
      "    after each further interval. 0 never warns.",
      0, LONGEST_MS, NULL },
    { "TUTTI_DETERMINISTIC", CONF_CHOICE, AT(shared.strict), "default",
      "default: equal bits from run to run; strict: also for any size and any fusion.",
      0, 0, "default|strict" },
    { "TUTTI_ALGORITHM", CONF_TEXT, AT(shared.algorithm), "",
      "Force algorithms: COLLECTIVE:[BYTES-BYTES:]NAME[(RADIX)][/SUB], several with commas.\n"
      "    0-4k is up to 4095 bytes. @FILE instead of NAME: schedules of your own, which rank 0\n"
      "    reads and the checker proves; for one number of ranks and one root.\n"
      "    `tutti_sched list` prints the names of each collective.",
      0, SIZE(shared.algorithm), NULL },
    { "TUTTI_CHECK", CONF_CHOICE, AT(shared.check), "0",
      "1: prove each schedule when it is built.",
      0, 0, "0|1" },
    { "TUTTI_COMPARE", CONF_CHOICE, AT(shared.compare), "1",
      "1: between hosts and between two ranks, compare direct calls before data moves.\n"
      "    0: lengths only, which ends the communicator. On one host calls always are compared.",
      0, 0, "0|1" },
    { "TUTTI_GROUP_SIZE", CONF_COUNT, AT(shared.group_size), "0",
      "Ranks of a core group: inside a host, sums are made in groups first. 0: who shares an L3\n"
      "    cache or a NUMA node, at most 16; and for algorithms of three levels, the whole host.",
      0, MOST_RANKS, NULL },
    { "TUTTI_STAGE_BYTES", CONF_BYTES, AT(shared.stage_bytes), "32M",
      "Device memory: pinned host memory through which data goes to other hosts; each\n"
      "    communicator takes it five times.",
      64 * KIB, 16 * GIB, NULL },
    { "TUTTI_DEVICE_CHUNK_BYTES", CONF_BYTES, AT(shared.device_chunk_bytes), "1M",
      "Device memory: between hosts large messages are pipelined in pieces of this size.",
      4 * KIB, GIB, NULL },
    { "TUTTI_DEVICE_STAGED_BYTES", CONF_BYTES, AT(shared.device_staged_bytes), "auto",
      "Device memory: on several hosts allreduces of up to so many bytes are made in host memory,\n"
      "    larger ones by NCCL inside hosts; auto: what a cost model says; 0: none.",
      0, 16 * GIB, "auto" },
    { "TUTTI_GPU_DIRECT", CONF_CHOICE, AT(shared.gpu_direct), "1",
      "1: between hosts MPI sends and receives sums in device memory, if it says that it can on\n"
      "    all ranks; each communicator takes up to ten times TUTTI_STAGE_BYTES of it.\n"
      "    0: through pinned host memory. Try it where jobs hang.",
      0, 0, "0|1" },
    { "TUTTI_STREAM_WAIT", CONF_CHOICE, AT(shared.stream_wait), "host",
      "Device memory: how tutti_cuda_wait orders a stream behind work of the host's: host: when\n"
      "    it is done; device: the device waits for it, and the call returns before. Never tried\n"
      "    on a GPU: CUDA does not see what such a wait orders, so a call that synchronises the\n"
      "    device meanwhile (cudaFree, loading a kernel) may hang, until TUTTI_TIMEOUT.",
      0, 0, "host|device" },
    { "TUTTI_XPORT", CONF_WORD, AT(shared.xport), "auto",
      "Between ranks of different hosts: shm works if the hosts are one machine.",
      0, SIZE(shared.xport), "auto|shm|mpi" },
    { "TUTTI_LOG", CONF_CHOICE, AT(log_level), "warn",
      "What to print on stderr.",
      0, 0, "none|error|warn|info|debug|trace|data" },
    { "TUTTI_ISA", CONF_WORD, AT(isa), "auto",
      "Instruction set that adds numbers up; results are the same bits. For tests.",
      0, SIZE(isa), "auto|scalar|sse2|neon|avx2|avx512" },
    { "TUTTI_HOST_ID", CONF_TEXT, AT(host_id), "",
      "Ranks with equal names count as one host; else the machine decides. For tests.",
      0, SIZE(host_id), NULL },
    { "TUTTI_MODULE_DIR", CONF_TEXT, AT(module_dir), "",
      "Folder with the modules (mpi_openmpi.so, ...); else tutti/ beside libtutti.so. A program\n"
      "    that contains libtutti.a has no such file: there, tutti/ in the configured libdir.",
      0, SIZE(module_dir), NULL },
    { "TUTTI_BOOT", CONF_TEXT, AT(boot), "",
      "How ranks meet: self, mpi, or local:NAME; else what started them decides.",
      0, SIZE(boot), NULL },
    { "TUTTI_RANK", CONF_NUMBER, AT(rank), "",
      "This process, for TUTTI_BOOT=local:NAME; counts from 0.",
      0, MOST_RANKS - 1, NULL },
    { "TUTTI_SIZE", CONF_NUMBER, AT(size), "",
      "Number of processes, for TUTTI_BOOT=local:NAME.",
      1, MOST_RANKS, NULL },
    { "TUTTI_INTERFACE", CONF_TEXT, AT(interface), "",
      "Network interface between hosts, such as eth0; else the first that is up.",
      0, SIZE(interface), NULL },
    { "TUTTI_TUNED", CONF_TEXT, AT(tuned), "",
      "File with settings measured by tutti_tune, instead of that for this machine and\n"
      "    number of local ranks in ~/.config/tutti/tuned; none: no file. They go before the\n"
      "    defaults, and variables go before them.",
      0, SIZE(tuned), NULL },
    { "TUTTI_DEVICE", CONF_TEXT, AT(device), "auto",
      "Whose memory calls take besides host memory: auto: CUDA's, if the program has loaded it\n"
      "    before tutti_init; none; or a module's name: cuda.",
      0, SIZE(device), NULL },
    { "TUTTI_DEVICE_ID", CONF_NUMBER, AT(device_id), "",
      "Number of this rank's device; else the calling thread's, else by local rank.",
      0, 1023, NULL },
};
/* clang-format on */

#define ROWS (sizeof(rows) / sizeof(*rows))

/* Names that are known, but read elsewhere than in the table. */
static const char prefix[] = "TUTTI_";
static const char help_name[] = "TUTTI_HELP";
static const char test_prefix[] = "TUTTI_TEST_"; /* tests' own */
static const char local_prefix[] = "local:";     /* of TUTTI_BOOT; see boot/meet.c */

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

/* Copy into a field, filled up with zeros: it is sent to other ranks as it is. */
static int put_text(const row_t *row, const char *text, size_t length, void *field)
{
    if (length >= row->most)
        return 0;
    memset(field, 0, row->most);
    memcpy(field, text, length);
    return 1;
}

/* A word as the table spells it. */
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

/* Set one field from text; 0 if the text makes no sense. */
static int put(tutti__conf_t *conf, const row_t *row, const char *text)
{
    void *field = (char *)conf + row->offset;
    uint64_t value;

    switch (row->type) {
    case CONF_TEXT:
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
    memcpy(field, &value, sizeof(value)); /* uint64_t, or int64_t of the same bits */
    return 1;
}

void tutti__conf_defaults(tutti__conf_t *ret_conf)
{
    memset(ret_conf, 0, sizeof(*ret_conf));
    ret_conf->rank = -1;
    ret_conf->size = -1;
    ret_conf->device_id = -1;
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

int tutti__conf_nccl_shares_gpus(void)
{
    const char *text = secure_getenv("NCCL_MULTI_RANK_GPU_ENABLE");

    return text != NULL && text[0] != '\0' && strcmp(text, "0") != 0;
}

const char *tutti__conf_nccl_host(void)
{
    return secure_getenv("NCCL_HOSTID");
}

/* "a number of bytes from 1K to 64M" */
static void describe(const row_t *row, char *text, size_t room)
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
        snprintf(text, room, "bytes, %" PRIu64 "%s to %" PRIu64 "%s%s%s", least, least_unit, most,
                 most_unit, row->choices != NULL ? "; " : "",
                 row->choices != NULL ? row->choices : "");
        break;
    case CONF_SECONDS:
        snprintf(text, room, "seconds, %s to %" PRIu64, least == 0 ? "0" : "0.001", most / 1000);
        break;
    case CONF_COUNT:
    case CONF_NUMBER:
        snprintf(text, room, "a number, %" PRIu64 " to %" PRIu64, least, most);
        break;
    case CONF_CHOICE:
    case CONF_WORD:
        snprintf(text, room, "%s", row->choices);
        break;
    case CONF_TEXT:
        snprintf(text, room, "text, up to %" PRIu64 " bytes", most - 1);
        break;
    }
}

/* Numbers of bytes decide how something is done, never what. */
static const row_t *find_tunable(const char *name)
{
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].type == CONF_BYTES && strcmp(name, rows[i].name) == 0)
            return &rows[i];
    return NULL;
}

int tutti__conf_is_tunable(const char *name)
{
    return find_tunable(name) != NULL;
}

int tutti__conf_put(tutti__conf_t *conf, const char *name, const char *text, char *ret_allowed,
                    size_t room)
{
    const row_t *row = find_tunable(name);

    if (put(conf, row, text))
        return 1;
    describe(row, ret_allowed, room);
    return 0;
}

int tutti__conf_row(size_t i, tutti__conf_row_t *ret_row)
{
    if (i >= ROWS)
        return 0;
    ret_row->name = rows[i].name;
    ret_row->standard = rows[i].value;
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
        "Tutti is set up by these environment variables. Those above TUTTI_LOG are taken from\n"
        "rank 0. In brackets: what is allowed; default. The program runs on after this.\n\n";
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
    return strcmp(name, help_name) == 0 || strncmp(name, test_prefix, strlen(test_prefix)) == 0;
}

/* The known name most like it; NULL if more than a slip tells them apart: two letters, and less
   than a third of what follows TUTTI_. */
static const char *nearest(const char *name)
{
    size_t best = tutti__parse_distance(name, help_name);
    const char *found = help_name;

    for (size_t i = 0; i < ROWS; i++) {
        size_t distance = tutti__parse_distance(name, rows[i].name);

        if (distance < best) {
            best = distance;
            found = rows[i].name;
        }
    }
    return best <= 2 && 3 * best < strlen(name) - strlen(prefix) ? found : NULL;
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
        if (guess != NULL)
            TUTTI__LOG(TUTTI__LOG_WARN, "%s is no setting; did you mean %s?", name, guess);
        else
            TUTTI__LOG(TUTTI__LOG_WARN, "%s is no setting; TUTTI_HELP=1 lists them", name);
    }
}

int tutti__conf_is_local(const tutti__conf_t *conf)
{
    return strncmp(conf->boot, local_prefix, strlen(local_prefix)) == 0;
}

/* Numbers without a name to meet under: N such processes become N worlds of one. */
static void warn_lonely(const tutti__conf_t *conf)
{
    if (conf->boot[0] == '\0' && (conf->rank >= 0 || conf->size >= 0))
        TUTTI__LOG(TUTTI__LOG_WARN, "%s is set, but it counts only with TUTTI_BOOT=local:NAME",
                   conf->rank >= 0 ? "TUTTI_RANK" : "TUTTI_SIZE");
}

/* What is said once per process, and by one process of a job. */
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
    /* The log itself is set up later. */
    if (note->text[0] != '\0' && conf->log_level >= (int64_t)note->level)
        tutti__log_write(note->level, "%s", note->text);
}

/* What is not in one row: TUTTI_HELP, and settings that need each other. */
static tutti_status_t check_rest(const tutti__conf_t *conf, int *ret_help)
{
    const char *text = secure_getenv(help_name);

    if (text != NULL && text[0] != '\0' && !tutti__parse_boolean(text, ret_help))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%s=%.80s makes no sense; allowed: 0|1",
                           help_name, text);
    if (tutti__conf_is_local(conf) && (conf->rank < 0 || conf->size < 0))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT,
                           "TUTTI_BOOT=%s needs TUTTI_RANK and TUTTI_SIZE; %s is not set",
                           conf->boot, conf->rank < 0 ? "TUTTI_RANK" : "TUTTI_SIZE");
    return TUTTI_OK;
}

static tutti_status_t read_environment(tutti__conf_t *conf)
{
    char allowed[128];

    for (size_t i = 0; i < ROWS; i++) {
        const char *text = secure_getenv(rows[i].name);

        if (text == NULL || text[0] == '\0' || put(conf, &rows[i], text))
            continue;
        describe(&rows[i], allowed, sizeof(allowed));
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%s=%.80s makes no sense; allowed: %s",
                           rows[i].name, text, allowed);
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
    status = read_environment(&conf); /* says which tuned file counts */
    if (status == TUTTI_OK)
        status = check_rest(&conf, &help);
    if (status != TUTTI_OK)
        return status;
    tutti__conf_use_tuned(&conf, &note);
    status = read_environment(&conf); /* and goes before it */
    if (status != TUTTI_OK)
        return status;
    say_once(&conf, help, &note);
    *ret_conf = conf;
    return TUTTI_OK;
}
