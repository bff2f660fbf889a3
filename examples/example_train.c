/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data-parallel training on Fashion-MNIST: mpirun -np N ./example_train
 *
 * examples/quickstart.sh builds and starts it, and docs/training.md describes it.
 *
 * Every rank holds the whole model and reads all the data, but computes only its part of each
 * batch. The sum of all ranks' gradients is the gradient of the batch, so N ranks train the same
 * parameters as one rank, up to rounding, in less time. Read train_step in train_run.c first, then
 * train_parallel.c. This file sets up all parts, and frees them at the end.
 *
 *     train_run         the loop: forward, backward, sum, step
 *     train_parallel    communication: the only file that uses Tutti
 *     train_model       a sequence of layers; train_dense and train_conv are the layers
 *                       (train_layer.h)
 *     train_optimizer   the optimizer's step; train_scale is loss scaling for fp16
 *     train_compute     the compute backend: train_cpu with train_rules, or train_gpu over
 *                       train_cuda with train_kernels
 *     train_schedule    the learning rate
 *     train_data        images and labels
 *     train_checkpoint  saving and resuming; train_about compares a checkpoint with a run
 *     train_interrupt   Ctrl-C
 *     train_report      progress and results; train_plot draws them
 *     train_options     command line; train_value parses its values
 *     train_base        errors, files, memory, clock, random numbers
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cblas.h>

#include "train_about.h"
#include "train_base.h"
#include "train_device.h"
#include "train_interrupt.h"
#include "train_plot.h"
#include "train_run.h"

/* Compute the numbers that follow from options, data and ranks. */
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

/* Open the backend: processor or GPU. With --device auto, the choice is stored in the options. */
static bool open_compute(trainer_t *trainer, train_error_t *error)
{
    train_options_t *options = &trainer->options;
    const train_precision_t precision = (train_precision_t)options->precision;
    const int number = trainer->parallel.device;
    train_error_t reason = { "" };
    train_device_t *device;

    if (options->device != TRAIN_DEVICE_CPU) {
        bool opened = train_cuda_open(number >= 0 ? number : trainer->parallel.local_rank,
                                      precision, &device, &reason);
        if (opened && number < 0) {
            device->ops->close(device);
            opened = train_fail(&reason, "Tutti uses no GPU; TUTTI_LOG=warn says why");
        }
        if (opened) {
            options->device = TRAIN_DEVICE_CUDA;
            snprintf(trainer->device, sizeof(trainer->device), "%s", device->name);
            return train_gpu_open(device, precision, &trainer->compute, error);
        }
        if (options->device == TRAIN_DEVICE_CUDA || precision != TRAIN_FP32)
            return train_fail(error, "%s: %.400s",
                              options->device == TRAIN_DEVICE_CUDA ? "--device cuda"
                                                                   : "--precision needs a GPU",
                              reason.text);
        options->device = TRAIN_DEVICE_CPU;
        snprintf(trainer->device, sizeof(trainer->device), "cpu, no GPU: %.400s", reason.text);
    }
    train_cpu_open(&trainer->compute);
    return true;
}

/* Return an array of the backend that has the data of `from`: a copy, or `from` itself. NULL: no
   memory. */
static void *place(train_compute_t *compute, const void *from, size_t bytes)
{
    if (!compute->on_device)
        return (void *)from;

    void *array = compute->ops->alloc(compute, bytes);
    if (array != NULL)
        compute->ops->put(compute, array, from, bytes);
    return array;
}

static train_source_t place_set(train_compute_t *compute, const train_data_t *data,
                                const train_set_t *set)
{
    const size_t pixels = set->rows * set->columns;
    const train_source_t source = {
        .images = place(compute, set->images, set->count * pixels),
        .labels = place(compute, set->labels, set->count),
        .pixels = pixels,
        .mean = data->mean,
        .scale = 1.0f / data->deviation,
    };

    return source;
}

/* Copy the data to the backend, and allocate the run's arrays there. */
static bool make_arrays(trainer_t *trainer, train_error_t *error)
{
    train_compute_t *compute = &trainer->compute;
    const train_data_t *data = &trainer->data;

    trainer->train_source = place_set(compute, data, &data->train);
    trainer->test_source = place_set(compute, data, &data->test);
    trainer->train_items =
        place(compute, trainer->train_order, data->train.count * sizeof(uint32_t));
    trainer->test_items = place(compute, trainer->test_order, data->test.count * sizeof(uint32_t));
    trainer->labels = compute->ops->alloc(compute, trainer->max_rows);
    trainer->sums = compute->ops->alloc(compute, sizeof(*trainer->sums));
    if (!train_compute_works(compute, error))
        return false;
    if (trainer->labels == NULL || trainer->sums == NULL)
        return train_fail(error, "not enough memory");
    return true;
}

static void free_arrays(trainer_t *trainer)
{
    train_compute_t *compute = &trainer->compute;

    if (compute->ops == NULL)
        return;
    compute->ops->free(compute, trainer->labels);
    compute->ops->free(compute, trainer->sums);
    if (compute->on_device) {
        compute->ops->free(compute, (void *)trainer->train_source.images);
        compute->ops->free(compute, (void *)trainer->train_source.labels);
        compute->ops->free(compute, (void *)trainer->test_source.images);
        compute->ops->free(compute, (void *)trainer->test_source.labels);
        compute->ops->free(compute, trainer->train_items);
        compute->ops->free(compute, trainer->test_items);
        compute->ops->free(compute, trainer->device_gradients);
    }
}

/* Allocate the model and the optimizer, for the largest number of rows that this rank computes. */
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
    trainer->max_rows = rows;
    trainer->scale = train_scale_start();
    if (options->precision != TRAIN_FP16)
        trainer->scale.value = 1.0f;
    if (!train_model_create(&trainer->compute, &shape, &trainer->model, error))
        return false;
    train_model_initialise(&trainer->model, (uint64_t)options->seed);
    return train_optimizer_create(&trainer->compute, &rule, trainer->model.tensors,
                                  trainer->model.tensor_count, &trainer->optimizer, error);
}

/* Allocate results, orders of images and digests. */
static bool make_lists(trainer_t *trainer, train_error_t *error)
{
    trainer->train_order = malloc(trainer->data.train.count * sizeof(uint32_t));
    trainer->test_order = malloc(trainer->data.test.count * sizeof(uint32_t));
    trainer->digests = malloc((size_t)trainer->parallel.size * sizeof(uint64_t));
    trainer->results = calloc((size_t)trainer->options.epochs, sizeof(train_result_t));
    if (trainer->train_order == NULL || trainer->test_order == NULL || trainer->digests == NULL ||
        trainer->results == NULL)
        return train_fail(error, "not enough memory");

    trainer->saved_state = trainer->optimizer.state;
    if (trainer->compute.on_device)
        trainer->saved_state = train_floats(trainer->optimizer.state_count + TRAIN_SCALE_FLOATS);
    if (trainer->saved_state == NULL)
        return train_fail(error, "not enough memory");
    for (size_t i = 0; i < trainer->data.test.count; i++)
        trainer->test_order[i] = (uint32_t)i;
    return true;
}

/* Point the checkpoint to the arrays that it saves. With --resume, rank 0 reads it. */
static bool make_checkpoint(trainer_t *trainer, train_error_t *error)
{
    const train_options_t *options = &trainer->options;
    char *about = malloc(TRAIN_ABOUT_BYTES);

    if (about == NULL)
        return train_fail(error, "not enough memory");
    train_about_write(options, trainer->parallel.size, train_data_checksum(&trainer->data), about);

    trainer->checkpoint = (train_checkpoint_t){
        .about = about,
        .options = options,
        .epochs_max = (uint64_t)options->epochs,
        .results = trainer->results,
        .parameters = trainer->model.host_parameters,
        .parameter_count = trainer->model.parameter_count,
        .state = trainer->saved_state,
        .state_count =
            trainer->optimizer.state_count + (trainer->compute.on_device ? TRAIN_SCALE_FLOATS : 0),
    };
    if (options->checkpoint == NULL || trainer->parallel.rank != 0)
        return true;
    if (!train_checkpoint_probe(options->checkpoint, error))
        return false;
    if (options->resume)
        return train_checkpoint_read(options->checkpoint, &trainer->checkpoint, error);
    return train_checkpoint_replaceable(options->checkpoint, options->overwrite, error);
}

/* Prepare everything that can fail on a single rank. No communication. */
static bool prepare(trainer_t *trainer, train_error_t *error)
{
    const bool active = trainer->parallel.rank == 0;
    const char *plot = trainer->options.plot;

    openblas_set_num_threads((int)trainer->options.threads);
    if (!open_compute(trainer, error) ||
        !train_data_load(trainer->options.data, &trainer->data, error) || !plan(trainer, error) ||
        !make_model(trainer, error) || !make_lists(trainer, error) ||
        !make_arrays(trainer, error) || !make_checkpoint(trainer, error))
        return false;
    if (plot != NULL && !train_plot_check(plot, active, error))
        return false;
    if (!train_report_open(&trainer->options, active, &trainer->report, error))
        return false;
    return plot == NULL || !active || train_plot_try(plot, &trainer->has_gnuplot, error);
}

static void clean_up(trainer_t *trainer)
{
    free_arrays(trainer);
    if (trainer->compute.on_device)
        free(trainer->saved_state);
    free((void *)trainer->checkpoint.about);
    free(trainer->train_order);
    free(trainer->test_order);
    free(trainer->digests);
    free(trainer->results);
    train_optimizer_free(&trainer->optimizer);
    train_model_free(&trainer->model);
    train_data_free(&trainer->data);
    train_gpu_close(&trainer->compute);
}

/* Report where the run was interrupted. */
static void report_interrupt(trainer_t *trainer)
{
    const size_t epochs = (size_t)trainer->options.epochs, steps = trainer->optimizer.steps;
    const size_t epoch = steps / trainer->epoch_steps + 1;
    const size_t saved = trainer->checkpoint.steps;
    const train_stop_t stop = {
        .epoch = epoch < epochs ? epoch : epochs,
        .epochs = epochs,
        .step = steps,
        .steps = trainer->total_steps,
        .checkpoint = saved > 0 ? trainer->options.checkpoint : NULL,
        .saved_step = saved,
    };

    train_report_interrupted(&trainer->report, &stop);
}

/* Run the loop, and report its end. Returns false on all ranks if one rank has failed. */
static bool train(trainer_t *trainer, const char *shared, uint32_t data, train_error_t *error)
{
    const bool trained = train_run(trainer, error);

    /* the error may be that another rank was interrupted, or that the signal has ended gnuplot */
    if (!trained &&
        (train_interrupt_signal() != 0 || strcmp(error->text, TRAIN_INTERRUPTED) == 0)) {
        report_interrupt(trainer);
        error->text[0] = '\0';
        train_report_close(&trainer->report, error);
        return false;
    }
    train_report_close(&trainer->report, error);
    return train_parallel_agree(&trainer->parallel, shared, data, error) && trained;
}

/* The whole program after parsing. parsed: the options are valid. Returns false on all ranks if one
   rank has failed. */
static bool run(trainer_t *trainer, bool parsed, train_error_t *error)
{
    char shared[TRAIN_SHARED_BYTES] = "";
    uint32_t data = 0;

    if (parsed) {
        if (trainer->options.help) {
            if (trainer->parallel.rank == 0)
                train_options_print_help(stdout);
            return true;
        }
        train_interrupt_watch();
        if (prepare(trainer, error)) { /* --device auto has become cpu or cuda */
            train_options_describe_shared(&trainer->options, shared);
            data = train_data_checksum(&trainer->data);
        }
    }

    return train_parallel_agree(&trainer->parallel, shared, data, error) &&
           train(trainer, shared, data, error);
}

int main(int argc, char **argv)
{
    static trainer_t trainer;
    train_error_t error = { "" };
    bool good = false;

    /* an error in the options is printed later, when all ranks can compare their errors */
    const bool parsed = train_options_parse(argc, argv, &trainer.options, &error);
    if (train_parallel_start(trainer.options.device, &trainer.parallel, &error))
        good = run(&trainer, parsed, &error);
    train_report_close(&trainer.report, &error);
    if (error.text[0] != '\0') {
        /* the ranks have not compared this error, since Tutti itself failed */
        if (trainer.parallel.world == NULL)
            fprintf(stderr, "example_train: %s\n", error.text);
        else
            fprintf(stderr, "example_train: rank %d: %s\n", trainer.parallel.rank, error.text);
    }

    /* stop first: this ends communication that may still use the arrays */
    train_parallel_stop(&trainer.parallel);
    clean_up(&trainer);
    if (!good && train_interrupt_signal() != 0)
        return 128 + train_interrupt_signal();
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
