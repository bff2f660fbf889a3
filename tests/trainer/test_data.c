/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading IDX files: correct files are read, compressed or not; wrong files are refused with a line
 * that names the file. Also the shuffle that selects the images of a batch.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "train_base.h"
#include "train_compute.h"
#include "train_data.h"

#define TRAIN_COUNT 5
#define TEST_COUNT 3
#define ROWS 2
#define COLUMNS 3
#define PIXELS (ROWS * COLUMNS)
#define IMAGES_BYTES (16 + TRAIN_COUNT * PIXELS)

static const char *const names[] = { "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                     "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte" };

/* The content of a file. A test can damage the content before it is written. */
typedef struct {
    uint8_t bytes[64];
    size_t count;
} content_t;

static char folder[64];

static void put_word(uint8_t *bytes, uint32_t word)
{
    for (int i = 0; i < 4; i++)
        bytes[i] = (uint8_t)(word >> (24 - 8 * i));
}

static uint8_t pixel(size_t image, size_t at)
{
    return (uint8_t)(40 * image + 5 * at);
}

static content_t make_images(size_t count)
{
    content_t content = { .count = 16 + count * PIXELS };

    put_word(content.bytes, 0x803);
    put_word(content.bytes + 4, (uint32_t)count);
    put_word(content.bytes + 8, ROWS);
    put_word(content.bytes + 12, COLUMNS);
    for (size_t i = 0; i < count * PIXELS; i++)
        content.bytes[16 + i] = pixel(i / PIXELS, i % PIXELS);
    return content;
}

static content_t make_labels(size_t count)
{
    content_t content = { .count = 8 + count };

    put_word(content.bytes, 0x801);
    put_word(content.bytes + 4, (uint32_t)count);
    for (size_t i = 0; i < count; i++)
        content.bytes[8 + i] = (uint8_t)(9 - i);
    return content;
}

/* Write a file plain (mode "wbT") or compressed ("wb"). */
static void write_file(const char *name, const char *suffix, const char *mode,
                       const content_t *content)
{
    char path[160];

    snprintf(path, sizeof(path), "%s/%s%s", folder, name, suffix);
    gzFile file = gzopen(path, mode);
    assert_non_null(file);
    assert_int_equal(gzwrite(file, content->bytes, (unsigned)content->count), content->count);
    assert_int_equal(gzclose(file), Z_OK);
}

static void write_all(const char *suffix, const char *mode)
{
    const content_t contents[] = { make_images(TRAIN_COUNT), make_labels(TRAIN_COUNT),
                                   make_images(TEST_COUNT), make_labels(TEST_COUNT) };

    for (size_t i = 0; i < 4; i++)
        write_file(names[i], suffix, mode, &contents[i]);
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "test_data.XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        char path[160];

        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        remove(path);
        strcat(path, ".gz");
        remove(path);
    }
    return rmdir(folder);
}

static void check_data(const train_data_t *data)
{
    assert_int_equal(data->train.count, TRAIN_COUNT);
    assert_int_equal(data->test.count, TEST_COUNT);
    assert_int_equal(data->train.rows, ROWS);
    assert_int_equal(data->train.columns, COLUMNS);
    for (size_t i = 0; i < TRAIN_COUNT; i++) {
        assert_int_equal(data->train.labels[i], 9 - i);
        for (size_t j = 0; j < PIXELS; j++)
            assert_int_equal(data->train.images[i * PIXELS + j], pixel(i, j));
    }
}

static void reads_plain_and_compressed(void **state)
{
    train_error_t error = { "" };
    train_data_t plain, compressed;

    (void)state;
    write_all("", "wbT");
    assert_true(train_data_load(folder, &plain, &error));
    check_data(&plain);

    /* if both exist, .gz is preferred, even with plain content */
    write_all(".gz", "wb");
    assert_true(train_data_load(folder, &compressed, &error));
    check_data(&compressed);
    assert_int_equal(train_data_checksum(&plain), train_data_checksum(&compressed));
    train_data_free(&compressed);

    write_all(".gz", "wbT");
    assert_true(train_data_load(folder, &compressed, &error));
    check_data(&compressed);
    assert_string_equal(error.text, "");

    compressed.test.labels[TEST_COUNT - 1] ^= 1;
    assert_int_not_equal(train_data_checksum(&plain), train_data_checksum(&compressed));
    train_data_free(&plain);
    train_data_free(&compressed);
    train_data_free(&compressed);
}

static void gathers_normalised(void **state)
{
    const uint32_t items[] = { 4, 0, 4, 2, 1, 3 };
    train_error_t error = { "" };
    train_data_t data;
    train_compute_t cpu;
    float inputs[6 * PIXELS];
    uint8_t labels[6];
    double sum = 0.0, squares = 0.0;

    (void)state;
    write_all("", "wbT");
    assert_true(train_data_load(folder, &data, &error));
    const train_source_t source = {
        data.train.images, data.train.labels, PIXELS, data.mean, 1.0f / data.deviation,
    };
    train_cpu_open(&cpu);
    cpu.ops->gather(&cpu, &source, items, 6, inputs, labels);

    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(labels[i], 9 - items[i]);
        for (size_t j = 0; j < PIXELS; j++) {
            const double wanted = (pixel(items[i], j) - (double)data.mean) / data.deviation;
            const double got = inputs[i * PIXELS + j];

            assert_float_equal(got, wanted, 1e-5);
            sum += i > 0 ? got : 0.0; /* except the first: each image once */
            squares += i > 0 ? got * got : 0.0;
        }
    }
    assert_float_equal(sum / (5 * PIXELS), 0.0, 1e-6);
    assert_float_equal(squares / (5 * PIXELS), 1.0, 1e-6);
    train_data_free(&data);
}

/* The data with `content` in place of file `which` must be refused with this text. */
static void refused(size_t which, const content_t *content, const char *text)
{
    train_error_t error = { "" };
    train_data_t data;
    char path[160];

    write_all("", "wbT");
    snprintf(path, sizeof(path), "%s/%s", folder, names[which]);
    remove(path);
    if (content != NULL)
        write_file(names[which], "", "wbT", content);

    assert_false(train_data_load(folder, &data, &error));
    if (strncmp(error.text, path, strlen(path)) != 0 || strstr(error.text, text) == NULL)
        fail_msg("'%s' does not name %s and '%s'", error.text, path, text);
    assert_null(data.train.images);
    train_data_free(&data);
}

static void refuses_bad_files(void **state)
{
    content_t content;

    (void)state;
    for (size_t i = 0; i < 4; i++)
        refused(i, NULL, "with or without .gz: No such file or directory");

    /* every length that is too short */
    content = make_images(TRAIN_COUNT);
    for (content.count = 0; content.count < IMAGES_BYTES; content.count++)
        refused(0, &content, "truncated: ends after ");

    content = make_images(TRAIN_COUNT);
    content.bytes[3] = 1;
    refused(0, &content, "magic number 0x00000801 instead of 0x00000803");
    content = make_labels(TEST_COUNT);
    content.bytes[0] = 0x7f;
    refused(3, &content, "magic number 0x7f000801 instead of 0x00000801");

    content = make_images(TRAIN_COUNT);
    content.count++;
    refused(0, &content, "goes on after the 30 bytes");
    put_word(content.bytes + 4, UINT32_MAX);
    refused(0, &content, "truncated: ends after 31 of 25769803770 bytes");
    put_word(content.bytes + 12, UINT32_MAX);
    refused(0, &content, "an image side of 4294967295 pixels");
    put_word(content.bytes + 4, 0);
    refused(0, &content, "dimension 1 is 0");

    content = make_labels(TEST_COUNT);
    content.bytes[9] = 10;
    refused(3, &content, "label 1 is 10, outside 0 to 9");
    content = make_labels(TRAIN_COUNT - 1);
    refused(1, &content, "4 labels, but there are 5 images");
}

static void refuses_other_dimensions(void **state)
{
    content_t content = make_images(TEST_COUNT);
    train_error_t error = { "" };
    train_data_t data;

    (void)state;
    write_all("", "wbT");
    put_word(content.bytes + 8, COLUMNS);
    put_word(content.bytes + 12, ROWS);
    write_file(names[2], "", "wbT", &content);
    assert_false(train_data_load(folder, &data, &error));
    assert_non_null(strstr(error.text, "test images have 3x2 pixels, training images 2x3"));
}

/* Damage every byte of a compressed file, and cut the file at every length. There must be no crash,
   and no wrong data. */
static void survives_damage(void **state)
{
    const content_t content = make_images(TRAIN_COUNT);
    uint8_t bytes[128];
    char path[160];

    (void)state;
    write_all("", "wbT");
    write_file(names[0], ".gz", "wb", &content);
    snprintf(path, sizeof(path), "%s/%s.gz", folder, names[0]);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t count = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    assert_in_range(count, 20, sizeof(bytes) - 1);

    for (size_t i = 0; i < 2 * count; i++) {
        const size_t kept = i < count ? count : i - count;
        train_error_t error = { "" };
        train_data_t data;

        bytes[i % count] ^= i < count ? 0x55 : 0;
        file = fopen(path, "wb");
        assert_int_equal(fwrite(bytes, 1, kept, file), kept);
        fclose(file);
        bytes[i % count] ^= i < count ? 0x55 : 0;

        if (train_data_load(folder, &data, &error))
            check_data(&data); /* a byte of the gzip header without effect */
        else
            assert_non_null(strstr(error.text, names[0]));
        train_data_free(&data);
    }
}

static void shuffles(void **state)
{
    uint32_t first[100], again[100], other[100];
    uint8_t seen[100] = { 0 };
    train_random_t random = train_random_make(7, 3);

    (void)state;
    train_random_permutation(&random, first, 100);
    random = train_random_make(7, 3);
    train_random_permutation(&random, again, 100);
    random = train_random_make(7, 4);
    train_random_permutation(&random, other, 100);

    for (size_t i = 0; i < 100; i++)
        seen[first[i]]++;
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(seen[i], 1);
    assert_memory_equal(first, again, sizeof(first));
    assert_memory_not_equal(first, other, sizeof(first));
}

static void draws_normal_numbers(void **state)
{
    enum {
        DRAWS = 200000
    };

    train_random_t random = train_random_make(1, 1);
    double sum = 0.0, squares = 0.0;
    int beyond_two = 0;

    (void)state;
    for (int i = 0; i < DRAWS; i++) {
        const double x = train_random_normal(&random);

        assert_true(isfinite(x));
        sum += x;
        squares += x * x;
        beyond_two += fabs(x) > 2.0;
    }
    assert_float_equal(sum / DRAWS, 0.0, 0.01);
    assert_float_equal(squares / DRAWS, 1.0, 0.015);
    assert_float_equal(beyond_two / (double)DRAWS, 0.0455, 0.003);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reads_plain_and_compressed, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(gathers_normalised, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(refuses_bad_files, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(refuses_other_dimensions, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(survives_damage, make_folder, remove_folder),
        cmocka_unit_test(shuffles),
        cmocka_unit_test(draws_normal_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
