/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data-parallel training on Fashion-MNIST: mpirun -np N ./example_train
 *
 * Every rank holds the whole model and reads all the data, but computes on its part of each batch
 * only. The sum of all ranks' gradients is the gradient of the batch, so N ranks follow the same
 * path as one would, up to rounding, only faster. Read train_step first, then train_parallel.c.
 *
 *     train_options     command line
 *     train_data        images and labels
 *     train_model       forward and backward pass
 *     train_parallel    the other ranks: the only file that uses Tutti
 *     train_optimizer   parameters follow gradients
 *     train_report      progress and results
 *     train_base        errors, clock, random numbers
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <cblas.h>

#include "train_base.h"
#include "train_data.h"
#include "train_model.h"
#include "train_optimizer.h"
#include "train_options.h"
#include "train_parallel.h"
#include "train_report.h"

#define EVALUATION_ROWS 256 /* images that go through the model at once when testing */

typedef struct {
    train_options_t options;
    train_parallel_t parallel;
    train_data_t data;
    train_model_t model;
    train_optimizer_t optimizer;
    train_schedule_t schedule;
    train_report_t report;
    uint32_t *train_order; /* the training images in this epoch's order */
    uint32_t *test_order;  /* the test images, 0, 1, 2, ... */
    uint8_t *labels;       /* of the rows in model.input */
    uint64_t *digests;     /* room for one of each rank */
    size_t batch;          /* images per step, over all ranks; the last of an epoch may be less */
    size_t epoch_steps;
    size_t total_steps;
} trainer_t;

/* Sums over some steps of this rank. */
typedef struct {
    double loss;         /* over all images of all ranks */
    size_t images;       /* of all ranks */
    double step_seconds; /* this rank's */
    double rate;         /* the last step's learning rate */
} progress_t;

/*
 * One step: this rank's part of the batch forward and backward, the sum over ranks, the update.
 *
 * items  the whole batch's images; all ranks have the same
 */
static bool train_step(trainer_t *trainer, const uint32_t *items, size_t count, float rate,
                       double *ret_loss, train_error_t *error)
{
    train_model_t *model = &trainer->model;
    train_parallel_t *parallel = &trainer->parallel;
    const train_part_t part = train_parallel_part(parallel, count);

    train_data_gather(&trainer->data, &trainer->data.train, items + part.first, part.count,
                      model->input, trainer->labels);
    const train_score_t score = train_model_forward(model, trainer->labels, part.count);
    train_parallel_reduce_loss(parallel, score.loss);

    /* each gradient is on its way to the other ranks as soon as it is known */
    train_model_backward(model, trainer->labels, part.count, 1.0f / (float)count,
                         train_parallel_reduce_gradient, parallel);
    if (!train_parallel_wait(parallel, error))
        return false;

    train_optimizer_step(&trainer->optimizer, model->parameters, parallel->gradients, rate);
    *ret_loss = parallel->loss / (double)count;
    return true;
}

/* Test this rank's part of the test images. */
static train_score_t evaluate(trainer_t *trainer)
{
    const train_part_t part = train_parallel_part(&trainer->parallel, trainer->data.test.count);
    train_score_t sum = { 0 };

    for (size_t done = 0; done < part.count;) {
        const size_t left = part.count - done;
        const size_t rows = left < EVALUATION_ROWS ? left : EVALUATION_ROWS;

        train_data_gather(&trainer->data, &trainer->data.test,
                          trainer->test_order + part.first + done, rows, trainer->model.input,
                          trainer->labels);
        const train_score_t score = train_model_forward(&trainer->model, trainer->labels, rows);
        sum.loss += score.loss;
        sum.correct += score.correct;
        done += rows;
    }
    return sum;
}

/* Put the test and all ranks' statistics of an epoch together. */
static bool finish_epoch(trainer_t *trainer, size_t epoch, const progress_t *progress,
                         double *ret_accuracy, train_error_t *error)
{
    const train_score_t score = evaluate(trainer);
    const double tests = (double)trainer->data.test.count;

    /* as doubles, counts are exact, too */
    double sums[] = { score.loss, (double)score.correct, trainer->parallel.wait_seconds,
                      progress->step_seconds };
    if (!train_parallel_sum(&trainer->parallel, sums, sizeof(sums) / sizeof(sums[0]), error))
        return false;

    const train_epoch_t report = {
        .epoch = epoch + 1,
        .epochs = (size_t)trainer->options.epochs,
        .train_loss = progress->loss / (double)progress->images,
        .test_loss = sums[0] / tests,
        .test_accuracy = sums[1] / tests,
        .images_per_second = (double)progress->images * trainer->parallel.size / sums[3],
        .wait_share = sums[2] / sums[3],
        .learning_rate = progress->rate,
    };
    train_report_epoch(&trainer->report, &report);
    *ret_accuracy = report.test_accuracy;
    return true;
}

static void report_step(trainer_t *trainer, size_t step, double loss, const progress_t *progress)
{
    const train_step_t report = {
        .epoch = step / trainer->epoch_steps + 1,
        .epochs = (size_t)trainer->options.epochs,
        .step = step + 1,
        .steps = trainer->total_steps,
        .epoch_step = step % trainer->epoch_steps + 1,
        .epoch_steps = trainer->epoch_steps,
        .loss = loss,
        .epoch_loss = progress->loss / (double)progress->images,
        .images_per_second = (double)progress->images / progress->step_seconds,
    };

    train_report_step(&trainer->report, &report);
}

/* Train on one epoch's shuffle, up to the last step of the run. */
static bool train_epoch(trainer_t *trainer, size_t epoch, progress_t *ret_progress,
                        train_error_t *error)
{
    const size_t images = trainer->data.train.count;
    train_random_t random = train_random_make((uint64_t)trainer->options.seed, 1000 + epoch);
    progress_t progress = { 0 };

    train_random_permutation(&random, trainer->train_order, images);
    trainer->parallel.wait_seconds = 0.0;

    for (size_t i = 0; i < trainer->epoch_steps; i++) {
        const size_t step = epoch * trainer->epoch_steps + i;
        const size_t first = i * trainer->batch;
        const size_t count = images - first < trainer->batch ? images - first : trainer->batch;
        const float rate = train_schedule_rate(&trainer->schedule, step);
        const double begin = train_seconds();
        double loss;

        if (step == trainer->total_steps)
            break;
        if (!train_step(trainer, trainer->train_order + first, count, rate, &loss, error))
            return false;
        if (!isfinite(loss))
            return train_fail(error, "the loss of step %zu is %f; try a smaller --lr", step + 1,
                              loss);

        progress.step_seconds += train_seconds() - begin;
        progress.images += count;
        progress.loss += loss * (double)count;
        progress.rate = rate;
        report_step(trainer, step, loss, &progress);
    }
    *ret_progress = progress;
    return true;
}

/* Show that all ranks ended with the same parameters. */
static bool report_digests(trainer_t *trainer, train_error_t *error)
{
    const train_model_t *model = &trainer->model;
    const uint64_t digest =
        train_hash(TRAIN_HASH_START, model->parameters, model->parameter_count * sizeof(float));

    if (!train_parallel_gather(&trainer->parallel, digest, trainer->digests, error))
        return false;
    train_report_digests(&trainer->report, trainer->digests, (size_t)trainer->parallel.size);
    return true;
}

static bool train(trainer_t *trainer, train_error_t *error)
{
    double accuracy = 0.0;

    if (!train_parallel_share_model(&trainer->parallel, &trainer->model, error))
        return false;

    train_report_begin(&trainer->report, "ranks %d  hosts %d  images %zu  batch %zu  rate %g",
                       trainer->parallel.size, trainer->parallel.hosts, trainer->data.train.count,
                       trainer->batch, trainer->schedule.peak);
    for (size_t epoch = 0; epoch * trainer->epoch_steps < trainer->total_steps; epoch++) {
        progress_t progress = { 0 };

        if (!train_epoch(trainer, epoch, &progress, error) ||
            !finish_epoch(trainer, epoch, &progress, &accuracy, error))
            return false;
    }
    if (trainer->options.digest && !report_digests(trainer, error))
        return false;
    train_report_accuracy(&trainer->report, accuracy);
    return true;
}

/* Numbers that follow from options, data and ranks. */
static void plan(trainer_t *trainer)
{
    const train_options_t *options = &trainer->options;
    const size_t images = trainer->data.train.count;

    trainer->batch = (size_t)options->batch < images ? (size_t)options->batch : images;
    trainer->epoch_steps = (images + trainer->batch - 1) / trainer->batch;
    trainer->total_steps = (size_t)options->epochs * trainer->epoch_steps;
    trainer->schedule = (train_schedule_t){
        .peak = options->lr * (double)trainer->batch / (double)options->reference_batch,
        .warmup_steps =
            fmin(options->warmup, 0.5 * (double)options->epochs) * (double)trainer->epoch_steps,
        .total_steps = (double)trainer->total_steps,
        .cosine = options->schedule == TRAIN_SCHEDULE_COSINE,
    };
    if (options->steps > 0 && (size_t)options->steps < trainer->total_steps)
        trainer->total_steps = (size_t)options->steps;
}

/* Allocate the model and what goes with it, for the rows that this rank has at most at once. */
static bool make_model(trainer_t *trainer, train_error_t *error)
{
    const train_options_t *options = &trainer->options;
    const size_t ranks = (size_t)trainer->parallel.size;
    const size_t part = (trainer->batch + ranks - 1) / ranks;
    const size_t rows = part > EVALUATION_ROWS ? part : EVALUATION_ROWS;
    size_t widths[TRAIN_MAX_LAYERS + 1];

    widths[0] = trainer->data.train.rows * trainer->data.train.columns;
    for (size_t i = 0; i < options->hidden.count; i++)
        widths[1 + i] = options->hidden.widths[i];
    widths[1 + options->hidden.count] = TRAIN_CLASSES;

    trainer->train_order = malloc(trainer->data.train.count * sizeof(uint32_t));
    trainer->test_order = malloc(trainer->data.test.count * sizeof(uint32_t));
    trainer->labels = malloc(rows);
    trainer->digests = malloc(ranks * sizeof(uint64_t));
    if (trainer->train_order == NULL || trainer->test_order == NULL || trainer->labels == NULL ||
        trainer->digests == NULL)
        return train_fail(error, "not enough memory");
    for (size_t i = 0; i < trainer->data.test.count; i++)
        trainer->test_order[i] = (uint32_t)i;

    if (!train_model_create(widths, options->hidden.count + 1, rows, &trainer->model, error))
        return false;
    train_model_initialise(&trainer->model, (uint64_t)options->seed);
    return train_optimizer_create(trainer->model.parameter_count, (float)options->momentum,
                                  (float)options->weight_decay, &trainer->optimizer, error);
}

/* All that can go wrong on one rank and not on another. Talks to nobody. */
static bool prepare(trainer_t *trainer, train_error_t *error)
{
    openblas_set_num_threads((int)trainer->options.threads);
    if (!train_data_load(trainer->options.data, &trainer->data, error))
        return false;
    plan(trainer);
    return make_model(trainer, error) &&
           train_report_open(&trainer->options, trainer->parallel.rank == 0, &trainer->report,
                             error);
}

static void clean_up(trainer_t *trainer)
{
    free(trainer->train_order);
    free(trainer->test_order);
    free(trainer->labels);
    free(trainer->digests);
    train_optimizer_free(&trainer->optimizer);
    train_model_free(&trainer->model);
    train_data_free(&trainer->data);
}

/* From the command line to the last line of output. False on all ranks if it failed on one. */
static bool run(trainer_t *trainer, int argc, char **argv, train_error_t *error)
{
    uint64_t fingerprint = 0;

    if (train_options_parse(argc, argv, &trainer->options, error)) {
        if (trainer->options.help) {
            if (trainer->parallel.rank == 0)
                train_options_print_help(stdout);
            return true;
        }
        if (prepare(trainer, error))
            fingerprint =
                train_options_fingerprint(&trainer->options) ^ train_data_checksum(&trainer->data);
    }

    bool good = train_parallel_agree(&trainer->parallel, fingerprint, error);
    if (good) {
        train(trainer, error);
        train_report_close(&trainer->report, error);
        good = train_parallel_agree(&trainer->parallel, fingerprint, error);
    }
    return good;
}

int main(int argc, char **argv)
{
    trainer_t trainer = { 0 };
    train_error_t error = { "" };
    bool good = false;

    if (train_parallel_start(&trainer.parallel, &error))
        good = run(&trainer, argc, argv, &error);
    train_report_close(&trainer.report, &error);
    if (error.text[0] != '\0') {
        /* not compared with the other ranks: Tutti itself failed */
        if (trainer.parallel.world == NULL)
            fprintf(stderr, "example_train: %s\n", error.text);
        else
            fprintf(stderr, "example_train: rank %d: %s\n", trainer.parallel.rank, error.text);
    }

    clean_up(&trainer);
    train_parallel_stop(&trainer.parallel);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
