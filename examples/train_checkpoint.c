/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file of a checkpoint, in the machine's own byte order:
 *
 *     header | about: text | results of epochs | parameters | optimizer's state | CRC-32 of all
 *
 * The last epoch may be incomplete; its result is preliminary.
 *
 * No byte is used before magic, byte order, version, length and CRC have been checked. They are
 * checked in this order, so that each kind of wrong file gets the most helpful error.
 */
#include "train_checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "train_about.h"

#define PATH_BYTES 4096
#define MAGIC "TuttiTrn"
#define VERSION 3
#define ORDER 0x01020304u
#define ORDER_SWAPPED 0x04030201u

typedef struct {
    char magic[8];
    uint32_t order;
    uint32_t version;
    uint64_t file_bytes;
    uint64_t about_bytes;
    uint64_t epochs;
    uint64_t steps;
    uint64_t parameter_count;
    uint64_t state_count;
    double epoch_loss;
} header_t;

/* An array of the file. */
typedef struct {
    void *bytes;
    size_t count;
} part_t;

#define PARTS 4

static void list_parts(const train_checkpoint_t *checkpoint, part_t *ret_parts)
{
    const part_t parts[PARTS] = {
        { (void *)checkpoint->about, strlen(checkpoint->about) },
        { checkpoint->results, checkpoint->epochs * sizeof(*checkpoint->results) },
        { checkpoint->parameters, checkpoint->parameter_count * sizeof(float) },
        { checkpoint->state, checkpoint->state_count * sizeof(float) },
    };

    memcpy(ret_parts, parts, sizeof(parts));
}

/* A checkpoint's file, without links, and the temporary file beside it. */
typedef struct {
    char file[PATH_BYTES];
    char temporary[PATH_BYTES];
} paths_t;

static bool find_paths(const char *path, paths_t *ret_paths, train_error_t *error)
{
    char *real = realpath(path, NULL); /* NULL: there is no file */
    const char *file = real != NULL ? real : path;
    const int length = snprintf(ret_paths->temporary, PATH_BYTES, "%s.tmp", file);
    const bool fits = length > 0 && length < PATH_BYTES;

    if (fits)
        memcpy(ret_paths->file, file, strlen(file) + 1);
    free(real);
    return fits ||
           train_fail(error, "--checkpoint: the path is longer than %d bytes", PATH_BYTES - 5);
}

/* May a temporary file be overwritten? Yes if it begins as a checkpoint does, or is empty. If it
   cannot be opened, the caller's own attempt reports why. */
static bool is_leftover(const char *path)
{
    char magic[sizeof(MAGIC) - 1];
    const int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

    if (file < 0)
        return true;
    const ssize_t got = read(file, magic, sizeof(magic));
    close(file);
    return got == 0 || (got == sizeof(magic) && memcmp(magic, MAGIC, sizeof(magic)) == 0);
}

bool train_checkpoint_probe(const char *path, train_error_t *error)
{
    paths_t paths;
    struct stat info;

    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return train_fail(error, "--checkpoint %s: not a file", path);
    if (stat(path, &info) != 0 && lstat(path, &info) == 0)
        return train_fail(error, "--checkpoint %s: a link to a file that is missing", path);
    if (!find_paths(path, &paths, error))
        return false;
    if (!is_leftover(paths.temporary))
        return train_fail(error,
                          "--checkpoint %s: its temporary file %s holds something else; remove it "
                          "first",
                          path, paths.temporary);
    return train_probe_file("--checkpoint", path, paths.temporary, error);
}

bool train_checkpoint_replaceable(const char *path, bool overwrite, train_error_t *error)
{
    header_t header = { 0 };
    const int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

    if (file < 0)
        return errno == ENOENT || train_fail(error, "--checkpoint %s: %s", path, strerror(errno));
    const ssize_t got = read(file, &header, sizeof(header));
    const int reason = errno;
    close(file);

    if (got < 0)
        return train_fail(error, "--checkpoint %s: %s", path, strerror(reason));
    if (got == 0)
        return true;
    if (memcmp(header.magic, MAGIC, sizeof(header.magic)) != 0)
        return train_fail(error, "--checkpoint %s: holds something else; remove it first", path);
    if (overwrite)
        return true;
    if (got < (ssize_t)sizeof(header) || header.order != ORDER || header.version != VERSION)
        return train_fail(error,
                          "--checkpoint %s: holds another version's checkpoint, or half of one; "
                          "--overwrite replaces it",
                          path);
    return train_fail(error,
                      "--checkpoint %s: holds a run after step %llu, in epoch %llu; --resume goes "
                      "on from there, --overwrite replaces it",
                      path, (unsigned long long)header.steps, (unsigned long long)header.epochs);
}

/* Write the whole file. Returns 0 or an errno. */
static int write_parts(FILE *file, const train_checkpoint_t *checkpoint)
{
    part_t parts[PARTS];
    header_t header = {
        .magic = MAGIC,
        .order = ORDER,
        .version = VERSION,
        .file_bytes = sizeof(header) + sizeof(uint32_t),
        .about_bytes = strlen(checkpoint->about),
        .epochs = checkpoint->epochs,
        .steps = checkpoint->steps,
        .parameter_count = checkpoint->parameter_count,
        .state_count = checkpoint->state_count,
        .epoch_loss = checkpoint->epoch_loss,
    };

    list_parts(checkpoint, parts);
    for (size_t i = 0; i < PARTS; i++)
        header.file_bytes += parts[i].count;

    uint32_t sum = (uint32_t)crc32_z(0, (const void *)&header, sizeof(header));
    errno = 0;
    fwrite(&header, sizeof(header), 1, file);
    for (size_t i = 0; i < PARTS; i++) {
        sum = (uint32_t)crc32_z(sum, parts[i].bytes, parts[i].count);
        fwrite(parts[i].bytes, 1, parts[i].count, file);
    }
    fwrite(&sum, sizeof(sum), 1, file);

    /* the data must be on the disk before the rename: otherwise a power failure could leave an
       empty file under the final name */
    if (fflush(file) != 0 || ferror(file) || fsync(fileno(file)) != 0)
        return errno != 0 ? errno : EIO;
    return 0;
}

/* Write a rename to the disk. On a file system that cannot do this, the rename is not safe from a
   power failure. */
static int sync_folder(const char *path)
{
    char folder[PATH_BYTES] = ".";
    const char *slash = strrchr(path, '/');

    if (slash != NULL)
        snprintf(folder, sizeof(folder), "%.*s", slash > path ? (int)(slash - path) : 1, path);
    const int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0)
        return errno;
    const int result = fsync(file) == 0 || errno == EINVAL ? 0 : errno;
    close(file);
    return result;
}

bool train_checkpoint_write(const char *path, const train_checkpoint_t *checkpoint,
                            train_error_t *error)
{
    paths_t paths;

    if (!find_paths(path, &paths, error))
        return false;
    FILE *file = fopen(paths.temporary, "wbe");
    if (file == NULL)
        return train_fail(error, "--checkpoint %s: %s", path, strerror(errno));

    int reason = write_parts(file, checkpoint);
    if (fclose(file) != 0 && reason == 0)
        reason = errno;
    if (reason == 0 && rename(paths.temporary, paths.file) != 0)
        reason = errno;
    if (reason == 0)
        reason = sync_folder(paths.file);
    else
        unlink(paths.temporary);
    if (reason != 0)
        return train_fail(error, "--checkpoint %s: %s", path, strerror(reason));
    return true;
}

static bool fail_truncated(const char *path, uint64_t has, uint64_t wants, train_error_t *error)
{
    return train_fail(error, "--resume %s: truncated: %llu of %llu bytes", path,
                      (unsigned long long)has, (unsigned long long)wants);
}

/* Is this the header of a checkpoint of this program, in a file of `bytes` bytes? */
static bool check_header(const char *path, const header_t *header, uint64_t bytes,
                         train_error_t *error)
{
    if (memcmp(header->magic, MAGIC, sizeof(header->magic)) != 0)
        return train_fail(error, "--resume %s: not a checkpoint of example_train", path);
    if (header->order == ORDER_SWAPPED)
        return train_fail(error, "--resume %s: made on a machine with the other byte order", path);
    if (header->order != ORDER)
        return train_fail(error, "--resume %s: damaged: its byte order is unknown", path);
    if (header->version != VERSION)
        return train_fail(error, "--resume %s: has version %u, this program reads version %d", path,
                          header->version, VERSION);
    if (bytes < header->file_bytes)
        return fail_truncated(path, bytes, header->file_bytes, error);
    if (bytes > header->file_bytes)
        return train_fail(error, "--resume %s: damaged: goes on after its %llu bytes", path,
                          (unsigned long long)header->file_bytes);
    return true;
}

/* Read a whole file, and check its header and its checksum. */
static bool read_file(const char *path, FILE *file, char **ret_bytes, train_error_t *error)
{
    struct stat info;
    header_t header = { 0 };
    uint32_t sum;

    if (fstat(fileno(file), &info) != 0)
        return train_fail(error, "--resume %s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return train_fail(error, "--resume %s: not a file", path);

    const size_t bytes = (size_t)info.st_size, got = fread(&header, 1, sizeof(header), file);
    if (ferror(file))
        return train_fail(error, "--resume %s: %s", path, strerror(errno));
    if (got < sizeof(header) &&
        memcmp(header.magic, MAGIC, got < sizeof(header.magic) ? got : sizeof(header.magic)) == 0)
        return fail_truncated(path, got, sizeof(header), error);
    if (!check_header(path, &header, bytes, error))
        return false;

    char *all = malloc(bytes);
    if (all == NULL)
        return train_fail(error, "--resume %s: not enough memory for it", path);
    rewind(file);
    if (fread(all, 1, bytes, file) != bytes) {
        free(all);
        return train_fail(error, "--resume %s: could not be read to its end", path);
    }
    memcpy(&sum, all + bytes - sizeof(sum), sizeof(sum));
    if (sum != (uint32_t)crc32_z(0, (const void *)all, bytes - sizeof(sum))) {
        free(all);
        return train_fail(error, "--resume %s: damaged: its checksum is wrong", path);
    }
    *ret_bytes = all;
    return true;
}

/* Compare a valid file with this run, and copy it into the run's arrays. */
static bool take(const char *path, const char *bytes, train_checkpoint_t *checkpoint,
                 train_error_t *error)
{
    train_checkpoint_t found = *checkpoint;
    train_error_t difference = { "" };
    part_t parts[PARTS];
    header_t header;

    memcpy(&header, bytes, sizeof(header));
    bytes += sizeof(header);
    if (header.about_bytes > header.file_bytes - sizeof(header))
        return train_fail(error, "--resume %s: damaged: its sizes do not fit together", path);
    if (!train_about_fits(bytes, (size_t)header.about_bytes, checkpoint->about, checkpoint->options,
                          &difference))
        return train_fail(error, "--resume %s: %s", path, difference.text);
    if (header.epochs > checkpoint->epochs_max)
        return train_fail(error, "--resume %s: is in epoch %llu already, this run wants %llu", path,
                          (unsigned long long)header.epochs,
                          (unsigned long long)checkpoint->epochs_max);

    found.epochs = header.epochs;
    found.steps = header.steps;
    found.epoch_loss = header.epoch_loss;
    list_parts(&found, parts);
    uint64_t wanted = sizeof(header) + sizeof(uint32_t);
    for (size_t i = 0; i < PARTS; i++)
        wanted += parts[i].count;
    if (header.parameter_count != checkpoint->parameter_count ||
        header.state_count != checkpoint->state_count || header.file_bytes != wanted)
        return train_fail(error, "--resume %s: damaged: its sizes do not fit together", path);

    bytes += parts[0].count;
    for (size_t i = 1; i < PARTS; bytes += parts[i].count, i++)
        memcpy(parts[i].bytes, bytes, parts[i].count);
    *checkpoint = found;
    return true;
}

bool train_checkpoint_read(const char *path, train_checkpoint_t *checkpoint, train_error_t *error)
{
    char *bytes = NULL;

    /* not fopen: if the path is a pipe, it would wait for a writer */
    const int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0)
        return train_fail(error, "--resume %s: %s", path, strerror(errno));
    FILE *file = fdopen(descriptor, "rb");
    if (file == NULL) {
        close(descriptor);
        return train_fail(error, "--resume %s: not enough memory", path);
    }

    const bool good = read_file(path, file, &bytes, error) && take(path, bytes, checkpoint, error);
    free(bytes);
    fclose(file);
    return good;
}
