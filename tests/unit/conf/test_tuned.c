/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tuned files: their content, the choice of this machine's file, and precedence.
 */
#include "base/log.h"
#include "conf/conf.h"
#include "conf/tuned.h"
#include "unit/base/capture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/tutti-tuned-XXXXXX";
static char file[64]; /* a file in that folder */

static void put_file(const char *path, const char *text)
{
    FILE *to = fopen(path, "w");

    assert_non_null(to);
    assert_int_equal(fputs(text, to) < 0, 0);
    assert_int_equal(fclose(to), 0);
}

/* As put_file, but makes the folders as well. */
static void put_below(const char *root, const char *path, const char *text)
{
    char full[512];

    assert_true(snprintf(full, sizeof(full), "%s%s", root, path) < (int)sizeof(full));
    for (char *at = strchr(full + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        mkdir(full, 0755);
        *at = '/';
    }
    put_file(full, text);
}

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(file, sizeof(file), "%s/tuned", folder);
    return 0;
}

static int remove_folder(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

static int clean_environment(void **state)
{
    (void)state;
    unlink(file);
    return clearenv();
}

/* ---- the content of a file ---- */

static void test_parse(void **state)
{
    static const char text[] = "# made by hand\n\n \t tutti_tuned\t1 # the format\r\n"
                               "TUTTI_ONESHOT_BYTES 48K\n  A 1#\nB 2";
    tutti__tuned_t tuned;
    char why[200] = "";

    (void)state;
    assert_int_equal(tutti__tuned_parse(text, strlen(text), &tuned, why, sizeof(why)), 1);
    assert_string_equal(why, "");
    assert_int_equal(tuned.count, 3);
    assert_string_equal(tuned.entry[0].name, "TUTTI_ONESHOT_BYTES");
    assert_string_equal(tuned.entry[0].value, "48K");
    assert_int_equal(tuned.entry[0].line, 4);
    assert_string_equal(tuned.entry[2].name, "B");
    assert_string_equal(tuned.entry[2].value, "2");
    assert_int_equal(tuned.entry[2].line, 6);
}

static void test_parse_refuses(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        { "", "line 1: want \"tutti_tuned 1\" first" },
        { "# nothing\n", "line 1: want \"tutti_tuned 1\" first" },
        { "A 1\n", "line 1: want \"tutti_tuned 1\" first" },
        { "tutti_tuned one\n", "line 1: want \"tutti_tuned 1\" first" },
        { "\ntutti_tuned 2\nanything at all", "line 2: version 2; this library reads 1" },
        { "tutti_tuned 1\nA\n", "line 2: want NAME VALUE" },
        { "tutti_tuned 1\nA # 1\n", "line 2: want NAME VALUE" },
        { "tutti_tuned 1\nA 1 2\n", "line 2: want NAME VALUE" },
        { "tutti_tuned 1\nA 1\n\nA 1\n", "line 4: A stands in line 2 already" },
        { "tutti_tuned 1\nA \x01\n", "line 2: not a text file" },
        { "tutti_tuned 1\nabcdefghijklmnopqrstuvwxyzabcdefgh 1\n",
          "line 2: abcdefghijklmnopqrstuvwxyzabcde...: longer than 31 letters" },
    };
    tutti__tuned_t tuned;
    char why[200];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        size_t bytes = strlen(cases[i].text);

        assert_int_equal(tutti__tuned_parse(cases[i].text, bytes, &tuned, why, sizeof(why)), 0);
        assert_string_equal(why, cases[i].why);
    }
    assert_int_equal(tutti__tuned_parse("tutti_tuned 1\nA\0B 1", 19, &tuned, why, sizeof(why)), 0);
    assert_string_equal(why, "line 2: not a text file");
}

static void test_parse_limits(void **state)
{
    static char text[TUTTI__TUNED_BYTES + 1];
    size_t used = (size_t)sprintf(text, "tutti_tuned 1\n");
    tutti__tuned_t tuned;
    char why[200];

    (void)state;
    for (int i = 0; i < TUTTI__TUNED_MOST; i++)
        used += (size_t)sprintf(text + used, "A%d 1\n", i);
    assert_int_equal(tutti__tuned_parse(text, used, &tuned, why, sizeof(why)), 1);
    assert_int_equal(tuned.count, TUTTI__TUNED_MOST);
    memset(text + used, ' ', sizeof(text) - used);
    assert_int_equal(tutti__tuned_parse(text, sizeof(text) - 1, &tuned, why, sizeof(why)), 1);
    assert_int_equal(tutti__tuned_parse(text, sizeof(text), &tuned, why, sizeof(why)), 0);
    assert_string_equal(why, "line 1: longer than 8192 bytes");
    used += (size_t)sprintf(text + used, "more 1\n");
    assert_int_equal(tutti__tuned_parse(text, used, &tuned, why, sizeof(why)), 0);
    assert_string_equal(why, "line 34: more than 32 settings");
}

/* ---- the choice of a file ---- */

static const char x86[] = "processor\t: 0\nvendor_id\t: X\ncpu family\t: 25\nmodel\t\t: 17\n"
                          "model name\t: ACME(R) 9554 64-Core @ 3.1GHz/x\nmodel\t\t: 99\n";
static const char arm[] = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n";

static void test_name(void **state)
{
    static const char *const cache = "/sys/devices/system/cpu/cpu0/cache/";
    char name[TUTTI__TUNED_NAME], root[64], path[128];
    static const struct {
        const char *level, *size;
    } caches[] = { { "1\n", "32K\n" }, { "2\n", "1024K\n" }, { "3\n", "32768K\n" } };

    (void)state;
    snprintf(root, sizeof(root), "%s/none", folder);
    tutti__tuned_name(root, 3, name);
    assert_string_equal(name, "processor-0cpus-3ranks");

    snprintf(root, sizeof(root), "%s/x86", folder);
    put_below(root, "/proc/cpuinfo", x86);
    put_below(root, "/sys/devices/system/cpu/online", "0-3,8,10-11\n");
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%sindex%d/level", cache, i);
        put_below(root, path, caches[i].level);
        snprintf(path, sizeof(path), "%sindex%d/size", cache, i);
        put_below(root, path, caches[i].size);
    }
    tutti__tuned_name(root, 2, name);
    assert_string_equal(name, "ACME_R__9554_64-Core___3.1GHz_x-25-17-7cpus-L2_1024K-L3_32768K-"
                              "2ranks");

    snprintf(root, sizeof(root), "%s/arm", folder);
    put_below(root, "/proc/cpuinfo", arm);
    put_below(root, "/sys/devices/system/cpu/online", "0\n");
    tutti__tuned_name(root, 12, name);
    assert_string_equal(name, "0x41-0xd40-1cpus-12ranks");
}

static void test_path(void **state)
{
    char path[TUTTI__TUNED_PATH], name[TUTTI__TUNED_NAME], wanted[TUTTI__TUNED_PATH];

    (void)state;
    assert_int_equal(tutti__tuned_path(2, path), 0);
    tutti__tuned_name("", 2, name);
    setenv("HOME", "/h", 1);
    assert_int_equal(tutti__tuned_path(2, path), 1);
    snprintf(wanted, sizeof(wanted), "/h/.config/tutti/tuned/%s", name);
    assert_string_equal(path, wanted);
    setenv("XDG_CONFIG_HOME", "/x", 1);
    assert_int_equal(tutti__tuned_path(2, path), 1);
    snprintf(wanted, sizeof(wanted), "/x/tutti/tuned/%s", name);
    assert_string_equal(path, wanted);
    setenv("XDG_CONFIG_HOME", "x", 1); /* relative: ignored */
    assert_int_equal(tutti__tuned_path(2, path), 1);
    assert_memory_equal(path, "/h/.config/", 11);
}

/* ---- the settings in use, and the messages ---- */

/* The settings that a child reads from a file with this text. ret_said: the child's output, in
   which a message appears once although the child reads twice. */
static tutti__conf_t read_with(const char *text, char *ret_said, size_t room)
{
    tutti__conf_t conf;
    int ends[2], how;
    pid_t child;

    if (text != NULL)
        put_file(file, text);
    assert_int_equal(pipe(ends), 0);
    capture_begin();
    child = fork();
    if (child == 0) {
        if (tutti__conf_read(&conf) != TUTTI_OK || tutti__conf_read(&conf) != TUTTI_OK)
            _exit(1);
        _exit(write(ends[1], &conf, sizeof(conf)) != sizeof(conf));
    }
    waitpid(child, &how, 0);
    capture_end(ret_said, room);
    assert_int_equal(how, 0);
    assert_int_equal(read(ends[0], &conf, sizeof(conf)), sizeof(conf));
    close(ends[0]);
    close(ends[1]);
    return conf;
}

static void assert_defaults(const tutti__conf_t *conf)
{
    tutti__conf_t defaults;

    tutti__conf_defaults(&defaults);
    assert_memory_equal(&conf->shared, &defaults.shared, sizeof(defaults.shared));
}

static void test_variables_go_before(void **state)
{
    static const char text[] = "tutti_tuned 1\nTUTTI_ONESHOT_BYTES 48K\n"
                               "TUTTI_NODE_CHUNK_BYTES 1M\nTUTTI_CHUNK_BYTES 100000\n"
                               "TUTTI_LINK_NS 23000\nTUTTI_LINK_MBPS 940\n";
    char said[2048], wanted[512];
    tutti__conf_t conf;

    (void)state;
    setenv("TUTTI_TUNED", file, 1);
    setenv("TUTTI_NODE_CHUNK_BYTES", "512K", 1);
    setenv("TUTTI_CHUNK_BYTES", "", 1); /* counts as not set */
    setenv("TUTTI_LINK_MBPS", "2500", 1);
    conf = read_with(text, said, sizeof(said));
    assert_int_equal(conf.shared.oneshot_bytes, 48 << 10);
    assert_int_equal(conf.shared.node_chunk_bytes, 512 << 10);
    assert_int_equal(conf.shared.chunk_bytes, 100032); /* whole cache lines, as from a variable */
    assert_int_equal(conf.shared.link_ns, 23000);
    assert_int_equal(conf.shared.link_mbps, 2500);
    assert_string_equal(said, "");

    setenv("TUTTI_LOG", "info", 1);
    read_with(text, said, sizeof(said));
    snprintf(wanted, sizeof(wanted),
             "tutti info: tuned settings of %s: TUTTI_ONESHOT_BYTES=48K, "
             "TUTTI_NODE_CHUNK_BYTES=1M (not used: the variable is set), "
             "TUTTI_CHUNK_BYTES=100000, "
             "TUTTI_LINK_NS=23000, TUTTI_LINK_MBPS=940 (not used: the variable is set)\n",
             file);
    assert_string_equal(said, wanted);

    read_with("tutti_tuned 1\n", said, sizeof(said));
    snprintf(wanted, sizeof(wanted), "tutti info: tuned settings of %s: the defaults\n", file);
    assert_string_equal(said, wanted);
}

/* If one line is wrong, no line of the file is used, not even those before it. */
static void test_broken_files_warn(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        { "tutti_tuned 1\nTUTTI_ONESHOT_BYTES 48K\nTUTTI_NODE_CHUNK_BYTES 1\n",
          "line 3: TUTTI_NODE_CHUNK_BYTES 1 makes no sense; allowed: bytes, 4K to 1G" },
        { "tutti_tuned 1\nTUTTI_ONESHOT_BYTES 48K\nTUTTI_TIMEOUT 1\n",
          "line 3: TUTTI_TIMEOUT is not a tunable setting" },
        { "tutti_tuned 1\nTUTTI_LINK_NS 23us\n",
          "line 2: TUTTI_LINK_NS 23us makes no sense; allowed: a number, 0 to 1000000000" },
        { "tutti_tuned 1\nTUTTI_ONESHOT_BYTES 48K\nTUTTI_LATER_BYTES 1\n",
          "line 3: TUTTI_LATER_BYTES is not a tunable setting" },
        { "tutti_tuned 2\nTUTTI_ONESHOT_BYTES 48K\n", "line 1: version 2; this library reads 1" },
        { NULL, "No such file or directory" },
    };
    char said[2048], wanted[512];
    tutti__conf_t conf;

    (void)state;
    setenv("TUTTI_TUNED", file, 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        unlink(file);
        conf = read_with(cases[i].text, said, sizeof(said));
        assert_defaults(&conf);
        snprintf(wanted, sizeof(wanted), "tutti warn: tuned settings are not used: %s: %s\n", file,
                 cases[i].why);
        assert_string_equal(said, wanted);
    }
    /* An unreadable file is no failure. Only rank 0 logs the message. */
    setenv("TUTTI_TUNED", folder, 1);
    conf = read_with(NULL, said, sizeof(said));
    assert_defaults(&conf);
    assert_non_null(strstr(said, ": Is a directory\n"));
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    conf = read_with(NULL, said, sizeof(said));
    assert_defaults(&conf);
    assert_string_equal(said, "");
}

/* The process uses the machine's own file for the number of ranks that the launcher has started
   here. */
static void test_own_file(void **state)
{
    static const char text[] = "tutti_tuned 1\nTUTTI_ONESHOT_BYTES 48K\n";
    char path[TUTTI__TUNED_PATH], said[2048];
    tutti__conf_t conf;

    (void)state;
    setenv("XDG_CONFIG_HOME", folder, 1);
    assert_int_equal(tutti__tuned_path(2, path), 1);
    put_below("", path, text);
    setenv("TUTTI_LOG", "info", 1);
    conf = read_with(NULL, said, sizeof(said));
    assert_defaults(&conf);
    assert_string_equal(said, "tutti info: no tuned settings: no launcher says how many ranks this "
                              "host has; start the program under mpirun, or name the file in "
                              "TUTTI_TUNED\n");

    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
    conf = read_with(NULL, said, sizeof(said));
    assert_int_equal(conf.shared.oneshot_bytes, 48 << 10);
    assert_non_null(strstr(said, path));

    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "4", 1);
    conf = read_with(NULL, said, sizeof(said));
    assert_defaults(&conf);
    assert_non_null(strstr(said, "4ranks is not there; tutti_tune makes it\n"));

    setenv("TUTTI_BOOT", "local:x", 1);
    setenv("TUTTI_RANK", "0", 1);
    setenv("TUTTI_SIZE", "2", 1);
    conf = read_with(NULL, said, sizeof(said));
    assert_int_equal(conf.shared.oneshot_bytes, 48 << 10);

    setenv("TUTTI_TUNED", "none", 1);
    conf = read_with(NULL, said, sizeof(said));
    assert_defaults(&conf);
    assert_string_equal(said, "");
}

/* An unreadable home folder gives no warning; a broken file in a readable one does. */
static void test_closed_home(void **state)
{
    char root[64], path[TUTTI__TUNED_PATH], said[2048];
    tutti__conf_t conf;

    (void)state;
    snprintf(root, sizeof(root), "%s/loop", folder);
    assert_int_equal(symlink(root, root), 0);
    setenv("XDG_CONFIG_HOME", root, 1);
    setenv("TUTTI_BOOT", "self", 1);
    conf = read_with(NULL, said, sizeof(said));
    assert_defaults(&conf);
    assert_string_equal(said, "");
    setenv("TUTTI_LOG", "info", 1);
    read_with(NULL, said, sizeof(said));
    assert_memory_equal(said, "tutti info: no tuned settings: /", 32);
    assert_non_null(strstr(said, "-1ranks: Too many levels of symbolic links\n"));

    unsetenv("TUTTI_LOG");
    setenv("TUTTI_TUNED", root, 1);
    read_with(NULL, said, sizeof(said));
    assert_memory_equal(said, "tutti warn: tuned settings are not used: /", 42);

    unsetenv("TUTTI_TUNED");
    unlink(root);
    assert_int_equal(tutti__tuned_path(1, path), 1);
    put_below("", path, "tutti_tuned 2\n");
    read_with(NULL, said, sizeof(said));
    assert_memory_equal(said, "tutti warn: tuned settings are not used: /", 42);
}

static uint64_t oneshot_bytes(void)
{
    char said[2048];

    return read_with(NULL, said, sizeof(said)).shared.oneshot_bytes;
}

/* If ranks have numbers, only rank 0 reads the file in its home folder. All ranks read a file that
   TUTTI_TUNED names. */
static void test_home_is_for_rank_0(void **state)
{
    static const char text[] = "tutti_tuned 1\nTUTTI_ONESHOT_BYTES 48K\n";
    char path[TUTTI__TUNED_PATH];

    (void)state;
    setenv("XDG_CONFIG_HOME", folder, 1);
    for (uint64_t ranks = 1; ranks <= 2; ranks++) {
        assert_int_equal(tutti__tuned_path(ranks, path), 1);
        put_below("", path, text);
    }
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    assert_int_equal(oneshot_bytes(), 48 << 10);
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    assert_int_equal(oneshot_bytes(), 32 << 10);

    /* In the next cases the process is rank 0 of its own world, or the settings give its rank. */
    setenv("TUTTI_BOOT", "self", 1);
    assert_int_equal(oneshot_bytes(), 48 << 10);
    setenv("TUTTI_BOOT", "local:x", 1);
    setenv("TUTTI_RANK", "0", 1);
    setenv("TUTTI_SIZE", "2", 1);
    assert_int_equal(oneshot_bytes(), 48 << 10);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    setenv("TUTTI_RANK", "1", 1);
    assert_int_equal(oneshot_bytes(), 32 << 10);

    setenv("TUTTI_TUNED", path, 1);
    assert_int_equal(oneshot_bytes(), 48 << 10);
}

/* The tuned size of buckets was measured on one host, so it is used only if all ranks are on one
   host. */
static void test_buckets_are_for_one_host(void **state)
{
    static const char text[] = "tutti_tuned 1\nTUTTI_FUSION_BYTES 2M\n";
    char said[2048];
    tutti__conf_t conf;

    (void)state;
    setenv("TUTTI_TUNED", file, 1);
    setenv("TUTTI_LOG", "info", 1);
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
    conf = read_with(text, said, sizeof(said));
    assert_int_equal(conf.shared.fusion_bytes, TUTTI__CONF_AUTO);
    assert_non_null(strstr(said, "TUTTI_FUSION_BYTES=2M (not used: for one host)"));
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    conf = read_with(text, said, sizeof(said));
    assert_int_equal(conf.shared.fusion_bytes, 2 << 20);
    assert_null(strstr(said, "not used"));
}

static void test_local_sizes(void **state)
{
    (void)state;
    assert_int_equal(tutti__conf_launcher_local_size(), 0);
    setenv("SLURM_STEP_NUM_TASKS", "11", 1);
    setenv("SLURM_PROCID", "0", 1);
    assert_int_equal(tutti__conf_launcher_local_size(), 0);
    setenv("SLURM_STEP_TASKS_PER_NODE", "4(x2),3", 1);
    assert_int_equal(tutti__conf_launcher_local_size(), 4);
    setenv("SLURM_STEP_TASKS_PER_NODE", "11", 1);
    setenv("PMI_SIZE", "11", 1); /* set by srun */
    assert_int_equal(tutti__conf_launcher_local_size(), 11);
    setenv("MPI_LOCALNRANKS", "5", 1); /* set by mpiexec */
    assert_int_equal(tutti__conf_launcher_local_size(), 5);
    setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
    assert_int_equal(tutti__conf_launcher_local_size(), 0);
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "8", 1);
    assert_int_equal(tutti__conf_launcher_local_size(), 8);
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "(", 1);
    assert_int_equal(tutti__conf_launcher_local_size(), 0);
}

#define cleanly(test) cmocka_unit_test_setup(test, clean_environment)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cleanly(test_parse),
        cleanly(test_parse_refuses),
        cleanly(test_parse_limits),
        cleanly(test_name),
        cleanly(test_path),
        cleanly(test_variables_go_before),
        cleanly(test_broken_files_warn),
        cleanly(test_own_file),
        cleanly(test_closed_home),
        cleanly(test_home_is_for_rank_0),
        cleanly(test_buckets_are_for_one_host),
        cleanly(test_local_sizes),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
