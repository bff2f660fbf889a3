/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Settings: the meaning of their texts, refused texts and their errors, warnings about
 * unknown names.
 */
#include "conf/conf_inside.h"

#include "base/log.h"
#include "conf/parse.h"
#include "unit/base/capture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int clean_environment(void **state)
{
    (void)state;
    return clearenv();
}

static void test_parse_bytes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = { { "0", 0 },       { "1", 1 },           { "64K", 65536 },
                 { "64k", 65536 }, { "2M", 2u << 20 },   { "1GiB", 1u << 30 },
                 { "3kB", 3072 },  { "1t", 1ull << 40 }, { "18446744073709551615", UINT64_MAX },
                 { "007", 7 } };
    static const char *const bad[] = { "",   "K",    "-1",  "+1",   " 1",
                                       "1 ", "1.5M", "1KK", "1Ki",  "0x10",
                                       "1x", "1b",   "1bb", "64 K", "18446744073709551616" };
    uint64_t bytes;

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        bytes = 99;
        assert_true(tutti__parse_bytes(good[i].text, &bytes));
        assert_int_equal(bytes, good[i].bytes);
    }
    bytes = 99;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        if (tutti__parse_bytes(bad[i], &bytes))
            fail_msg("\"%s\" was taken for %llu bytes", bad[i], (unsigned long long)bytes);
    assert_false(tutti__parse_bytes("18014398509481984K", &bytes)); /* 2^64 */
    assert_int_equal(bytes, 99);
}

static void test_parse_seconds(void **state)
{
    static const struct {
        const char *text;
        uint64_t ms;
    } good[] = { { "0", 0 },         { "600", 600000 }, { "0.5", 500 },
                 { "1.25s", 1250 },  { "0.001", 1 },    { "0.0011", 2 },
                 { "0.9999", 1000 }, { "2.000", 2000 }, { "2.0000", 2000 } };
    static const char *const bad[] = { "",      ".5", "1.",    "-1", "1,5",
                                       "1e3",   "1m", "1.5.5", "s",  "18446744073709551",
                                       "0.0001" };
    uint64_t ms;

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        ms = 99;
        assert_true(tutti__parse_seconds(good[i].text, &ms));
        assert_int_equal(ms, good[i].ms);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        if (tutti__parse_seconds(bad[i], &ms))
            fail_msg("\"%s\" was taken for %llu ms", bad[i], (unsigned long long)ms);
}

static void test_parse_words(void **state)
{
    static const char *const on[] = { "1", "true", "Yes", "ON" };
    static const char *const off[] = { "0", "FALSE", "no", "off" };
    uint64_t index = 99;
    int value;

    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_true(tutti__parse_boolean(on[i], &value));
        assert_int_equal(value, 1);
        assert_true(tutti__parse_boolean(off[i], &value));
        assert_int_equal(value, 0);
    }
    assert_false(tutti__parse_boolean("", &value));
    assert_false(tutti__parse_boolean("2", &value));
    assert_false(tutti__parse_boolean("tru", &value));

    assert_true(tutti__parse_choice("Two", "one|two|three", &index));
    assert_int_equal(index, 1);
    assert_false(tutti__parse_choice("tw", "one|two|three", &index));
    assert_false(tutti__parse_choice("", "one|two|three", &index));
    assert_false(tutti__parse_choice("two|three", "one|two|three", &index));
    assert_int_equal(index, 1);
}

static void test_distance(void **state)
{
    char longest[80];

    (void)state;
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(tutti__parse_distance("", ""), 0);
    assert_int_equal(tutti__parse_distance("abc", ""), 3);
    assert_int_equal(tutti__parse_distance("kitten", "sitting"), 3);
    assert_int_equal(tutti__parse_distance("sitting", "kitten"), 3);
    assert_true(tutti__parse_distance(longest, "x") > 60);
}

static void test_defaults(void **state)
{
    tutti__conf_t conf, read;

    (void)state;
    tutti__conf_defaults(&conf);
    assert_int_equal(conf.shared.fusion_bytes, TUTTI__CONF_AUTO);
    assert_int_equal(conf.shared.chunk_bytes, TUTTI__CONF_AUTO);
    assert_int_equal(conf.shared.credits, 4);
    assert_int_equal(conf.shared.oneshot_bytes, 32 << 10);
    assert_int_equal(conf.shared.node_chunk_bytes, 256 << 10);
    assert_int_equal(conf.shared.l3_bytes, TUTTI__CONF_AUTO);
    assert_int_equal(conf.shared.compare, 1);
    assert_int_equal(conf.shared.plans, 1);
    assert_int_equal(conf.shared.timeout_ms, 600000);
    assert_int_equal(conf.shared.stall_ms, 60000);
    assert_int_equal(conf.shared.strict, 0);
    assert_string_equal(conf.shared.algorithm, "");
    assert_string_equal(conf.shared.dump, "");
    assert_string_equal(conf.shared.trace, "");
    assert_string_equal(conf.shared.transport, "auto");
    assert_int_equal(conf.log_level, TUTTI__LOG_WARN);
    assert_int_equal(conf.stats, TUTTI__CONF_STATS_OFF);
    assert_string_equal(conf.stats_file, "");
    assert_int_equal(conf.stats_port, -1);
    assert_int_equal(conf.rank, -1);
    assert_int_equal(conf.size, -1);
    assert_string_equal(conf.device, "auto");
    assert_int_equal(conf.device_id, -1);
    assert_int_equal(conf.shared.stage_bytes, 32 << 20);
    assert_int_equal(conf.shared.device_chunk_bytes, 1 << 20);
    assert_int_equal(conf.shared.gpu_direct, 1);

    /* An empty value counts as not set. Every byte of the settings must be defined, because
       settings are sent to other ranks. */
    setenv("TUTTI_CHUNK_BYTES", "", 1);
    setenv("TUTTI_RANK", "", 1);
    memset(&read, 0x55, sizeof(read));
    assert_int_equal(tutti__conf_read(&read), TUTTI_OK);
    assert_memory_equal(&read, &conf, sizeof(conf));
}

/* TUTTI_DUMP and TUTTI_TRACE accept paths of up to 4000 bytes. */
static void test_long_paths(void **state)
{
    char path[4002];
    tutti__conf_t conf;

    (void)state;
    memset(path, 'x', sizeof(path));
    path[4000] = '\0';
    setenv("TUTTI_DUMP", path, 1);
    setenv("TUTTI_TRACE", path, 1);
    assert_int_equal(tutti__conf_read(&conf), TUTTI_OK);
    assert_string_equal(conf.shared.dump, path);
    assert_string_equal(conf.shared.trace, path);
    path[4000] = 'x';
    path[4001] = '\0';
    setenv("TUTTI_TRACE", path, 1);
    assert_int_equal(tutti__conf_read(&conf), TUTTI_ERR_INVALID_ARGUMENT);
}

static void test_every_setting(void **state)
{
    tutti__conf_t conf;

    (void)state;
    setenv("TUTTI_FUSION_BYTES", "0", 1);
    setenv("TUTTI_CHUNK_BYTES", "1025", 1);
    setenv("TUTTI_CREDITS", "64", 1);
    setenv("TUTTI_ONESHOT_BYTES", "1M", 1);
    setenv("TUTTI_NODE_CHUNK_BYTES", "1G", 1);
    setenv("TUTTI_L3_BYTES", "96M", 1);
    setenv("TUTTI_COMPARE", "0", 1);
    setenv("TUTTI_PLANS", "0", 1);
    setenv("TUTTI_HUGE_PAGES", "1", 1);
    setenv("TUTTI_TIMEOUT", "0.25", 1);
    setenv("TUTTI_STALL_WARNING", "0", 1);
    setenv("TUTTI_DUMP", "/tmp/dumps/job", 1);
    setenv("TUTTI_TRACE", "/tmp/trace.json", 1);
    setenv("TUTTI_DETERMINISTIC", "Strict", 1);
    setenv("TUTTI_ALGORITHM", "allreduce:ring", 1);
    setenv("TUTTI_TRANSPORT", "MPI", 1);
    setenv("TUTTI_LOG", "trace", 1);
    setenv("TUTTI_STATS", "Quiet", 1);
    setenv("TUTTI_STATS_FILE", "/run/tutti_%r.prom", 1);
    setenv("TUTTI_STATS_PORT", "9464", 1);
    setenv("TUTTI_TEST_ISA", "AVX2", 1);
    setenv("TUTTI_HOST_ID", "left", 1);
    setenv("TUTTI_MODULE_DIR", "/opt/modules", 1);
    setenv("TUTTI_BOOT", "local:here", 1);
    setenv("TUTTI_RANK", "0", 1);
    setenv("TUTTI_SIZE", "2", 1);
    setenv("TUTTI_INTERFACE", "eth0", 1);
    setenv("TUTTI_PORT", "65535", 1);
    setenv("TUTTI_JOB_SECRET", "psst!", 1);
    setenv("TUTTI_DEVICE", "cuda", 1);
    setenv("TUTTI_DEVICE_ID", "3", 1);
    setenv("TUTTI_STAGE_BYTES", "64K", 1);
    setenv("TUTTI_DEVICE_CHUNK_BYTES", "4K", 1);
    setenv("TUTTI_DEVICE_STAGED_BYTES", "0", 1);
    setenv("TUTTI_GPU_DIRECT", "0", 1);
    assert_int_equal(tutti__conf_read(&conf), TUTTI_OK);
    assert_int_equal(conf.shared.fusion_bytes, 0);
    assert_int_equal(conf.shared.chunk_bytes, 1088); /* rounded up to lines */
    assert_int_equal(conf.shared.credits, 64);
    assert_int_equal(conf.shared.oneshot_bytes, 1 << 20);
    assert_int_equal(conf.shared.node_chunk_bytes, 1 << 30);
    assert_int_equal(conf.shared.l3_bytes, 96 << 20);
    assert_int_equal(conf.shared.compare, 0);
    assert_int_equal(conf.shared.plans, 0);
    assert_int_equal(conf.shared.huge_pages, 2);
    assert_int_equal(conf.shared.timeout_ms, 250);
    assert_int_equal(conf.shared.stall_ms, 0);
    assert_int_equal(conf.shared.strict, 1);
    assert_string_equal(conf.shared.algorithm, "allreduce:ring");
    assert_string_equal(conf.shared.dump, "/tmp/dumps/job");
    assert_string_equal(conf.shared.trace, "/tmp/trace.json");
    assert_string_equal(conf.shared.transport, "mpi");
    assert_int_equal(conf.log_level, TUTTI__LOG_TRACE);
    assert_int_equal(conf.stats, TUTTI__CONF_STATS_QUIET);
    assert_string_equal(conf.stats_file, "/run/tutti_%r.prom");
    assert_int_equal(conf.stats_port, 9464);
    assert_string_equal(conf.isa, "avx2");
    assert_string_equal(conf.host_id, "left");
    assert_string_equal(conf.module_dir, "/opt/modules");
    assert_string_equal(conf.boot, "local:here");
    assert_int_equal(conf.rank, 0);
    assert_int_equal(conf.size, 2);
    assert_string_equal(conf.interface, "eth0");
    assert_int_equal(conf.port, 65535);
    assert_string_equal(conf.job_secret, "psst!");
    assert_string_equal(conf.job_secret_file, "");
    assert_string_equal(conf.device, "cuda");
    assert_int_equal(conf.device_id, 3);
    assert_int_equal(conf.shared.stage_bytes, 64 << 10);
    assert_int_equal(conf.shared.device_chunk_bytes, 4 << 10);
    assert_int_equal(conf.shared.device_staged_bytes, 0);
    assert_int_equal(conf.shared.gpu_direct, 0);
}

static void test_nonsense_is_refused(void **state)
{
    static const struct {
        const char *name, *value, *allowed;
    } cases[] = { { "TUTTI_CHUNK_BYTES", "1023", "bytes, 1K to 64M; auto" },
                  { "TUTTI_CHUNK_BYTES", "65M", "bytes, 1K to 64M; auto" },
                  { "TUTTI_FUSION_BYTES", "many", "bytes, 0 to 16G; auto" },
                  { "TUTTI_CREDITS", "0", "a number, 1 to 64" },
                  { "TUTTI_CREDITS", "65", "a number, 1 to 64" },
                  { "TUTTI_TIMEOUT", "0", "seconds, 0.001 to 1000000" },
                  { "TUTTI_TIMEOUT", "0.0001", "seconds, 0.001 to 1000000" },
                  { "TUTTI_TIMEOUT", "1000000.1", "seconds, 0.001 to 1000000" },
                  { "TUTTI_STALL_WARNING", "-1", "seconds, 0 to 1000000" },
                  { "TUTTI_DETERMINISTIC", "1", "default|strict" },
                  { "TUTTI_TRANSPORT", "tcp", "auto|ucx|mpi|shm" },
                  { "TUTTI_LOG", "verbose", "none|error|warn|info|debug|trace|data" },
                  { "TUTTI_STATS", "2", "0|1|quiet" },
                  { "TUTTI_STATS_PORT", "0", "a number, 1 to 65535" },
                  { "TUTTI_RANK", "-1", "a number, 0 to 16777215" },
                  { "TUTTI_SIZE", "0", "a number, 1 to 16777216" },
                  { "TUTTI_PORT", "0", "a number, 1 to 65535" },
                  { "TUTTI_PORT", "65536", "a number, 1 to 65535" },
                  { "TUTTI_HELP", "foo", "0|1" } };
    char expected[256];
    tutti__conf_t conf, before;

    (void)state;
    memset(&conf, 0x55, sizeof(conf));
    before = conf;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        setenv(cases[i].name, cases[i].value, 1);
        assert_int_equal(tutti__conf_read(&conf), TUTTI_ERR_INVALID_ARGUMENT);
        snprintf(expected, sizeof(expected), "%s=%s makes no sense; allowed: %s", cases[i].name,
                 cases[i].value, cases[i].allowed);
        assert_string_equal(tutti_last_error(), expected);
        unsetenv(cases[i].name);
    }
    assert_memory_equal(&conf, &before, sizeof(conf));
}

/* A meeting by name needs both numbers; the error names the missing one. */
static void test_ranks_are_complete(void **state)
{
    tutti__conf_t conf;

    (void)state;
    setenv("TUTTI_BOOT", "local:x", 1);
    assert_int_equal(tutti__conf_read(&conf), TUTTI_ERR_INVALID_ARGUMENT);
    assert_string_equal(tutti_last_error(), "TUTTI_BOOT=local:x needs TUTTI_RANK and TUTTI_SIZE; "
                                            "TUTTI_RANK is not set");
    setenv("TUTTI_RANK", "0", 1);
    assert_int_equal(tutti__conf_read(&conf), TUTTI_ERR_INVALID_ARGUMENT);
    assert_string_equal(tutti_last_error(), "TUTTI_BOOT=local:x needs TUTTI_RANK and TUTTI_SIZE; "
                                            "TUTTI_SIZE is not set");
    setenv("TUTTI_SIZE", "1", 1);
    assert_int_equal(tutti__conf_read(&conf), TUTTI_OK);
    unsetenv("TUTTI_RANK");
    unsetenv("TUTTI_SIZE");
    setenv("TUTTI_BOOT", "self", 1);
    assert_int_equal(tutti__conf_read(&conf), TUTTI_OK);
}

static void test_long_texts_are_refused(void **state)
{
    char text[TUTTI__CONF_TEXT + 1];
    tutti__conf_t conf;

    (void)state;
    memset(text, 'h', sizeof(text));
    text[TUTTI__CONF_TEXT - 1] = '\0';
    setenv("TUTTI_HOST_ID", text, 1);
    assert_int_equal(tutti__conf_read(&conf), TUTTI_OK);
    assert_string_equal(conf.host_id, text);
    text[TUTTI__CONF_TEXT - 1] = 'h';
    text[TUTTI__CONF_TEXT] = '\0';
    setenv("TUTTI_HOST_ID", text, 1);
    assert_int_equal(tutti__conf_read(&conf), TUTTI_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "text, up to 255 bytes"));
    setenv("TUTTI_HOST_ID", "", 1);
    setenv("TUTTI_ALGORITHM", text, 1); /* settings with several items, and paths */
    assert_int_equal(tutti__conf_read(&conf), TUTTI_OK);
    assert_string_equal(conf.shared.algorithm, text);
    unsetenv("TUTTI_ALGORITHM");
}

static void find_secret(void *arg, const tutti__conf_shown_t *shown)
{
    assert_null(strstr(shown->value, "psst!"));
    *(int *)arg +=
        strcmp(shown->name, "TUTTI_JOB_SECRET") == 0 && strcmp(shown->value, "(hidden)") == 0;
}

static void ignore_unknown(void *arg, const char *name, const char *guess)
{
    (void)arg, (void)name, (void)guess;
}

/* The job's secret appears in no report and in no error. */
static void test_secrets_are_not_printed(void **state)
{
    char tuned[256], text[1200];
    tutti__conf_t conf;
    int found = 0;

    (void)state;
    setenv("TUTTI_JOB_SECRET", "psst!", 1);
    tutti__conf_show(find_secret, ignore_unknown, &found, &conf, tuned, sizeof(tuned));
    assert_int_equal(found, 1);
    setenv("TUTTI_JOB_SECRET_FILE", "/secret", 1);
    assert_int_equal(tutti__conf_read(&conf), TUTTI_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "TUTTI_JOB_SECRET_FILE are both set"));
    assert_null(strstr(tutti_last_error(), "psst!"));
    memset(text, 'p', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    setenv("TUTTI_JOB_SECRET", text, 1);
    assert_int_equal(tutti__conf_read(&conf), TUTTI_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "TUTTI_JOB_SECRET=... makes no sense"));
    assert_null(strstr(tutti_last_error(), "pp"));
}

/* Some messages appear once per process. So a child reads the settings twice, and its output is
   returned. */
static void said_by_child(char *ret_text, size_t room)
{
    pid_t child;
    int how;

    capture_begin();
    child = fork();
    if (child == 0) {
        tutti__conf_t conf;

        _exit(tutti__conf_read(&conf) != TUTTI_OK || tutti__conf_read(&conf) != TUTTI_OK);
    }
    waitpid(child, &how, 0);
    capture_end(ret_text, room);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
}

static int count(const char *text, const char *part)
{
    int n = 0;

    for (; (text = strstr(text, part)) != NULL; text += strlen(part))
        n++;
    return n;
}

static void test_unknown_names_warn(void **state)
{
    char text[4096];

    (void)state;
    setenv("TUTTI_CHUNK_BYTE", "1", 1);
    setenv("TUTTI_WEATHER", "fine", 1);
    setenv("TUTTI_TEST_ANYTHING", "1", 1);
    setenv("TUTTI_HELP", "0", 1);
    setenv("TUTTIFRUTTI", "1", 1);
    said_by_child(text, sizeof(text));
    assert_int_equal(
        count(text, "tutti warn: TUTTI_CHUNK_BYTE is no setting; did you mean TUTTI_CHUNK_BYTES?"),
        1);
    assert_int_equal(count(text, "tutti warn: TUTTI_WEATHER is no setting; TUTTI_HELP=1 lists"), 1);
    assert_int_equal(count(text, "\n"), 2);

    setenv("TUTTI_LOG", "error", 1);
    said_by_child(text, sizeof(text));
    assert_string_equal(text, "");

    /* In a job only rank 0 logs the message. */
    unsetenv("TUTTI_LOG");
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    said_by_child(text, sizeof(text));
    assert_string_equal(text, "");
}

/* A suggestion is printed only for small differences, for the first words of a setting, and for a
   setting with more letters behind it. */
static void test_guesses_are_near(void **state)
{
    static const struct {
        const char *name, *guess;
    } near[] = {
        { "TUTTI_TIMEOUTS", "TUTTI_TIMEOUT" },
        { "TUTTI_TIEMOUT", "TUTTI_TIMEOUT" },
        { "TUTTI_LOGS", "TUTTI_LOG" },
        { "TUTTI_RANKS", "TUTTI_RANK" },
        { "TUTTI_FUSION_BITES", "TUTTI_FUSION_BYTES" },
        { "TUTTI_FUSION", "TUTTI_FUSION_BYTES" },
        { "TUTTI_HOST", "TUTTI_HOST_ID" },
        { "TUTTI_LOGLEVEL", "TUTTI_LOG" },
        { "TUTTI_DEVICE_ID_LIST", "TUTTI_DEVICE_ID" },
        { "TUTTI_STATS_FOLDER", "TUTTI_STATS" },
    };
    static const char *const far[] = { "TUTTI_FOO", "TUTTI_LO", "TUTTI_FAKE", "TUTTI_FUS" };
    char text[4096], wanted[128];

    (void)state;
    for (size_t i = 0; i < sizeof(near) / sizeof(*near); i++) {
        clearenv();
        setenv(near[i].name, "1", 1);
        said_by_child(text, sizeof(text));
        snprintf(wanted, sizeof(wanted), "%s is no setting; did you mean %s?\n", near[i].name,
                 near[i].guess);
        if (count(text, wanted) != 1)
            fail_msg("%s: %s", near[i].guess, text);
    }
    for (size_t i = 0; i < sizeof(far) / sizeof(*far); i++) {
        clearenv();
        setenv(far[i], "1", 1);
        said_by_child(text, sizeof(text));
        if (count(text, "TUTTI_HELP=1 lists") != 1)
            fail_msg("%s", text);
    }
}

/* Variables that have no effect alone: with them only, each process would be a world of one. */
static void test_lonely_ranks_warn(void **state)
{
    static const char wanted[] = "counts only with TUTTI_BOOT=local:NAME";
    char text[4096];

    (void)state;
    setenv("TUTTI_RANK", "1", 1);
    said_by_child(text, sizeof(text));
    assert_int_equal(count(text, "tutti warn: TUTTI_RANK is set, but it counts only"), 1);
    assert_int_equal(count(text, wanted), 1);
    setenv("TUTTI_SIZE", "2", 1);
    said_by_child(text, sizeof(text));
    assert_int_equal(count(text, wanted), 1);
    unsetenv("TUTTI_RANK");
    said_by_child(text, sizeof(text));
    assert_int_equal(count(text, "tutti warn: TUTTI_SIZE is set, but it counts only"), 1);

    setenv("TUTTI_RANK", "0", 1);
    setenv("TUTTI_BOOT", "local:x", 1);
    said_by_child(text, sizeof(text));
    assert_string_equal(text, "");
}

static void test_help(void **state)
{
    static char text[16384];

    (void)state;
    setenv("TUTTI_HELP", "yes", 1);
    said_by_child(text, sizeof(text));
    assert_int_equal(count(text, "set up by these environment variables"), 1);
    assert_int_equal(count(text, "\nTUTTI_CHUNK_BYTES [bytes, 1K to 64M; auto; auto]\n    "), 1);
    assert_int_equal(count(text, "\nTUTTI_RANK [a number, 0 to 16777215; not set]\n    "), 1);
    assert_int_equal(count(text, "\nTUTTI_"), 43);
    assert_int_equal(count(text, "`tutti_sched list`"), 1);
}

static void test_launchers(void **state)
{
    const char *name = "untouched";
    char text[64];

    (void)state;
    assert_int_equal(tutti__conf_launcher_size(&name), 0);
    assert_string_equal(name, "untouched");
    assert_int_equal(tutti__conf_launcher_rank(), -1);
    assert_null(tutti__conf_launcher_mpi());

    /* The batch script of a job with four tasks is one process, not a rank. */
    setenv("SLURM_NTASKS", "4", 1);
    setenv("SLURM_PROCID", "0", 1);
    assert_int_equal(tutti__conf_launcher_size(&name), 0);

    /* A rank of srun, without PMI or with it. */
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    setenv("SLURM_PROCID", "3", 1);
    assert_int_equal(tutti__conf_launcher_size(&name), 4);
    assert_string_equal(name, "srun");
    assert_int_equal(tutti__conf_launcher_rank(), 3);
    assert_null(tutti__conf_launcher_mpi());
    setenv("PMI_SIZE", "4", 1);
    setenv("PMI_RANK", "3", 1);
    assert_int_equal(tutti__conf_launcher_size(&name), 4);
    assert_string_equal(name, "srun");
    assert_null(tutti__conf_launcher_mpi());

    /* A rank of mpiexec, which has started its helpers, one per host, with srun. */
    setenv("SLURM_STEP_NUM_TASKS", "2", 1);
    setenv("PMI_SIZE", "8", 1);
    setenv("PMI_RANK", "7", 1);
    setenv("MPI_LOCALNRANKS", "4", 1);
    assert_int_equal(tutti__conf_launcher_size(&name), 8);
    assert_string_equal(name, "mpiexec");
    assert_int_equal(tutti__conf_launcher_rank(), 7);
    assert_string_equal(tutti__conf_launcher_mpi(), "mpich");

    setenv("OMPI_COMM_WORLD_SIZE", "16", 1);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    assert_int_equal(tutti__conf_launcher_size(&name), 16);
    assert_string_equal(name, "mpirun");
    assert_int_equal(tutti__conf_launcher_rank(), 0);
    assert_string_equal(tutti__conf_launcher_mpi(), "openmpi");

    setenv("PMIX_NAMESPACE", "job-7", 1);
    tutti__conf_launcher_job(text, sizeof(text));
    assert_string_equal(text, "job-7");

    clearenv();
    tutti__conf_launcher_job(text, sizeof(text));
    assert_string_equal(text, "");
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    setenv("SLURM_JOB_ID", "123", 1);
    setenv("SLURM_STEP_ID", "5", 1);
    tutti__conf_launcher_job(text, sizeof(text));
    assert_string_equal(text, "123.5");

    clearenv();
    setenv("PMI_SIZE", "many", 1);
    assert_int_equal(tutti__conf_launcher_size(&name), 0);
    setenv("PMI_SIZE", "2", 1);
    assert_int_equal(tutti__conf_launcher_size(&name), 2);
    assert_int_equal(tutti__conf_launcher_rank(), -1);
    assert_string_equal(tutti__conf_launcher_mpi(), "mpich");
}

#define cleanly(test) cmocka_unit_test_setup(test, clean_environment)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cleanly(test_parse_bytes),
        cleanly(test_parse_seconds),
        cleanly(test_parse_words),
        cleanly(test_distance),
        cleanly(test_unknown_names_warn), /* runs before this process has printed a message */
        cleanly(test_guesses_are_near),
        cleanly(test_lonely_ranks_warn),
        cleanly(test_help),
        cleanly(test_defaults),
        cleanly(test_every_setting),
        cleanly(test_long_paths),
        cleanly(test_nonsense_is_refused),
        cleanly(test_ranks_are_complete),
        cleanly(test_long_texts_are_refused),
        cleanly(test_secrets_are_not_printed),
        cleanly(test_launchers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
