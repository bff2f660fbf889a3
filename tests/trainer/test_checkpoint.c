/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checkpoints: a written checkpoint can be read. Files of any other length, or with any byte
 * changed, are refused. A failed write leaves the old file unchanged.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <zlib.h>

#include "train_about.h"
#include "train_base.h"
#include "train_checkpoint.h"
#include "train_options.h"

#define EPOCHS 3
#define PARAMETERS 5
#define STATE 7
#define FILE_BYTES 4096

typedef struct {
    train_result_t results[EPOCHS];
    float parameters[PARAMETERS];
    float state[STATE];
    train_checkpoint_t checkpoint;
} saved_t;

static train_options_t options; /* no option is given, except if a test sets it */
static char folder[] = "/tmp/test_checkpointXXXXXX";
static char path[64];

/* A checkpoint after two epochs, with numbers made from `first`. */
static void fill(saved_t *saved, float first)
{
    memset(saved, 0, sizeof(*saved));
    for (size_t i = 0; i < 2; i++)
        saved->results[i] = (train_result_t){ first + (float)i, 2.0 * first, 0.5, 0.125 };
    for (size_t i = 0; i < PARAMETERS; i++)
        saved->parameters[i] = first * (float)(i + 1);
    for (size_t i = 0; i < STATE; i++)
        saved->state[i] = -first * (float)(i + 1);
    saved->checkpoint = (train_checkpoint_t){
        .about = "--model mlp\n--batch 8\nranks 2\n",
        .options = &options,
        .epochs = 2,
        .epochs_max = EPOCHS,
        .steps = 40,
        .epoch_loss = 0.1 * (double)first,
        .results = saved->results,
        .parameters = saved->parameters,
        .parameter_count = PARAMETERS,
        .state = saved->state,
        .state_count = STATE,
    };
}

static void write_checkpoint(float first)
{
    train_error_t error = { "" };
    saved_t saved;

    fill(&saved, first);
    if (!train_checkpoint_write(path, &saved.checkpoint, &error))
        fail_msg("%s", error.text);
}

/* Check that the file is the checkpoint of `first`, and that there are no other files in its
   folder. */
static void expect(float first)
{
    train_error_t error = { "" };
    saved_t saved, wanted;
    char temporary[80];

    fill(&wanted, first);
    fill(&saved, 0.0f);
    saved.checkpoint.epochs = saved.checkpoint.steps = 0;
    saved.checkpoint.epoch_loss = 0.0;
    if (!train_checkpoint_read(path, &saved.checkpoint, &error))
        fail_msg("%s", error.text);
    assert_memory_equal(saved.results, wanted.results, sizeof(saved.results));
    assert_memory_equal(saved.parameters, wanted.parameters, sizeof(saved.parameters));
    assert_memory_equal(saved.state, wanted.state, sizeof(saved.state));
    assert_int_equal(saved.checkpoint.epochs, 2);
    assert_int_equal(saved.checkpoint.steps, 40);
    assert_float_equal(saved.checkpoint.epoch_loss, wanted.checkpoint.epoch_loss, 0.0);
    snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    assert_int_not_equal(access(temporary, F_OK), 0);
}

/* Check that reading fails with `wanted` in the text, and changes nothing. */
static void refuse(saved_t *saved, const char *wanted)
{
    train_error_t error = { "" };
    saved_t before = *saved;

    if (train_checkpoint_read(path, &saved->checkpoint, &error))
        fail_msg("taken, instead of '%s'", wanted);
    if (strstr(error.text, wanted) == NULL || strstr(error.text, "--resume ") != error.text ||
        strncmp(error.text + strlen("--resume "), path, strlen(path)) != 0 ||
        strchr(error.text, '\n') != NULL)
        fail_msg("'%s' instead of '%s'", error.text, wanted);
    assert_memory_equal(saved, &before, sizeof(before));
}

static size_t read_bytes(char *bytes)
{
    FILE *file = fopen(path, "rb");

    assert_non_null(file);
    const size_t count = fread(bytes, 1, FILE_BYTES, file);
    fclose(file);
    assert_true(count < FILE_BYTES);
    return count;
}

static void write_bytes(const char *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

/* Correct the checksum, so that only the earlier change matters. */
static void seal(char *bytes, size_t count)
{
    const uint32_t sum = (uint32_t)crc32(0, (const void *)bytes, (uInt)(count - sizeof(sum)));

    memcpy(bytes + count - sizeof(sum), &sum, sizeof(sum));
}

static void reads_what_was_written(void **state)
{
    (void)state;
    write_checkpoint(1.5f);
    expect(1.5f);
    write_checkpoint(-2.25f);
    expect(-2.25f);
}

static void refuses_every_length(void **state)
{
    char bytes[FILE_BYTES];
    saved_t saved;

    (void)state;
    fill(&saved, 0.0f);
    write_checkpoint(1.5f);
    const size_t count = read_bytes(bytes);
    for (size_t length = 0; length < count; length++) {
        write_bytes(bytes, length);
        refuse(&saved, "truncated: ");
    }
    bytes[count] = 0;
    write_bytes(bytes, count + 1);
    refuse(&saved, "damaged: goes on after its ");
}

static void refuses_every_other_byte(void **state)
{
    char bytes[FILE_BYTES];
    saved_t saved;

    (void)state;
    fill(&saved, 0.0f);
    write_checkpoint(1.5f);
    const size_t count = read_bytes(bytes);
    for (size_t i = 0; i < count; i++) {
        bytes[i] ^= 0x10;
        write_bytes(bytes, count);
        refuse(&saved, i < 8 ? "not a checkpoint of example_train" : "");
        bytes[i] ^= 0x10;
    }
    bytes[count - 20] ^= 1;
    write_bytes(bytes, count);
    refuse(&saved, "damaged: its checksum is wrong");
}

/* Headers with a correct checksum and wrong content. The offsets are those of header_t. */
static void refuses_other_headers(void **state)
{
    static const struct {
        size_t offset;
        char from, to;
        const char *wanted;
    } changes[] = {
        { 8, 4, 5, "damaged: its byte order is unknown" },
        { 12, 3, 4, "has version 4, this program reads version 3" },
        { 24, 30, 31, "" },
        { 31, 0, 127, "damaged: its sizes do not fit together" },
        { 32, 2, 1, "damaged: its sizes do not fit together" },
        { 32, 2, 4, "is in epoch 4 already, this run wants 3" },
        { 48, PARAMETERS, PARAMETERS + 1, "damaged: its sizes do not fit together" },
        { 56, STATE, STATE - 1, "damaged: its sizes do not fit together" },
    };
    char bytes[FILE_BYTES], swapped[4];
    saved_t saved;

    (void)state;
    fill(&saved, 0.0f);
    write_checkpoint(1.5f);
    const size_t count = read_bytes(bytes);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        if (bytes[changes[i].offset] != changes[i].from)
            continue; /* this machine has the other byte order */
        bytes[changes[i].offset] = changes[i].to;
        seal(bytes, count);
        write_bytes(bytes, count);
        refuse(&saved, changes[i].wanted);
        bytes[changes[i].offset] = changes[i].from;
    }
    for (size_t i = 0; i < 4; i++)
        swapped[i] = bytes[8 + 3 - i];
    memcpy(bytes + 8, swapped, 4);
    write_bytes(bytes, count);
    refuse(&saved, "made on a machine with the other byte order");
}

/* Check the text for a run with one command line and a checkpoint made with the other. */
static void expect_reason(const char *theirs, const char *ours, const char *wanted)
{
    const char *const lines[] = { theirs, ours };
    char about[2][TRAIN_ABOUT_BYTES];
    train_options_t parsed;
    train_error_t reason = { "" };

    for (size_t i = 0; i < 2; i++) {
        char text[200] = "", *argv[20] = { "example_train" };
        int argc = 1;

        strncat(text, lines[i], sizeof(text) - 1);
        for (char *next = strtok(text, " "); next != NULL; next = strtok(NULL, " "))
            argv[argc++] = next;
        if (!train_options_parse(argc, argv, &parsed, &reason))
            fail_msg("%s", reason.text);
        train_about_write(&parsed, 2, 7, about[i]);
    }
    const bool fits = train_about_fits(about[0], strlen(about[0]), about[1], &parsed, &reason);
    assert_string_equal(reason.text, wanted);
    assert_int_equal(fits, wanted[0] == '\0');
}

/* The reason names only options that are in one of the two command lines. */
static void names_what_was_typed(void **state)
{
    (void)state;
    expect_reason("--lr 0.1", "--lr 0.1 --threads 2 --steps 3", "");
    expect_reason("", "--lr 0.1", "made with '--lr 0.05', but this run has '--lr 0.1'");
    expect_reason("--lr 0.1", "", "made with '--lr 0.1', which this run was not given");
    expect_reason("--model cnn", "", "made with '--model cnn', which this run was not given");
    expect_reason("", "--model cnn", "made with '--model mlp', but this run has '--model cnn'");
    expect_reason("--optimizer adamw", "--lr 0.2",
                  "made with '--optimizer adamw', which this run was not given");
    expect_reason("--schedule step --decay 0.2", "",
                  "made with '--schedule step', which this run was not given");

    /* options whose value or meaning depends on another option: --precision on --device, --warmup
       and a cosine on --epochs */
    expect_reason("--device cuda", "", "made on a GPU, but this run computes on the processor");
    expect_reason("", "--device cuda --precision bf16",
                  "made on the processor, but this run computes on a GPU");
    expect_reason("--device cuda --precision bf16", "--device cuda",
                  "made with '--precision bf16', which this run was not given");
    expect_reason(
        "--epochs 1 --schedule constant", "--epochs 4 --schedule constant",
        "made with 'warmup 0.5', but this run has 'warmup 1': at most half of all epochs");
    expect_reason("--epochs 1 --schedule constant", "--epochs 4 --schedule constant --warmup 2",
                  "made with '--warmup 0.5', but this run has '--warmup 2'");
    expect_reason("--epochs 2", "",
                  "made with '--epochs 2', which this run was not given: a cosine ends with the "
                  "epochs; step and constant can be trained longer");
    expect_reason("", "--epochs 7",
                  "made with '--epochs 5', but this run has '--epochs 7': a cosine ends with the "
                  "epochs; step and constant can be trained longer");
}

/* Also tests the texts for damaged files and for other versions. */
static void refuses_other_runs(void **state)
{
    static const char *const runs[][2] = {
        { "--model mlp\n--batch 8\nranks 3\n", "made by 2 ranks, but this run has 3" },
        { "--model mlp\n--batch 8\n", "made with 'ranks 2'" },
        { "--model mlp\n--batch 8\nranks 2\ndata 1\n", "made without 'data 1'" },
        { "--model mlp\n--batch 8\nranks", "made with 'ranks 2', but this run has 'ranks'" },
        { "", "made with '--model mlp'" },
        { "\n", "made with '--model mlp'" },
        { "--model mlp\n--batch 8\nranks 2\n--warmup\n", "made without '--warmup'" },
    };
    saved_t saved;

    (void)state;
    write_checkpoint(1.5f);
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        fill(&saved, 0.0f);
        saved.checkpoint.about = runs[i][0];
        refuse(&saved, runs[i][1]);
    }
}

/* An existing file is replaced only if it is a checkpoint, and only on request. */
static void asks_before_it_replaces(void **state)
{
    static const char other[] = "#!/bin/sh\n";
    train_error_t error = { "" };
    char bytes[FILE_BYTES];

    (void)state;
    unlink(path);
    assert_true(train_checkpoint_replaceable(path, false, &error));
    write_bytes("", 0);
    assert_true(train_checkpoint_replaceable(path, false, &error));

    write_checkpoint(1.5f);
    const size_t count = read_bytes(bytes);
    assert_true(train_checkpoint_replaceable(path, true, &error));
    assert_false(train_checkpoint_replaceable(path, false, &error));
    assert_non_null(strstr(error.text, path));
    assert_non_null(strstr(error.text, ": holds a run after step 40, in epoch 2; --resume"));

    for (size_t length = 1; length < count; length++) {
        error.text[0] = '\0';
        write_bytes(bytes, length);
        assert_false(train_checkpoint_replaceable(path, false, &error));
        error.text[0] = '\0';
        assert_int_equal(train_checkpoint_replaceable(path, true, &error), length >= 8);
    }
    for (int overwrite = 0; overwrite < 2; overwrite++) {
        error.text[0] = '\0';
        write_bytes(other, sizeof(other));
        assert_false(train_checkpoint_replaceable(path, overwrite == 1, &error));
        assert_non_null(strstr(error.text, ": holds something else; remove it first"));
    }
}

static void refuses_what_is_no_file(void **state)
{
    saved_t saved;

    (void)state;
    fill(&saved, 0.0f);
    unlink(path);
    refuse(&saved, "No such file");
    write_bytes(
        "\x1f\x8b and so on, as long as a header is, at least, so 72 bytes or more, or longer", 78);
    refuse(&saved, "not a checkpoint of example_train");
    write_bytes("short", 5);
    refuse(&saved, "not a checkpoint of example_train");
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    refuse(&saved, "not a file");
    rmdir(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    refuse(&saved, "not a file"); /* without waiting for a writer */
    unlink(path);
}

/* If the disk is full at any length of the file, the old checkpoint is kept. */
static void keeps_the_old_one(void **state)
{
    char bytes[FILE_BYTES];
    struct rlimit before, limit;

    (void)state;
    write_checkpoint(1.5f);
    const size_t count = read_bytes(bytes);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (size_t length = 0; length < count; length += 9) {
        train_error_t error = { "" };
        saved_t saved;

        limit = before;
        limit.rlim_cur = length;
        fill(&saved, 7.0f);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        const bool written = train_checkpoint_write(path, &saved.checkpoint, &error);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_false(written);
        assert_non_null(strstr(error.text, "File too large"));
        expect(1.5f);
    }
    signal(SIGXFSZ, SIG_DFL);
}

/* If a program was killed while it wrote, the files that it left are overwritten. */
static void writes_over_leftovers(void **state)
{
    char temporary[80];

    (void)state;
    write_checkpoint(1.5f);
    snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    assert_int_equal(rename(path, temporary), 0);
    write_checkpoint(2.5f);
    expect(2.5f);
}

/* Another file under the temporary file's name is not overwritten. */
static void keeps_other_files(void **state)
{
    train_error_t error = { "" };
    char temporary[80];

    (void)state;
    write_checkpoint(1.5f);
    snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    FILE *file = fopen(temporary, "w");
    assert_non_null(file);
    fputs("a user's text", file);
    fclose(file);
    assert_false(train_checkpoint_probe(path, &error));
    assert_non_null(strstr(error.text, ".tmp holds something else; remove it first"));
    assert_int_equal(unlink(temporary), 0);

    /* the rest of a checkpoint that was not written to its end */
    assert_int_equal(rename(path, temporary), 0);
    assert_true(train_checkpoint_probe(path, &error));
    assert_int_equal(access(temporary, F_OK), 0);
    unlink(temporary);
}

/* If the path is a link, the checkpoint is the file at its end, and the link stays. */
static void follows_links(void **state)
{
    train_error_t error = { "" };
    struct stat info;
    char below[80], target[128];
    saved_t saved;

    (void)state;
    snprintf(below, sizeof(below), "%s/below", folder);
    snprintf(target, sizeof(target), "%s/target", below);
    unlink(path);
    assert_int_equal(mkdir(below, 0777), 0);
    assert_int_equal(symlink("below/target", path), 0);
    assert_false(train_checkpoint_probe(path, &error));
    assert_non_null(strstr(error.text, "a link to a file that is missing"));

    FILE *file = fopen(target, "w");
    assert_non_null(file);
    fclose(file);
    assert_true(train_checkpoint_probe(path, &error));
    fill(&saved, 1.5f);
    assert_true(train_checkpoint_write(path, &saved.checkpoint, &error));
    expect(1.5f);
    assert_int_equal(lstat(path, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    unlink(path);
    unlink(target);
    assert_int_equal(rmdir(below), 0); /* no temporary file is left */
}

static void probes(void **state)
{
    train_error_t error = { "" };
    char other[128];

    (void)state;
    unlink(path);
    assert_true(train_checkpoint_probe(path, &error));
    assert_int_not_equal(access(path, F_OK), 0);
    write_checkpoint(1.5f);
    assert_true(train_checkpoint_probe(path, &error));
    expect(1.5f);

    /* A link to a file that does not exist yet stays a link. */
    char target[128];
    snprintf(other, sizeof(other), "%s/link", folder);
    snprintf(target, sizeof(target), "%s/target", folder);
    assert_int_equal(symlink("target", other), 0);
    assert_true(train_probe_file("--plot", other, other, &error));
    assert_int_equal(unlink(other), 0);
    unlink(target);

    snprintf(other, sizeof(other), "%s/nowhere/file", folder);
    assert_false(train_checkpoint_probe(other, &error));
    char wanted[256];
    snprintf(wanted, sizeof(wanted), "--checkpoint %s: No such file or directory", other);
    assert_string_equal(error.text, wanted);
    error.text[0] = '\0';
    assert_false(train_checkpoint_probe(folder, &error));
    assert_non_null(strstr(error.text, "not a file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_was_written),
        cmocka_unit_test(refuses_every_length),
        cmocka_unit_test(refuses_every_other_byte),
        cmocka_unit_test(refuses_other_headers),
        cmocka_unit_test(refuses_other_runs),
        cmocka_unit_test(names_what_was_typed),
        cmocka_unit_test(asks_before_it_replaces),
        cmocka_unit_test(refuses_what_is_no_file),
        cmocka_unit_test(keeps_the_old_one),
        cmocka_unit_test(writes_over_leftovers),
        cmocka_unit_test(keeps_other_files),
        cmocka_unit_test(follows_links),
        cmocka_unit_test(probes),
    };

    if (mkdtemp(folder) == NULL)
        return 1;
    snprintf(path, sizeof(path), "%s/checkpoint", folder);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(folder);
    return failed;
}
