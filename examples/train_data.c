/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading IDX files through zlib, whose gzopen takes compressed and plain files.
 *
 *     byte 0   1   2       3            4 ...
 *          0   0   type    dimensions   one 32-bit number per dimension, big-endian; then the data
 *
 * The sizes in a header are not trusted: memory grows with the bytes that the file really has. So
 * a damaged size gives a message and not an allocation of terabytes.
 */
#include "train_data.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define PATH_BYTES 4096
#define CHUNK_BYTES ((size_t)8 << 20)
#define MAX_SIDE 4096            /* pixels; keeps count * rows * columns within 64 bits */
#define IMAGES_MAGIC 0x00000803u /* unsigned bytes, three dimensions */
#define LABELS_MAGIC 0x00000801u /* unsigned bytes, one dimension */

#define WHERE_FROM "; the Debian package dataset-fashion-mnist has it, --data names another folder"

/* An IDX file being read. */
typedef struct {
    gzFile stream;
    char path[PATH_BYTES];
} idx_file_t;

/* Open folder/name.gz or, if there is none, folder/name. */
static bool idx_open(const char *folder, const char *name, idx_file_t *ret_file,
                     train_error_t *error)
{
    const int length = snprintf(ret_file->path, PATH_BYTES, "%s/%s.gz", folder, name);

    if (length < 0 || length >= PATH_BYTES)
        return train_fail(error, "--data: the path is longer than %d bytes", PATH_BYTES);
    if (access(ret_file->path, F_OK) != 0) {
        ret_file->path[length - 3] = '\0';
        if (access(ret_file->path, F_OK) != 0)
            return train_fail(error, "%s, with or without .gz: %s%s", ret_file->path,
                              strerror(errno), errno == ENOENT ? WHERE_FROM : "");
    }

    errno = 0;
    ret_file->stream = gzopen(ret_file->path, "rb");
    if (ret_file->stream == NULL)
        return train_fail(error, "%s: %s", ret_file->path,
                          errno != 0 ? strerror(errno) : "not enough memory");
    gzbuffer(ret_file->stream, 1u << 17);
    return true;
}

/* Report why only `got` bytes were read: an error of zlib, or the end of the file. */
static bool fail_short(const idx_file_t *file, uint64_t got, uint64_t wanted, train_error_t *error)
{
    int code;
    const char *reason = gzerror(file->stream, &code);

    if (code != Z_OK && code != Z_BUF_ERROR)
        return train_fail(error, "%s", reason); /* zlib's text begins with the path */
    return train_fail(error, "%s: truncated: ends after %llu of %llu bytes", file->path,
                      (unsigned long long)got, (unsigned long long)wanted);
}

/* Read magic number and dimensions. */
static bool idx_read_header(const idx_file_t *file, uint32_t magic, size_t dimensions,
                            size_t *ret_shape, train_error_t *error)
{
    uint8_t bytes[16];
    uint32_t words[4];
    const size_t wanted = 4 * (1 + dimensions);
    const int got = gzread(file->stream, bytes, (unsigned)wanted);

    if (got < 4)
        return fail_short(file, got > 0 ? (uint64_t)got : 0, wanted, error);
    for (size_t i = 0; i < (size_t)got / 4; i++)
        words[i] = (uint32_t)bytes[4 * i] << 24 | (uint32_t)bytes[4 * i + 1] << 16 |
                   (uint32_t)bytes[4 * i + 2] << 8 | (uint32_t)bytes[4 * i + 3];
    if (words[0] != magic)
        return train_fail(error, "%s: magic number 0x%08x instead of 0x%08x: no IDX file of %s",
                          file->path, words[0], magic, dimensions == 3 ? "images" : "labels");
    if ((size_t)got < wanted)
        return fail_short(file, (uint64_t)got, wanted, error);

    for (size_t i = 0; i < dimensions; i++) {
        if (words[1 + i] == 0)
            return train_fail(error, "%s: is empty: dimension %zu is 0", file->path, i + 1);
        if (i > 0 && words[1 + i] > MAX_SIDE)
            return train_fail(error, "%s: an image side of %u pixels; at most %d", file->path,
                              words[1 + i], MAX_SIDE);
        ret_shape[i] = words[1 + i];
    }
    return true;
}

/* Read exactly `total` bytes, after which the file must end. */
static bool idx_read_bytes(const idx_file_t *file, uint64_t total, uint8_t **ret_bytes,
                           train_error_t *error)
{
    uint8_t *bytes = NULL;
    uint8_t beyond;
    int code;

    for (uint64_t have = 0; have < total;) {
        const size_t want = total - have < CHUNK_BYTES ? (size_t)(total - have) : CHUNK_BYTES;
        uint8_t *grown = realloc(bytes, (size_t)have + want);

        if (grown == NULL) {
            train_fail(error, "%s: not enough memory for its data", file->path);
            goto free_bytes;
        }
        bytes = grown;
        const int got = gzread(file->stream, bytes + have, (unsigned)want);
        if (got < 0 || (size_t)got < want) {
            fail_short(file, have + (got > 0 ? (uint64_t)got : 0), total, error);
            goto free_bytes;
        }
        have += want;
    }

    /* one more read makes zlib check the checksum of a compressed file */
    if (gzread(file->stream, &beyond, 1) > 0) {
        train_fail(error, "%s: goes on after the %llu bytes that its header promises", file->path,
                   (unsigned long long)total);
        goto free_bytes;
    }
    const char *reason = gzerror(file->stream, &code);
    if (code != Z_OK) {
        train_fail(error, "%s", reason);
        goto free_bytes;
    }
    *ret_bytes = bytes;
    return true;

free_bytes:
    free(bytes);
    return false;
}

static bool load_images(const char *folder, const char *prefix, train_set_t *set,
                        train_error_t *error)
{
    char name[64];
    size_t shape[3] = { 0 };
    idx_file_t file;

    snprintf(name, sizeof(name), "%s-images-idx3-ubyte", prefix);
    if (!idx_open(folder, name, &file, error))
        return false;

    bool ok = idx_read_header(&file, IMAGES_MAGIC, 3, shape, error);
    if (ok)
        ok = idx_read_bytes(&file, (uint64_t)shape[0] * shape[1] * shape[2], &set->images, error);
    gzclose(file.stream);
    if (!ok)
        return false;

    set->count = shape[0];
    set->rows = shape[1];
    set->columns = shape[2];
    return true;
}

static bool load_labels(const char *folder, const char *prefix, train_set_t *set,
                        train_error_t *error)
{
    char name[64];
    size_t count = 0;
    idx_file_t file;

    snprintf(name, sizeof(name), "%s-labels-idx1-ubyte", prefix);
    if (!idx_open(folder, name, &file, error))
        return false;

    bool ok = idx_read_header(&file, LABELS_MAGIC, 1, &count, error);
    if (ok)
        ok = idx_read_bytes(&file, count, &set->labels, error);
    gzclose(file.stream);
    if (!ok)
        return false;

    if (count != set->count)
        return train_fail(error, "%s: %zu labels, but there are %zu images", file.path, count,
                          set->count);
    for (size_t i = 0; i < count; i++)
        if (set->labels[i] >= TRAIN_CLASSES)
            return train_fail(error, "%s: label %zu is %d, outside 0 to %d", file.path, i,
                              set->labels[i], TRAIN_CLASSES - 1);
    return true;
}

/* Mean and deviation of the training pixels, from exact counts: equal on all ranks. */
static void measure(train_data_t *data)
{
    const size_t pixels = data->train.count * data->train.rows * data->train.columns;
    size_t counts[256] = { 0 };
    double mean = 0.0, variance = 0.0;

    for (size_t i = 0; i < pixels; i++)
        counts[data->train.images[i]]++;
    for (int value = 0; value < 256; value++)
        mean += (double)value * (double)counts[value] / (double)pixels;
    for (int value = 0; value < 256; value++)
        variance += (value - mean) * (value - mean) * (double)counts[value] / (double)pixels;

    data->mean = (float)mean;
    data->deviation = variance > 0.0 ? (float)sqrt(variance) : 1.0f;
}

bool train_data_load(const char *folder, train_data_t *ret_data, train_error_t *error)
{
    train_data_t data = { 0 };

    if (!load_images(folder, "train", &data.train, error) ||
        !load_labels(folder, "train", &data.train, error) ||
        !load_images(folder, "t10k", &data.test, error) ||
        !load_labels(folder, "t10k", &data.test, error))
        goto free_data;

    if (data.test.rows != data.train.rows || data.test.columns != data.train.columns) {
        train_fail(error, "%s: test images have %zux%zu pixels, training images %zux%zu", folder,
                   data.test.rows, data.test.columns, data.train.rows, data.train.columns);
        goto free_data;
    }
    measure(&data);
    *ret_data = data;
    return true;

free_data:
    train_data_free(&data);
    *ret_data = data;
    return false;
}

static void set_free(train_set_t *set)
{
    free(set->images);
    free(set->labels);
    memset(set, 0, sizeof(*set));
}

void train_data_free(train_data_t *data)
{
    set_free(&data->train);
    set_free(&data->test);
}

static uLong set_checksum(const train_set_t *set, uLong sum)
{
    sum = crc32_z(sum, set->images, set->count * set->rows * set->columns);
    return crc32_z(sum, set->labels, set->count);
}

uint32_t train_data_checksum(const train_data_t *data)
{
    return (uint32_t)set_checksum(&data->test, set_checksum(&data->train, crc32_z(0, NULL, 0)));
}
