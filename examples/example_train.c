/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data-parallel training on Fashion-MNIST: mpirun -np N ./example_train
 *
 * Every rank holds the whole model and reads all the data, but computes on its part of each batch
 * only. The sum of all ranks' gradients is the gradient of the batch, so N ranks follow the same
 * path as one would, up to rounding, only faster. Read train_step in train_run.c first, then
 * train_parallel.c. Here everything is put together, and taken apart.
 *
 *     train_run         the loop: forward, backward, sum, step
 *     train_parallel    the other ranks: the only file that uses Tutti
 *     train_model       layers in a row; train_dense and train_conv are the layers (train_layer.h)
 *     train_optimizer   parameters follow gradients
 *     train_schedule    the learning rate
 *     train_data        images and labels
 *     train_checkpoint  stop and go on
 *     train_report      progress and results; train_plot draws them
 *     train_options     command line; train_value reads its values
 *     train_base        errors, files, memory, clock, random numbers
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cblas.h>

#include "train_base.h"
#include "train_run.h"

/* Numbers that follow from options, data and ranks. */
static bool plan(trainer_t *trainer, train_error_t *error)
{
    const train_options_t *options = &trainer->options;
    const size_t images = trainer->data.train.count;
    const size_t batch = (size_t)options->batch, accumulate = (size_t)options->accumulate;

    if (batch > images)
        return train_fail(error, "--batch %zu: there are only %zu training images", batch, images);
    if (batch * accumulate > images)
        return train_fail(error,
                          "--accumulate %zu: with --batch %zu it needs %zu training images, "
                          "there are %zu",
                          accumulate, batch, batch * accumulate, images);

    trainer->batch = batch;
    trainer->step_images = batch * accumulate;
    trainer->epoch_steps = (images + trainer->step_images - 1) / trainer->step_images;
    trainer->total_steps = (size_t)options->epochs * trainer->epoch_steps;

    const double epoch_steps = (double)trainer->epoch_steps;
    trainer->schedule = (train_schedule_t){
        .kind = (train_schedule_kind_t)options->schedule,
        .peak =
            train_schedule_scale((train_scaling_t)options->lr_scaling, options->lr,
                                 (double)trainer->step_images, (double)options->reference_batch),
        .warmup_steps = options->warmup * epoch_steps,
        .total_steps = (double)trainer->total_steps,
        .decay_steps = options->decay_every * epoch_steps,
        .decay = options->decay,
    };
    if (options->steps > 0 && (size_t)options->steps < trainer->total_steps)
        trainer->total_steps = (size_t)options->steps;
    return true;
}

/* Allocate the model and the optimizer, for the rows that this rank has at most at once. */
static bool make_model(trainer_t *trainer, train_error_t *error)
{
    const train_options_t *options = &trainer->options;
    const size_t ranks = (size_t)trainer->parallel.size;
    const size_t part = (trainer->batch + ranks - 1) / ranks;
    const size_t rows = part > TRAIN_EVALUATION_ROWS ? part : TRAIN_EVALUATION_ROWS;
    train_plan_t shape = {
        .height = trainer->data.train.rows,
        .width = trainer->data.train.columns,
        .hidden = options->hidden,
        .classes = TRAIN_CLASSES,
        .max_rows = rows,
    };
    const train_rule_t rule = {
        .kind = (train_optimizer_kind_t)options->optimizer,
        .momentum = options->momentum,
        .beta1 = options->beta1,
        .beta2 = options->beta2,
        .epsilon = options->epsilon,
        .trust = options->trust,
        .weight_decay = options->weight_decay,
    };

    if (options->model == TRAIN_MODEL_CNN)
        shape.convolution = options->channels;
    trainer->labels = malloc(rows);
    if (trainer->labels == NULL)
        return train_fail(error, "not enough memory");
    if (!train_model_create(&shape, &trainer->model, error))
        return false;
    train_model_initialise(&trainer->model, (uint64_t)options->seed);
    return train_optimizer_create(&rule, trainer->model.tensors, trainer->model.tensor_count,
                                  &trainer->optimizer, error);
}

/* Allocate what the run keeps track of. */
static bool make_lists(trainer_t *trainer, train_error_t *error)
{
    trainer->train_order = malloc(trainer->data.train.count * sizeof(uint32_t));
    trainer->test_order = malloc(trainer->data.test.count * sizeof(uint32_t));
    trainer->digests = malloc((size_t)trainer->parallel.size * sizeof(uint64_t));
    trainer->results = calloc((size_t)trainer->options.epochs, sizeof(train_result_t));
    if (trainer->train_order == NULL || trainer->test_order == NULL || trainer->digests == NULL ||
        trainer->results == NULL)
        return train_fail(error, "not enough memory");
    for (size_t i = 0; i < trainer->data.test.count; i++)
        trainer->test_order[i] = (uint32_t)i;
    return true;
}

/* Point the checkpoint to what it saves; rank 0 reads it if the run is to be resumed. */
static bool make_checkpoint(trainer_t *trainer, train_error_t *error)
{
    const train_options_t *options = &trainer->options;
    char *about = malloc(TRAIN_TEXT_BYTES + 100);

    if (about == NULL)
        return train_fail(error, "not enough memory");
    train_options_describe(options, about);
    snprintf(about + strlen(about), 100, "ranks %d\ndata %08x\n", trainer->parallel.size,
             train_data_checksum(&trainer->data));

    trainer->checkpoint = (train_checkpoint_t){
        .about = about,
        .epochs_max = (uint64_t)options->epochs,
        .results = trainer->results,
        .parameters = trainer->model.parameters,
        .parameter_count = trainer->model.parameter_count,
        .state = trainer->optimizer.state,
        .state_count = trainer->optimizer.state_count,
    };
    if (options->checkpoint == NULL || trainer->parallel.rank != 0)
        return true;
    return train_checkpoint_probe(options->checkpoint, error) &&
           (!options->resume ||
            train_checkpoint_read(options->checkpoint, &trainer->checkpoint, error));
}

/* All that can go wrong on one rank and not on another. Talks to nobody. */
static bool prepare(trainer_t *trainer, train_error_t *error)
{
    const bool active = trainer->parallel.rank == 0;

    openblas_set_num_threads((int)trainer->options.threads);
    if (!train_data_load(trainer->options.data, &trainer->data, error) || !plan(trainer, error) ||
        !make_model(trainer, error) || !make_lists(trainer, error) ||
        !make_checkpoint(trainer, error))
        return false;
    if (active && trainer->options.plot != NULL &&
        !train_probe_file("--plot", trainer->options.plot, trainer->options.plot, error))
        return false;
    return train_report_open(&trainer->options, active, &trainer->report, error);
}

static void clean_up(trainer_t *trainer)
{
    free((void *)trainer->checkpoint.about);
    free(trainer->train_order);
    free(trainer->test_order);
    free(trainer->labels);
    free(trainer->digests);
    free(trainer->results);
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

    if (!train_parallel_agree(&trainer->parallel, fingerprint, error))
        return false;
    const bool trained = train_run(trainer, error);
    train_report_close(&trainer->report, error);
    return train_parallel_agree(&trainer->parallel, fingerprint, error) && trained;
}

int main(int argc, char **argv)
{
    static trainer_t trainer;
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
