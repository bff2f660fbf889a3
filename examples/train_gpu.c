/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The compute backend for a GPU: kernels and matrix products of a device (train_device.h), in the
 * order of its stream. Only `get`, `sync` and `unscale` wait.
 *
 * Arrays of the kind Numbers (train_compute.h) have floats or values of 16 bits; sums of 16-bit
 * values are computed in float. Parameters, gradients and the optimizer's state are always floats,
 * so ranks add up floats.
 */
#include "train_compute.h"

#include <stdio.h>
#include <string.h>

#include "train_device.h"
#include "train_kernels.h"
#include "train_layer.h"

/* The columns of a group: enough bytes for a batch to be one group, but few enough that 32 bits can
   count the elements. */
#define GROUP_BYTES ((size_t)256 << 20)

/*
 * A thread adds up its numbers one after the other, which is slow. So long sums are divided into
 * parts, and the sums of the parts are added up in the same way.
 */
#define PART_ROWS 32
#define FEW_ROWS 64 /* up to this number of rows, a sum has one part */
#define SQUARE_PARTS 16384u
/* One half is for the first list of partial sums or terms, the rest for the lists that come from
   adding these up. */
#define SCRATCH_BYTES ((size_t)4 << 20)

/* Single numbers, in memory behind the scratch. */
typedef struct {
    double squares[2];
    float pace;
    uint32_t bad;
} scalars_t;

static scalars_t *scalars(const train_compute_t *compute)
{
    return (scalars_t *)(void *)((char *)compute->scratch + SCRATCH_BYTES);
}

static bool works(const train_compute_t *compute)
{
    return compute->error.text[0] == '\0';
}

static void launch(train_compute_t *compute, unsigned kernel, const void *args, size_t count)
{
    if (!works(compute) || count == 0)
        return;
    if (count > UINT32_MAX)
        train_fail(&compute->error, "%s: %zu elements at once are too many", compute->device->name,
                   count);
    else
        compute->device->ops->launch(compute->device, kernel, args, (uint32_t)count,
                                     &compute->error);
}

/* ---- memory ---- */

static void *gpu_alloc(train_compute_t *compute, size_t bytes)
{
    void *memory = NULL;

    if (!works(compute) || !compute->device->ops->alloc(compute->device, bytes > 0 ? bytes : 1,
                                                        &memory, &compute->error))
        return NULL;
    return memory;
}

static void gpu_free(train_compute_t *compute, void *array)
{
    if (array != NULL)
        compute->device->ops->free(compute->device, array);
}

static void gpu_put(train_compute_t *compute, void *array, const void *from, size_t bytes)
{
    if (works(compute) && bytes > 0)
        compute->device->ops->put(compute->device, array, from, bytes, &compute->error);
}

/* After an error: zeros, instead of undefined memory. */
static void gpu_get(train_compute_t *compute, void *to, const void *array, size_t bytes)
{
    if (bytes > 0 && (!works(compute) || !compute->device->ops->get(compute->device, to, array,
                                                                    bytes, &compute->error)))
        memset(to, 0, bytes);
}

static void gpu_zero(train_compute_t *compute, void *array, size_t bytes)
{
    if (works(compute) && bytes > 0)
        compute->device->ops->zero(compute->device, array, bytes, &compute->error);
}

static void gpu_sync(train_compute_t *compute)
{
    if (works(compute))
        compute->device->ops->sync(compute->device, &compute->error);
}

/* The array for a tensor's numbers in a step; NULL: the numbers are the values. */
static void *numbers_of(const train_tensor_t *tensor)
{
    return tensor->number == (void *)tensor->value ? NULL : tensor->number;
}

static void gpu_narrow(train_compute_t *compute, const train_tensor_t *tensor)
{
    const train_narrow_args_t args = { tensor->value, numbers_of(tensor), compute->precision };

    if (args.to != NULL)
        launch(compute, TRAIN_KERNEL_narrow, &args, tensor->count);
}

static void gpu_gather(train_compute_t *compute, const train_source_t *source,
                       const uint32_t *items, size_t rows, void *ret_inputs, uint8_t *ret_labels)
{
    const train_gather_args_t args = {
        .images = source->images,
        .image_labels = source->labels,
        .items = items,
        .inputs = ret_inputs,
        .labels = ret_labels,
        .mean = source->mean,
        .scale = source->scale,
        .pixels = (uint32_t)source->pixels,
        .kind = compute->precision,
    };

    launch(compute, TRAIN_KERNEL_gather, &args, rows * source->pixels);
}

/* ---- layers ---- */

static void gpu_product(train_compute_t *compute, const train_product_t *product)
{
    if (works(compute))
        compute->device->ops->product(compute->device, compute->precision, product,
                                      &compute->error);
}

static void gpu_add_bias(train_compute_t *compute, const train_tensor_t *bias, void *output,
                         size_t rows, bool relu)
{
    const train_add_bias_args_t args = {
        bias->value, output, (uint32_t)bias->count, relu, compute->precision,
    };

    launch(compute, TRAIN_KERNEL_add_bias, &args, rows * bias->count);
}

/* The number of parts of a sum of `rows` rows of `row_bytes` bytes; they must fit into the
   scratch. */
static size_t parts_of(size_t rows, size_t row_bytes)
{
    const size_t wanted = (rows + PART_ROWS - 1) / PART_ROWS;
    const size_t most = SCRATCH_BYTES / 2 / row_bytes;

    if (rows <= FEW_ROWS || most == 0)
        return 1;
    return wanted < most ? wanted : most;
}

/* Queue the kernels for the sums that `args` describes; a sum has `bytes` bytes. next: room for the
   sums of parts. */
static void sum_columns(train_compute_t *compute, unsigned kernel, train_column_sum_args_t args,
                        size_t bytes, char *next)
{
    const train_column_sum_args_t whole = args;

    for (;;) {
        const size_t parts = parts_of(args.rows, args.width * bytes);

        args.parts = (uint32_t)parts;
        args.to = parts > 1 ? next : whole.to;
        args.add = whole.add && parts == 1;
        launch(compute, kernel, &args, parts * args.width);
        if (parts == 1)
            break;
        args.from = next;
        args.rows = (uint32_t)parts;
        args.kind = TRAIN_FP32;
        next += parts * args.width * bytes;
    }
}

static void gpu_bias_gradient(train_compute_t *compute, const train_tensor_t *bias,
                              const void *delta, size_t rows, bool add)
{
    const train_column_sum_args_t args = {
        .from = delta,
        .to = bias->gradient,
        .rows = (uint32_t)rows,
        .width = (uint32_t)bias->count,
        .add = add,
        .kind = compute->precision,
    };

    sum_columns(compute, TRAIN_KERNEL_column_sum, args, sizeof(float), compute->scratch);
}

static void gpu_cut(train_compute_t *compute, const void *input, void *delta, size_t count)
{
    const train_cut_args_t args = { input, delta, compute->precision };

    launch(compute, TRAIN_KERNEL_cut, &args, count);
}

static train_shape_t shape_of(const train_layer_t *layer)
{
    const train_shape_t shape = {
        (uint32_t)layer->height,
        (uint32_t)layer->width,
        (uint32_t)layer->channels,
        (uint32_t)layer->filters,
    };

    return shape;
}

static void gpu_unfold(const train_layer_t *layer, const void *input, size_t images)
{
    const train_unfold_args_t args = {
        shape_of(layer),
        input,
        layer->columns,
        layer->compute->precision,
    };

    launch(layer->compute, TRAIN_KERNEL_unfold, &args,
           images * layer->height * layer->width * layer->fan_in);
}

static void gpu_fold(const train_layer_t *layer, const void *input, size_t images, void *ret_delta)
{
    const train_fold_args_t args = {
        shape_of(layer), layer->columns, input, ret_delta, layer->compute->precision,
    };

    launch(layer->compute, TRAIN_KERNEL_fold, &args, images * layer->inputs);
}

static void gpu_pool(const train_layer_t *layer, size_t images, void *ret_output,
                     uint8_t *ret_winners, bool relu)
{
    const train_pool_args_t args = {
        .shape = shape_of(layer),
        .sums = layer->sums,
        .bias = layer->bias->value,
        .output = ret_output,
        .winners = ret_winners,
        .relu = relu,
        .kind = layer->compute->precision,
    };

    launch(layer->compute, TRAIN_KERNEL_pool, &args, images * layer->outputs);
}

static void gpu_unpool(const train_layer_t *layer, size_t images, const void *delta,
                       const uint8_t *winners)
{
    const train_unpool_args_t args = {
        shape_of(layer), delta, winners, layer->sums, layer->compute->precision,
    };

    launch(layer->compute, TRAIN_KERNEL_unpool, &args,
           images * layer->height * layer->width * layer->filters);
}

/* ---- the end of a model ---- */

/* Add up `rows` rows of `width` doubles in the first half of the scratch. */
static void sum_doubles(train_compute_t *compute, size_t rows, size_t width, double *to, bool add)
{
    const train_column_sum_args_t args = {
        .from = compute->scratch,
        .to = to,
        .rows = (uint32_t)rows,
        .width = (uint32_t)width,
        .add = add,
    };

    sum_columns(compute, TRAIN_KERNEL_double_sum, args, sizeof(double),
                (char *)compute->scratch + rows * width * sizeof(double));
}

static void gpu_softmax(train_compute_t *compute, const void *scores, const uint8_t *labels,
                        size_t rows, size_t classes, float *ret_probabilities, train_score_t *sum)
{
    const size_t most = SCRATCH_BYTES / 2 / (2 * sizeof(double));

    for (size_t first = 0; first < rows; first += most) {
        const size_t part = rows - first < most ? rows - first : most;
        const train_softmax_args_t args = {
            .scores = train_number(compute, scores, first * classes),
            .labels = labels + first,
            .probabilities = ret_probabilities + first * classes,
            .score = compute->scratch,
            .classes = (uint32_t)classes,
            .kind = compute->precision,
        };

        launch(compute, TRAIN_KERNEL_softmax, &args, part);
        sum_doubles(compute, part, 2, &sum->loss, true);
    }
}

static void gpu_output_delta(train_compute_t *compute, const float *probabilities,
                             const uint8_t *labels, size_t rows, size_t classes, float share,
                             void *ret_delta)
{
    const train_output_delta_args_t args = {
        probabilities, labels, ret_delta, share, (uint32_t)classes, compute->precision,
    };

    launch(compute, TRAIN_KERNEL_output_delta, &args, rows * classes);
}

static void gpu_add(train_compute_t *compute, double *sum, const double *term)
{
    const train_double_sum_args_t args = {
        .from = term, .to = sum, .rows = 1, .width = 1, .parts = 1, .add = true
    };

    launch(compute, TRAIN_KERNEL_double_sum, &args, 1);
}

/* ---- gradients and optimizers ---- */

static bool gpu_unscale(train_compute_t *compute, float *gradients, size_t count, float factor)
{
    const train_unscale_args_t args = { gradients, &scalars(compute)->bad, factor, 0 };
    uint32_t bad;

    gpu_zero(compute, args.bad, sizeof(bad));
    launch(compute, TRAIN_KERNEL_unscale, &args, count);
    gpu_get(compute, &bad, args.bad, sizeof(bad));
    return bad == 0;
}

/* The sum of the squares of `count` floats. add: add it to *to, instead of replacing it. */
static void sum_squares(train_compute_t *compute, const float *from, size_t count, double *to,
                        bool add)
{
    const uint32_t parts = count < SQUARE_PARTS ? (uint32_t)count : SQUARE_PARTS;
    const train_squares_args_t args = { from, compute->scratch, (uint32_t)count, parts };

    launch(compute, TRAIN_KERNEL_squares, &args, parts);
    sum_doubles(compute, parts, 1, to, add);
}

static void gpu_clip(train_compute_t *compute, const train_tensor_t *tensors, size_t count,
                     double limit)
{
    scalars_t *at = scalars(compute);
    const train_pace_args_t pace = {
        .first = &at->squares[0], .limit = limit, .pace = &at->pace, .kind = TRAIN_PACE_CLIP
    };

    for (size_t i = 0; i < count; i++)
        sum_squares(compute, tensors[i].gradient, tensors[i].count, &at->squares[0], i > 0);
    launch(compute, TRAIN_KERNEL_pace, &pace, 1);
    for (size_t i = 0; i < count; i++) {
        const train_scale_args_t args = { tensors[i].gradient, &at->pace };

        launch(compute, TRAIN_KERNEL_scale, &args, tensors[i].count);
    }
}

/* The step length of lars and lamb for a tensor of weights, stored in scalars_t.pace. */
static const float *find_pace(train_compute_t *compute, const train_rule_t *rule,
                              const train_tensor_t *tensor, double rate, double decay)
{
    scalars_t *at = scalars(compute);
    const train_pace_args_t args = {
        .first = &at->squares[0],
        .second = &at->squares[1],
        .rate = rate,
        .trust = rule->trust,
        .decay = decay,
        .pace = &at->pace,
        .kind = rule->kind == TRAIN_OPTIMIZER_LARS ? TRAIN_PACE_LARS : TRAIN_PACE_LAMB,
    };

    sum_squares(compute, tensor->value, tensor->count, &at->squares[0], false);
    sum_squares(compute, tensor->gradient, tensor->count, &at->squares[1], false);
    launch(compute, TRAIN_KERNEL_pace, &args, 1);
    return &at->pace;
}

static void momentum_step(train_compute_t *compute, const train_rule_t *rule,
                          const train_tensor_t *tensor, float *velocity, double rate)
{
    const bool lars = rule->kind == TRAIN_OPTIMIZER_LARS;
    const double decay = lars && tensor->one_number ? 0.0 : rule->weight_decay;
    train_momentum_args_t args = {
        .value = tensor->value,
        .gradient = tensor->gradient,
        .velocity = velocity,
        .number = numbers_of(tensor),
        .momentum = (float)rule->momentum,
        .decay = (float)decay,
        .inside = lars ? (float)rate : 1.0f,
        .outside = lars ? 1.0f : (float)rate,
        .kind = compute->precision,
    };

    if (lars && !tensor->one_number)
        args.pace = find_pace(compute, rule, tensor, rate, decay);
    launch(compute, TRAIN_KERNEL_momentum, &args, tensor->count);
}

static void average_step(train_compute_t *compute, const train_rule_t *rule,
                         const train_averages_t *averages, const train_tensor_t *tensor,
                         float *state, double rate)
{
    const bool lamb = rule->kind == TRAIN_OPTIMIZER_LAMB;
    const train_average_args_t average = {
        .gradient = tensor->gradient,
        .mean = state,
        .square = state + tensor->count,
        .beta1 = averages->beta1,
        .beta2 = averages->beta2,
        .mean_factor = averages->mean_factor,
        .square_factor = averages->square_factor,
        .epsilon = averages->epsilon,
    };
    const train_decay_args_t decay = { tensor->gradient, tensor->value, (float)rule->weight_decay,
                                       0 };
    train_step_args_t step = {
        .value = tensor->value,
        .direction = tensor->gradient,
        .number = numbers_of(tensor),
        .shrink = lamb ? 1.0f : (float)(1.0 - rate * rule->weight_decay),
        .rate = (float)rate,
        .kind = compute->precision,
    };

    launch(compute, TRAIN_KERNEL_average, &average, tensor->count);
    if (lamb && !tensor->one_number) {
        launch(compute, TRAIN_KERNEL_decay, &decay, tensor->count);
        step.pace = find_pace(compute, rule, tensor, rate, 0.0);
    }
    launch(compute, TRAIN_KERNEL_step, &step, tensor->count);
}

static void gpu_step(train_compute_t *compute, const train_rule_t *rule,
                     const train_averages_t *averages, const train_tensor_t *tensor, float *state,
                     double rate)
{
    if (rule->kind == TRAIN_OPTIMIZER_SGD || rule->kind == TRAIN_OPTIMIZER_LARS)
        momentum_step(compute, rule, tensor, state, rate);
    else
        average_step(compute, rule, averages, tensor, state, rate);
}

static const train_compute_ops_t gpu_ops = {
    .alloc = gpu_alloc,
    .free = gpu_free,
    .put = gpu_put,
    .get = gpu_get,
    .zero = gpu_zero,
    .sync = gpu_sync,
    .narrow = gpu_narrow,
    .gather = gpu_gather,
    .product = gpu_product,
    .add_bias = gpu_add_bias,
    .bias_gradient = gpu_bias_gradient,
    .cut = gpu_cut,
    .unfold = gpu_unfold,
    .fold = gpu_fold,
    .pool = gpu_pool,
    .unpool = gpu_unpool,
    .softmax = gpu_softmax,
    .output_delta = gpu_output_delta,
    .add = gpu_add,
    .unscale = gpu_unscale,
    .clip = gpu_clip,
    .step = gpu_step,
};

bool train_gpu_open(train_device_t *device, train_precision_t precision,
                    train_compute_t *ret_compute, train_error_t *error)
{
    *ret_compute = (train_compute_t){
        .ops = &gpu_ops,
        .on_device = true,
        .number_bytes = precision == TRAIN_FP32 ? sizeof(float) : sizeof(uint16_t),
        .group_bytes = GROUP_BYTES,
        .precision = precision,
        .device = device,
    };
    ret_compute->scratch = gpu_alloc(ret_compute, SCRATCH_BYTES + sizeof(scalars_t));
    if (ret_compute->scratch != NULL)
        return true;
    train_compute_works(ret_compute, error);
    train_gpu_close(ret_compute);
    return false;
}

void train_gpu_close(train_compute_t *compute)
{
    if (compute->device != NULL) {
        gpu_free(compute, compute->scratch);
        compute->device->ops->close(compute->device);
    }
    memset(compute, 0, sizeof(*compute));
}
