/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The loop of data-parallel training: part of a batch, forward, backward, sum, step.
 *
 * All ranks run the same steps, and base all decisions on equal numbers: the losses are sums over
 * all ranks. So all ranks also stop at the same step.
 */
#include "train_run.h"

#include <math.h>
#include <stdio.h>

#include "train_interrupt.h"
#include "train_plot.h"

/* Sums over some steps of this rank. */
typedef struct {
    double loss;           /* over all images of all ranks */
    size_t images;         /* of all ranks */
    size_t earlier_images; /* the part of `images` that an earlier job computed, if this job resumed
                              the run inside this epoch; otherwise 0 */
    double step_seconds;   /* this rank's, without the earlier images */
    double rate;           /* the last step's learning rate */
} progress_t;

/* Images of all ranks per second of this rank's time. */
static double images_per_second(const progress_t *progress, double seconds)
{
    return (double)(progress->images - progress->earlier_images) / seconds;
}

/*
 * Divide the gradients by the loss's scale. Returns false if the step must be skipped, because the
 * gradients have overflowed. If the scale cannot become smaller, `error` is set as well.
 */
static bool unscale(trainer_t *trainer, train_error_t *error)
{
    train_compute_t *compute = &trainer->compute;
    const bool finite =
        compute->ops->unscale(compute, trainer->parallel.gradients, trainer->model.parameter_count,
                              1.0f / trainer->scale.value);

    if (!train_scale_update(&trainer->scale, finite))
        return train_fail(error, "gradients overflow even without a scale; try a smaller --lr");
    if (!finite)
        train_optimizer_skip(&trainer->optimizer);
    return finite;
}

/* Change the parameters, after the gradients have been added up. */
static bool update(trainer_t *trainer, double rate, train_error_t *error)
{
    train_compute_t *compute = &trainer->compute;
    train_model_t *model = &trainer->model;

    if (compute->on_device)
        compute->ops->add(compute, &trainer->sums->epoch_loss, &trainer->sums->step.loss);
    if (trainer->options.precision == TRAIN_FP16 && !unscale(trainer, error))
        return error->text[0] == '\0';
    if (trainer->options.clip > 0.0)
        compute->ops->clip(compute, model->tensors, model->tensor_count, trainer->options.clip);
    train_optimizer_step(&trainer->optimizer, model->tensors, model->tensor_count, rate);
    return train_compute_works(compute, error) || train_parallel_abort(&trainer->parallel, error);
}

/*
 * One step: this rank's part of each batch forward and backward, the sum over ranks, the update.
 *
 * items  the images of the whole step, one batch after the other; equal on all ranks
 */
static bool train_step(trainer_t *trainer, const uint32_t *items, size_t count, double rate,
                       train_error_t *error)
{
    train_model_t *model = &trainer->model;
    train_compute_t *compute = &trainer->compute;
    train_parallel_t *parallel = &trainer->parallel;
    train_score_t *sum = &trainer->sums->step;
    const float share = trainer->scale.value / (float)count;

    compute->ops->zero(compute, sum, sizeof(*sum));
    for (size_t first = 0; first < count; first += trainer->batch) {
        const size_t left = count - first;
        const bool is_last = left <= trainer->batch;
        const train_part_t part = train_parallel_part(parallel, is_last ? left : trainer->batch);

        if (!train_interrupt_check(error))
            return false;
        compute->ops->gather(compute, &trainer->train_source, items + first + part.first,
                             part.count, model->input, trainer->labels);
        train_model_forward(model, trainer->labels, part.count, sum);
        if (is_last)
            train_parallel_reduce_loss(parallel, &sum->loss);

        /* the last batch completes the gradients; each is reduced as soon as it is complete */
        train_model_backward(model, trainer->labels, part.count, share, first > 0,
                             is_last ? train_parallel_reduce_gradient : NULL, parallel);
    }
    return train_parallel_wait(parallel, error) && update(trainer, rate, error);
}

/* Test this rank's part of the test images. */
static bool evaluate(trainer_t *trainer, train_score_t *ret_score, train_error_t *error)
{
    const train_part_t part = train_parallel_part(&trainer->parallel, trainer->data.test.count);
    train_compute_t *compute = &trainer->compute;
    train_score_t *sum = &trainer->sums->step;

    compute->ops->zero(compute, sum, sizeof(*sum));
    for (size_t done = 0; done < part.count;) {
        const size_t left = part.count - done;
        const size_t rows = left < TRAIN_EVALUATION_ROWS ? left : TRAIN_EVALUATION_ROWS;

        if (!train_interrupt_check(error))
            return false;
        compute->ops->gather(compute, &trainer->test_source,
                             trainer->test_items + part.first + done, rows, trainer->model.input,
                             trainer->labels);
        train_model_forward(&trainer->model, trainer->labels, rows, sum);
        done += rows;
    }
    compute->ops->get(compute, ret_score, sum, sizeof(*ret_score));
    return train_compute_works(compute, error) || train_parallel_abort(&trainer->parallel, error);
}

/* Test, and combine all ranks' statistics of an epoch. The step's loss precedes its update, so only
   the test loss shows that the last update has overflowed. */
static bool finish_epoch(trainer_t *trainer, size_t epoch, const progress_t *progress,
                         train_error_t *error)
{
    const double tests = (double)trainer->data.test.count;
    train_score_t score;

    if (!evaluate(trainer, &score, error))
        return false;
    double sums[] = { score.loss,
                      score.correct,
                      trainer->parallel.wait_seconds,
                      progress->step_seconds,
                      trainer->parallel.overlap.hidden_seconds,
                      trainer->parallel.overlap.exposed_seconds };
    if (!train_parallel_sum(&trainer->parallel, sums, sizeof(sums) / sizeof(sums[0]), error))
        return false;

    const train_epoch_t report = {
        .epoch = epoch + 1,
        .epochs = (size_t)trainer->options.epochs,
        .result = {
            .train_loss = progress->loss / (double)progress->images,
            .test_loss = sums[0] / tests,
            .test_accuracy = sums[1] / tests,
            .learning_rate = progress->rate,
        },
        .images_per_second = images_per_second(progress, sums[3] / trainer->parallel.size),
        .wait_share = sums[2] / sums[3],
        .hidden_seconds = sums[4],
        .exposed_seconds = sums[5],
        .reductions = trainer->parallel.reductions,
    };
    /* With fp16 a single image may overflow, although the parameters are finite. */
    if (!isfinite(report.result.test_loss) && trainer->options.precision != TRAIN_FP16)
        return train_fail(error, "the test loss of epoch %zu is %f; try a smaller --lr",
                          report.epoch, report.result.test_loss);
    train_report_epoch(&trainer->report, &report);
    trainer->results[epoch] = report.result;
    return true;
}

/* Update the state that the checkpoint saves; on a device it is a copy. */
static void get_state(trainer_t *trainer)
{
    train_compute_t *compute = &trainer->compute;
    const size_t count = trainer->optimizer.state_count;
    float *behind = trainer->saved_state + count;

    train_model_get(&trainer->model);
    compute->ops->get(compute, trainer->saved_state, trainer->optimizer.state,
                      count * sizeof(float));
    if (compute->on_device) {
        behind[0] = trainer->scale.value;
        behind[1] = (float)trainer->scale.clean_steps;
        behind[2] = (float)trainer->scale.hysteresis;
        behind[3] = (float)trainer->optimizer.skipped_steps;
    }
}

/* Load the state from the checkpoint. */
static bool put_state(trainer_t *trainer, train_error_t *error)
{
    train_compute_t *compute = &trainer->compute;
    const size_t count = trainer->optimizer.state_count;
    const float *behind = trainer->saved_state + count;

    train_model_put(&trainer->model);
    compute->ops->put(compute, trainer->optimizer.state, trainer->saved_state,
                      count * sizeof(float));
    if (compute->on_device && behind[0] > 0.0f) { /* a resumed run */
        trainer->scale.value = behind[0];
        trainer->scale.clean_steps = (uint32_t)behind[1];
        trainer->scale.hysteresis = (uint32_t)behind[2];
        trainer->optimizer.skipped_steps = (uint64_t)behind[3];
    }
    return train_compute_works(compute, error) || train_parallel_abort(&trainer->parallel, error);
}

/* Rank 0 writes the checkpoint; the result is equal on all ranks. */
static bool save(trainer_t *trainer, size_t epochs, const progress_t *progress,
                 train_error_t *error)
{
    trainer->checkpoint.epochs = epochs;
    trainer->checkpoint.steps = trainer->optimizer.steps;
    trainer->checkpoint.epoch_loss = progress->loss;
    if (trainer->options.checkpoint == NULL)
        return true;
    get_state(trainer);
    if (trainer->parallel.rank == 0 && train_compute_works(&trainer->compute, error))
        train_checkpoint_write(trainer->options.checkpoint, &trainer->checkpoint, error);
    return train_parallel_agree(&trainer->parallel, "", 0, error);
}

static void report_step(trainer_t *trainer, size_t step, double loss, const progress_t *progress)
{
    const train_step_t report = {
        .epoch = step / trainer->epoch_steps + 1,
        .epochs = (size_t)trainer->options.epochs,
        .step = step + 1,
        .steps = trainer->total_steps,
        .earlier_steps = trainer->earlier_steps,
        .epoch_step = step % trainer->epoch_steps + 1,
        .epoch_steps = trainer->epoch_steps,
        .loss = loss,
        .epoch_loss = progress->loss / (double)progress->images,
        .images_per_second = images_per_second(progress, progress->step_seconds),
    };

    train_report_step(&trainer->report, &report);
}

/*
 * Add a step's loss to the epoch's. A device computes the sum itself; the host reads it only at the
 * `end` of the epoch, when it is equal on all ranks, and to show it. Returns whether it was read.
 */
static bool take_loss(trainer_t *trainer, size_t count, bool end, progress_t *progress,
                      double *ret_loss)
{
    train_compute_t *compute = &trainer->compute;
    train_sums_t sums;

    if (compute->on_device && !end && !train_report_wants_step(&trainer->report))
        return false;
    compute->ops->get(compute, &sums, trainer->sums, sizeof(sums));
    *ret_loss = sums.step.loss / (double)count;
    if (compute->on_device)
        progress->loss = sums.epoch_loss;
    else
        progress->loss += *ret_loss * (double)count;
    return true;
}

/* Make an epoch's shuffle. The result is the progress at the step where the run continues. */
static progress_t begin_epoch(trainer_t *trainer, size_t epoch, size_t begin_step)
{
    const size_t images = trainer->data.train.count;
    train_random_t random = train_random_make((uint64_t)trainer->options.seed, 1000 + epoch);
    train_compute_t *compute = &trainer->compute;
    progress_t progress = { 0 };

    if (begin_step > 0) {
        progress.images = progress.earlier_images = begin_step * trainer->step_images;
        progress.loss = trainer->checkpoint.epoch_loss;
    }
    train_random_permutation(&random, trainer->train_order, images);
    compute->ops->put(compute, trainer->train_items, trainer->train_order,
                      images * sizeof(*trainer->train_order));
    compute->ops->put(compute, &trainer->sums->epoch_loss, &progress.loss, sizeof(progress.loss));
    trainer->parallel.wait_seconds = 0.0;
    trainer->parallel.overlap = (train_overlap_t){ 0.0, 0.0 };
    trainer->parallel.reductions = 0;
    return progress;
}

/* Train one epoch, from the step where the run continues to the last step. */
static bool train_epoch(trainer_t *trainer, size_t epoch, progress_t *ret_progress,
                        train_error_t *error)
{
    const size_t images = trainer->data.train.count;
    const size_t begin_step = (size_t)trainer->optimizer.steps - epoch * trainer->epoch_steps;
    progress_t progress = begin_epoch(trainer, epoch, begin_step);

    for (size_t i = begin_step; i < trainer->epoch_steps; i++) {
        const size_t step = epoch * trainer->epoch_steps + i;
        const size_t first = i * trainer->step_images;
        const size_t left = images - first;
        const size_t count = left < trainer->step_images ? left : trainer->step_images;
        const double rate = train_schedule_rate(&trainer->schedule, step);
        const double begin = train_seconds();
        const bool end = i + 1 == trainer->epoch_steps || step + 1 == trainer->total_steps;
        double loss = 0.0;

        if (step == trainer->total_steps)
            break;
        if (!train_step(trainer, trainer->train_items + first, count, rate, error))
            return false;

        const bool known = take_loss(trainer, count, end, &progress, &loss);
        if (!isfinite(loss) && (end || !trainer->compute.on_device))
            return train_fail(error, "the loss of step %zu is %f; try a smaller --lr", step + 1,
                              loss);

        progress.step_seconds += train_seconds() - begin;
        progress.images += count;
        progress.rate = rate;
        if (known)
            report_step(trainer, step, loss, &progress);
    }
    *ret_progress = progress;
    return true;
}

/* Print a digest of each rank's parameters, which must be equal. */
static bool report_digests(trainer_t *trainer, train_error_t *error)
{
    train_model_t *model = &trainer->model;

    train_model_get(model);
    const uint64_t digest = train_hash(TRAIN_HASH_START, model->host_parameters,
                                       model->parameter_count * sizeof(float));

    if (!train_parallel_gather(&trainer->parallel, digest, trainer->digests, error))
        return false;
    train_report_digests(&trainer->report, trainer->digests, (size_t)trainer->parallel.size);
    return true;
}

static bool plot(trainer_t *trainer, size_t epochs, train_error_t *error)
{
    char model[16], optimizer[16], title[256];

    if (!trainer->has_gnuplot || epochs == 0)
        return true;
    train_options_value(&trainer->options, "--model", model, sizeof(model));
    train_options_value(&trainer->options, "--optimizer", optimizer, sizeof(optimizer));
    snprintf(title, sizeof(title), "%s with %s on %d rank%s: test accuracy %.4f", model, optimizer,
             trainer->parallel.size, trainer->parallel.size > 1 ? "s" : "",
             trainer->results[epochs - 1].test_accuracy);
    return train_plot(trainer->options.plot, title, trainer->results, epochs, error);
}

/* Copy rank 0's model, optimizer state and place in the run to all ranks. */
static bool share(trainer_t *trainer, train_error_t *error)
{
    train_checkpoint_t *from = &trainer->checkpoint;
    train_parallel_t *parallel = &trainer->parallel;
    uint64_t place[] = { from->epochs, from->steps };

    const bool model_shared = train_parallel_share_model(parallel, &trainer->model, error);
    if (trainer->compute.on_device)
        trainer->device_gradients = parallel->gradients;
    if (!model_shared || !train_parallel_share(parallel, place, sizeof(place), error) ||
        !train_parallel_share(parallel, &from->epoch_loss, sizeof(from->epoch_loss), error))
        return false;
    from->epochs = place[0];
    from->steps = trainer->optimizer.steps = place[1];
    return train_parallel_share(parallel, from->results, from->epochs * sizeof(*from->results),
                                error) &&
           train_parallel_share(parallel, from->state, from->state_count * sizeof(float), error) &&
           put_state(trainer, error);
}

static void report_begin(trainer_t *trainer)
{
    char model[16], optimizer[16], resumed[64] = "";

    train_options_value(&trainer->options, "--model", model, sizeof(model));
    train_options_value(&trainer->options, "--optimizer", optimizer, sizeof(optimizer));
    if (trainer->options.resume && trainer->earlier_steps % trainer->epoch_steps > 0)
        snprintf(resumed, sizeof(resumed), "  after step %zu", trainer->earlier_steps);
    else if (trainer->options.resume)
        snprintf(resumed, sizeof(resumed), "  after epoch %zu", (size_t)trainer->checkpoint.epochs);
    train_report_begin(&trainer->report);
    train_report_line(&trainer->report,
                      "ranks %d  hosts %d  images %zu  batch %zu  rate %g  model %s  "
                      "optimizer %s%s%s%s",
                      trainer->parallel.size, trainer->parallel.hosts, trainer->data.train.count,
                      trainer->step_images, trainer->schedule.peak, model, optimizer, resumed,
                      trainer->device[0] != '\0' ? "  device " : "", trainer->device);
}

/* A resumed run may have no step left. Such a run succeeds, so a script can start a run again and
   again until it is complete. */
static void report_nothing_left(trainer_t *trainer)
{
    const train_options_t *options = &trainer->options;
    const bool by_steps = options->steps > 0 && (uint64_t)options->steps == trainer->total_steps;

    if (!options->resume || trainer->optimizer.steps < trainer->total_steps)
        return;
    if (by_steps)
        train_report_line(
            &trainer->report, "nothing to train: %s is at step %zu already, --steps asks for %zu",
            options->checkpoint, (size_t)trainer->optimizer.steps, trainer->total_steps);
    else
        train_report_line(&trainer->report,
                          "nothing to train: %s is at step %zu already, the last of %zu epoch%s",
                          options->checkpoint, (size_t)trainer->optimizer.steps,
                          (size_t)options->epochs, options->epochs > 1 ? "s" : "");
}

/* If --steps ends the run before the end of its last epoch, report this. */
static void report_stop(trainer_t *trainer)
{
    const size_t all = (size_t)trainer->options.epochs * trainer->epoch_steps;

    if (trainer->total_steps < all && trainer->earlier_steps < trainer->total_steps)
        train_report_line(&trainer->report, "stopped after step %zu of %zu (--steps)",
                          trainer->total_steps, all);
}

bool train_run(trainer_t *trainer, train_error_t *error)
{
    if (!share(trainer, error))
        return false;
    trainer->earlier_steps = (size_t)trainer->optimizer.steps;
    report_begin(trainer);
    report_nothing_left(trainer);

    while (trainer->optimizer.steps < trainer->total_steps) {
        const size_t epoch = (size_t)trainer->optimizer.steps / trainer->epoch_steps;
        progress_t progress = { 0 };

        if (!train_epoch(trainer, epoch, &progress, error) ||
            !finish_epoch(trainer, epoch, &progress, error) ||
            !save(trainer, epoch + 1, &progress, error))
            return false;
    }
    report_stop(trainer);
    if (trainer->options.digest && !report_digests(trainer, error))
        return false;

    const size_t epochs = (size_t)trainer->checkpoint.epochs;
    train_report_hidden(&trainer->report);
    if (epochs > 0)
        train_report_accuracy(&trainer->report, trainer->results[epochs - 1].test_accuracy);
    return plot(trainer, epochs, error);
}
