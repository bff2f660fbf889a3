/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files that the flags name, on rank 0. A file that cannot be written is reported before the
 * measurements.
 */
#include "harness/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void bench_cannot(const bench_t *bench, const char *flag, const char *path)
{
    fprintf(stderr, "%s: %s %s: %s\n", bench->program->name, flag, path,
            errno != 0 ? strerror(errno) : "cannot be written");
}

int bench_can_write(const bench_t *bench, const char *flag, const char *path)
{
    struct stat file;
    int is_there;
    int fd;

    if (path == NULL || strcmp(path, "-") == 0)
        return 1;
    if (stat(path, &file) == 0 && S_ISFIFO(file.st_mode))
        return 1; /* a test that opens and closes the pipe would end its reader */
    is_there = lstat(path, &file) == 0;
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        bench_cannot(bench, flag, path);
        return 0;
    }
    close(fd);
    if (!is_there)
        unlink(path);
    return 1;
}

void bench_judge_files(bench_options_t *options)
{
    if (options->csv != NULL && options->json != NULL && strcmp(options->csv, "-") == 0 &&
        strcmp(options->json, "-") == 0)
        bench_complain(options, "--json -: stdout is --csv's");
}

int bench_csv_open(const bench_t *bench, FILE **ret_csv)
{
    const char *path = bench->options.csv;

    *ret_csv = NULL;
    if (path == NULL)
        return 1;
    *ret_csv = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    if (*ret_csv == NULL)
        bench_cannot(bench, "--csv", path);
    return *ret_csv != NULL;
}

int bench_csv_close(const bench_t *bench, FILE *csv)
{
    int failed;

    if (csv == NULL)
        return 1;
    errno = 0;
    failed = fflush(csv) != 0 || ferror(csv);
    if (csv != stdout)
        failed = fclose(csv) != 0 || failed;
    if (failed)
        bench_cannot(bench, "--csv", bench->options.csv);
    return !failed;
}
