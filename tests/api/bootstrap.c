/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks without a launcher: this program starts itself with fork and exec, and the ranks meet by a
 * unique id in a file, or by a store made of files. Also tests the error cases.
 *
 * bootstrap                      all cases
 * bootstrap CASE RANK SIZE DIR   one rank
 */
#include "api/api.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

enum {
    MOST = 8
};

static int rank, size;
static const char *folder;

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- files ---- */

/* Make a file atomically: a concurrent reader reads the whole file or finds no file. */
static int put_file(const char *name, const void *bytes, size_t length)
{
    char path[512], temporary[560];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    snprintf(temporary, sizeof(temporary), "%s.%d", path, (int)getpid());
    file = fopen(temporary, "wb");
    if (file == NULL || fwrite(bytes, 1, length, file) != length || fclose(file) != 0)
        return errno;
    return rename(temporary, path) == 0 ? 0 : errno;
}

/* Waits for the file. */
static int get_file(const char *name, void *bytes, size_t room, size_t *ret_length, int timeout_ms)
{
    char path[512];
    FILE *file = NULL;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    for (int waited = 0; (file = fopen(path, "rb")) == NULL; waited += 2) {
        if (waited >= timeout_ms)
            return ETIMEDOUT;
        usleep(2000);
    }
    *ret_length = fread(bytes, 1, room, file);
    fclose(file);
    return 0;
}

/* Replace the slashes of a key, because file names have none. */
static void name_file(const char *key, char *name, size_t room)
{
    snprintf(name, room, "%s", key);
    for (char *at = name; *at != '\0'; at++)
        if (*at == '/')
            *at = '_';
}

static int set_key(void *context, const char *key, const void *value, size_t bytes)
{
    char name[256];

    (void)context;
    name_file(key, name, sizeof(name));
    return put_file(name, value, bytes);
}

static int get_key(void *context, const char *key, void *value, size_t room, size_t *ret_bytes,
                   int timeout_ms)
{
    char name[256];

    (void)context;
    name_file(key, name, sizeof(name));
    return get_file(name, value, room, ret_bytes, timeout_ms);
}

/* ---- one rank ---- */

static tutti_options_t options(void)
{
    tutti_options_t o = TUTTI_OPTIONS_INIT;

    o.rank = rank;
    o.nranks = size;
    return o;
}

/* The maker writes the id for all ranks, and the other ranks read it. */
static void share_id(const char *name, int maker, tutti_unique_id_t *ret_id)
{
    size_t length;

    if (rank == maker) {
        CHECK_OK(tutti_unique_id_create(ret_id));
        CHECK_INT(put_file(name, ret_id, sizeof(*ret_id)), 0);
    } else {
        CHECK_INT(get_file(name, ret_id, sizeof(*ret_id), &length, 20000), 0);
        CHECK_INT(length, sizeof(*ret_id));
    }
}

static void work(tutti_comm_t *comm)
{
    int me = rank, sum = rank, all[MOST];
    tutti_comm_t *part;
    tutti_request_t *request;
    float x[500];

    CHECK_OK(tutti_allgather(&me, all, 1, TUTTI_INT32, comm));
    for (int i = 0; i < size; i++)
        CHECK_INT(all[i], i);
    for (int i = 0; i < 500; i++)
        x[i] = (float)(rank + i);
    CHECK_OK(tutti_allreduce_async("x", x, x, 500, TUTTI_FLOAT32, TUTTI_SUM, comm, NULL, &request));
    CHECK_OK(tutti_wait(request, -1));
    for (int i = 0; i < 500; i++)
        CHECK_INT(x[i], size * (size - 1) / 2 + size * i);
    CHECK_OK(tutti_comm_split(comm, rank % 2, -rank, &part));
    CHECK_INT(tutti_size(part), (size + 1 - rank % 2) / 2);
    CHECK_OK(tutti_allreduce(&sum, &sum, 1, TUTTI_INT32, TUTTI_MAX, part));
    CHECK_INT(sum, size - 1 - (size - 1 - rank) % 2);
}

static void start(const tutti_options_t *o)
{
    CHECK_OK(tutti_init(o));
    CHECK_INT(tutti_rank(tutti_world()), rank);
    CHECK_INT(tutti_size(tutti_world()), size);
    work(tutti_world());
}

static void by_id(int maker)
{
    tutti_options_t o = options();
    tutti_unique_id_t id;
    double began;

    share_id("id", maker, &id);
    o.unique_id = &id;
    start(&o);
    CHECK_OK(tutti_barrier(tutti_world()));
    /* The maker has continued. If a rank uses the id again, it is rejected, even if the maker has
       ended. */
    if (rank != maker) {
        CHECK_OK(tutti_finalize());
        began = now_s();
        CHECK(tutti_init(&o) != TUTTI_OK);
        CHECK(strstr(tutti_last_error(), "unique id") != NULL);
        CHECK(now_s() - began < 50); /* TUTTI_TIMEOUT is 60 */
        return;
    }
    usleep(100000);
    CHECK_OK(tutti_finalize());
}

/* After the first world the ranks make further worlds, each with the id of another rank. */
static void again(void)
{
    tutti_options_t o = options();
    tutti_unique_id_t id;

    for (int round = 0; round < 3; round++) {
        char name[16];

        snprintf(name, sizeof(name), "id%d", round);
        share_id(name, round % size, &id);
        o.unique_id = &id;
        start(&o);
        CHECK_OK(tutti_finalize());
    }
}

static void by_store(const char *prefix)
{
    tutti_store_t store = { sizeof(store), NULL, prefix, set_key, get_key };
    tutti_options_t o = options();

    o.store = &store;
    start(&o);
    CHECK_OK(tutti_finalize());
}

/* The late rank calls tutti_init after another rank has logged a warning that it waits. */
static void note_warning(void *arg, tutti_log_level_t level, const char *text)
{
    if (level == TUTTI_LOG_WARN && strstr(text, arg) != NULL)
        (void)put_file("warned", "1", 1);
}

static void late(int late_rank, int has_store, const char *words)
{
    tutti_store_t store = { sizeof(store), NULL, "late", set_key, get_key };
    tutti_options_t o = options();
    tutti_unique_id_t id;
    char copy[100], byte;
    size_t length;

    snprintf(copy, sizeof(copy), "%s", words);
    setenv("TUTTI_STALL_WARNING", "0.2", 1);
    CHECK_OK(tutti_log_set_callback(note_warning, copy));
    o.store = has_store ? &store : NULL;
    if (!has_store) {
        share_id("id", 0, &id);
        o.unique_id = &id;
    }
    if (rank == late_rank)
        CHECK_INT(get_file("warned", &byte, 1, &length, 25000), 0);
    start(&o);
    CHECK_OK(tutti_finalize());
    CHECK_OK(tutti_log_set_callback(NULL, NULL));
}

/* Rank 1 is started, and ends before it calls tutti_init. */
static void missing(void)
{
    tutti_options_t o = options();
    tutti_unique_id_t id;
    double began = now_s();
    size_t length;
    char byte;

    share_id("id", 0, &id);
    o.unique_id = &id;
    if (rank == 1)
        return;
    CHECK_ERROR(tutti_init(&o), TUTTI_ERR_TIMEOUT, "rank 1 did not come");
    CHECK(now_s() - began < 60); /* TUTTI_TIMEOUT is 4 */
    CHECK(tutti_world() == NULL);
    /* Ranks that wait for the maker receive its report before the maker ends. */
    if (rank == 0)
        CHECK_INT(get_file("told", &byte, 1, &length, 60000), 0);
    else
        CHECK_INT(put_file("told", "1", 1), 0);
    CHECK_OK(tutti_finalize());
}

static void mistakes(void)
{
    tutti_store_t store = { sizeof(store), NULL, "p", set_key, get_key };
    tutti_options_t o = options();
    tutti_unique_id_t id, damaged;

    CHECK_STATUS(tutti_unique_id_create(NULL), TUTTI_ERR_INVALID_ARGUMENT);
    share_id("id", 0, &id);
    CHECK_ERROR(tutti_init(&o), TUTTI_ERR_INVALID_ARGUMENT, "nranks");
    o.unique_id = &id;
    o.store = &store;
    CHECK_ERROR(tutti_init(&o), TUTTI_ERR_INVALID_ARGUMENT, "both");
    o.store = NULL;
    o.mpi_comm = &o;
    CHECK_ERROR(tutti_init(&o), TUTTI_ERR_INVALID_ARGUMENT, "mpi_comm");
    o.mpi_comm = NULL;
    o.rank = size;
    CHECK_ERROR(tutti_init(&o), TUTTI_ERR_INVALID_ARGUMENT, "there is no rank");
    o.rank = -1;
    CHECK_ERROR(tutti_init(&o), TUTTI_ERR_INVALID_ARGUMENT, "there is no rank");
    o.rank = rank;
    setenv("TUTTI_BOOT", "self", 1);
    CHECK_ERROR(tutti_init(&o), TUTTI_ERR_INVALID_ARGUMENT, "TUTTI_BOOT=self");
    unsetenv("TUTTI_BOOT");
    damaged = id;
    damaged.bytes[77] ^= 4;
    o.unique_id = &damaged;
    CHECK_ERROR(tutti_init(&o), TUTTI_ERR_INVALID_ARGUMENT, "damaged");
    memset(&damaged, 0, sizeof(damaged));
    CHECK_ERROR(tutti_init(&o), TUTTI_ERR_INVALID_ARGUMENT, "is no unique id");
    o.unique_id = NULL;
    o.store = &store;
    store.get = NULL;
    CHECK_ERROR(tutti_init(&o), TUTTI_ERR_INVALID_ARGUMENT, "store->get");
    store.get = get_key;
    store.size = 4;
    CHECK_ERROR(tutti_init(&o), TUTTI_ERR_ABI, "store->size is 4, but the first version had 40");
    /* After these errors init succeeds. */
    o = options();
    o.unique_id = &id;
    start(&o);
    CHECK_OK(tutti_finalize());
}

/* Unused ids do not prevent a process from ending, with or without tutti_finalize. */
static void unused(void)
{
    tutti_unique_id_t id;

    for (int i = 0; i < 50; i++)
        CHECK_OK(tutti_unique_id_create(&id));
    if (rank == 0)
        CHECK_OK(tutti_finalize());
    for (int i = 0; i < 3; i++)
        CHECK_OK(tutti_unique_id_create(&id));
}

static int be_rank(const char *what)
{
    if (strncmp(what, "id", 2) == 0)
        by_id(atoi(what + 2));
    else if (strcmp(what, "again") == 0)
        again();
    else if (strcmp(what, "store") == 0)
        by_store("job/1");
    else if (strcmp(what, "late by id") == 0)
        late(1, 0, " s: rank 1 has not come");
    else if (strcmp(what, "late by store") == 0)
        late(1, 1, " s: rank 1 has not connected to it");
    else if (strcmp(what, "late rank 0") == 0)
        late(0, 1, " s for rank 0, which has not written the store's key late/tutti/place");
    else if (strcmp(what, "missing") == 0)
        missing();
    else if (strcmp(what, "mistakes") == 0)
        mistakes();
    else if (strcmp(what, "unused") == 0)
        unused();
    else
        FAIL("there is no case %s", what);
    return 0;
}

/* ---- all cases ---- */

static void remove_folder(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    char name[600];

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.')
            unlink(name);
    }
    if (dir != NULL)
        closedir(dir);
    rmdir(path);
}

static pid_t start_rank(const char *what, int number, int count, const char *path)
{
    char number_text[16], count_text[16];
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    snprintf(number_text, sizeof(number_text), "%d", number);
    snprintf(count_text, sizeof(count_text), "%d", count);
    execl("/proc/self/exe", "bootstrap", what, number_text, count_text, path, (char *)NULL);
    _exit(127);
}

/* hosts: one letter per rank, or NULL. */
static int run(const char *what, int count, const char *hosts)
{
    char path[] = "/tmp/tutti-bootstrap-XXXXXX", host[2] = "";
    int failures = 0, status;
    pid_t pid[MOST];

    CHECK(mkdtemp(path) != NULL);
    /* Start the last rank first, so that the others wait for rank 0. */
    for (int r = count - 1; r >= 0; r--) {
        if (hosts != NULL) {
            host[0] = hosts[r];
            setenv("TUTTI_HOST_ID", host, 1);
        }
        pid[r] = start_rank(what, r, count, path);
        CHECK(pid[r] > 0);
    }
    unsetenv("TUTTI_HOST_ID");
    for (int r = 0; r < count; r++) {
        waitpid(pid[r], &status, 0);
        if (status != 0) {
            fprintf(stderr, "%s with %d ranks: rank %d ended with %x\n", what, count, r,
                    (unsigned)status);
            failures++;
        }
    }
    remove_folder(path);
    return failures;
}

int main(int argc, char **argv)
{
    static const int sizes[] = { 1, 2, 3, 4, 5, 8 };
    int failures = 0;

    if (argc == 5) {
        alarm(150);
        rank = atoi(argv[2]);
        size = atoi(argv[3]);
        folder = argv[4];
        return be_rank(argv[1]);
    }
    clean_environment();
    setenv("TUTTI_TIMEOUT", "60", 1);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char last[16];

        snprintf(last, sizeof(last), "id%d", sizes[i] - 1);
        failures += run("id0", sizes[i], NULL);
        failures += run(last, sizes[i], NULL);
        failures += run("store", sizes[i], NULL);
    }
    failures += run("id1", 4, "aabb");
    failures += run("store", 3, "abc");
    failures += run("again", 3, NULL);
    failures += run("late by id", 3, NULL);
    failures += run("late by store", 3, NULL);
    failures += run("late rank 0", 2, NULL);
    failures += run("mistakes", 2, NULL);
    failures += run("unused", 2, NULL);
    setenv("TUTTI_TIMEOUT", "4", 1);
    failures += run("missing", 3, NULL);
    return failures != 0;
}
