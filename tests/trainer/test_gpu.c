/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A GPU's computations are compared with the processor's. The kernels' own code, and the code that
 * calls them, run on a device on the host (host_device.h). Other code cannot access this device's
 * memory. cuBLAS and the device's compiler are not tested.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "host_device.h"
#include "host_kernels.h"
#include "train_kernels.h"
#include "train_model.h"
#include "train_optimizer.h"
#include "train_scale.h"

#define ROWS 150 /* a sum over rows has five parts; a sum over pixels has parts of parts */
#define CLASSES 4

static const train_plan_t plans[] = {
    { .height = 1, .width = 30, .hidden = { 2, { 40, 9 } }, .classes = CLASSES, .max_rows = ROWS },
    /* 5 x 6 pixels lose a row in the first pooling, 2 x 3 a column in the second */
    { .height = 5,
      .width = 6,
      .convolution = { 2, { 3, 4 } },
      .hidden = { 1, { 5 } },
      .classes = CLASSES,
      .max_rows = ROWS },
    { .height = 1, .width = 30, .classes = CLASSES, .max_rows = ROWS },
};

#define PLANS (sizeof(plans) / sizeof(plans[0]))

/*
 * Tolerances of the loss, and of gradients relative to the length of the vector of all gradients.
 * With numbers of 16 bits, a few ReLUs and poolings select another branch; the last plan has no
 * ReLU and no pooling.
 */
static const double tolerances[] = { 1e-5, 0.12, 0.05 };
static const double smooth_tolerances[] = { 1e-5, 1e-2, 1e-3 };

/* ---- a model on the device or on the processor ---- */

typedef struct {
    train_compute_t compute;
    train_model_t model;
    float *gradients;
    uint8_t *labels;
    train_score_t *sum;
    float *host_gradients;
    train_score_t score;
} side_t;

static void open_gpu(train_compute_t *compute, train_precision_t precision)
{
    train_error_t error = { "" };
    train_device_t *device;

    assert_true(train_cuda_open(0, precision, &device, &error));
    assert_true(train_gpu_open(device, precision, compute, &error));
}

static void *array(train_compute_t *compute, size_t bytes)
{
    void *memory = compute->ops->alloc(compute, bytes);

    assert_non_null(memory);
    return memory;
}

/* Open a model on the device or on the processor. group: images per group; 0: the default */
static void open_side(side_t *side, bool on_device, train_precision_t precision,
                      const train_plan_t *plan, size_t group)
{
    train_error_t error = { "" };
    train_random_t random = train_random_make(5, 5);

    if (on_device)
        open_gpu(&side->compute, precision);
    else
        train_cpu_open(&side->compute);
    assert_true(train_model_create(&side->compute, plan, &side->model, &error));
    const size_t count = side->model.parameter_count;
    side->gradients = array(&side->compute, count * sizeof(float));
    side->host_gradients = malloc(count * sizeof(float));
    side->labels = array(&side->compute, ROWS);
    side->sum = array(&side->compute, sizeof(*side->sum));
    assert_non_null(side->host_gradients);
    train_model_place_gradients(&side->model, side->gradients);
    train_model_initialise(&side->model, 11);
    for (size_t i = 0; i < side->model.layer_count; i++) {
        train_layer_t *layer = &side->model.layers[i];
        float *bias = side->model.host_parameters + (layer->bias->value - side->model.parameters);

        for (size_t j = 0; j < layer->bias->count; j++)
            bias[j] = 0.3f * train_random_normal(&random);
        if (group > 0)
            layer->group = group;
    }
    train_model_put(&side->model);
}

static void close_side(side_t *side)
{
    train_compute_t *compute = &side->compute;

    assert_string_equal(compute->error.text, "");
    train_model_free(&side->model);
    compute->ops->free(compute, side->gradients);
    compute->ops->free(compute, side->labels);
    compute->ops->free(compute, side->sum);
    free(side->host_gradients);
    train_gpu_close(compute);
}

/* Make arrays of images, as bytes, and of labels. They are the same each time. */
static train_source_t make_source(train_compute_t *compute, size_t pixels, uint32_t **ret_items)
{
    uint8_t *images = malloc(ROWS * pixels), labels[ROWS];
    uint32_t items[ROWS];
    train_random_t random = train_random_make(9, 9);

    assert_non_null(images);
    for (size_t i = 0; i < ROWS * pixels; i++)
        images[i] = (uint8_t)fabsf(64.0f * train_random_normal(&random));
    for (size_t i = 0; i < ROWS; i++) {
        labels[i] = (uint8_t)(i * 3 % CLASSES);
        items[i] = (uint32_t)(ROWS - 1 - i);
    }
    uint8_t *images_there = array(compute, ROWS * pixels), *labels_there = array(compute, ROWS);
    *ret_items = array(compute, sizeof(items));
    compute->ops->put(compute, images_there, images, ROWS * pixels);
    compute->ops->put(compute, labels_there, labels, ROWS);
    compute->ops->put(compute, *ret_items, items, sizeof(items));
    free(images);
    const train_source_t source = { images_there, labels_there, pixels, 51.0f, 1.0f / 38.0f };
    return source;
}

/* Make the forward and backward passes in two parts. The gradients of the second part are added to
   the gradients of the first part. */
static void pass(side_t *side, float scale)
{
    train_compute_t *compute = &side->compute;
    const size_t cuts[] = { 0, 13, ROWS };
    uint32_t *items;
    const train_source_t source = make_source(compute, side->model.layers[0].inputs, &items);

    compute->ops->zero(compute, side->sum, sizeof(*side->sum));
    for (size_t i = 0; i < 2; i++) {
        const size_t rows = cuts[i + 1] - cuts[i];

        compute->ops->gather(compute, &source, items + cuts[i], rows, side->model.input,
                             side->labels);
        train_model_forward(&side->model, side->labels, rows, side->sum);
        train_model_backward(&side->model, side->labels, rows, scale / ROWS, i > 0, NULL, NULL);
    }
    compute->ops->get(compute, &side->score, side->sum, sizeof(side->score));
    compute->ops->get(compute, side->host_gradients, side->gradients,
                      side->model.parameter_count * sizeof(float));
    compute->ops->free(compute, (void *)source.images);
    compute->ops->free(compute, (void *)source.labels);
    compute->ops->free(compute, items);
}

static void expect_alike(const char *what, const float *got, const float *wanted, size_t count,
                         double tolerance)
{
    double apart = 0.0, length = 0.0;

    for (size_t i = 0; i < count; i++) {
        apart += ((double)got[i] - wanted[i]) * ((double)got[i] - wanted[i]);
        length += (double)wanted[i] * wanted[i];
    }
    if (!(sqrt(apart) <= tolerance * sqrt(length)))
        fail_msg("%s: %g apart, of %g, within %g", what, sqrt(apart), sqrt(length), tolerance);
}

static void compare_models(const train_plan_t *plan, train_precision_t precision, size_t group)
{
    const bool smooth = plan->hidden.count == 0;
    const double tolerance = (smooth ? smooth_tolerances : tolerances)[precision];
    const float scale = precision == TRAIN_FP16 ? 1024.0f : 1.0f;
    side_t cpu = { 0 }, gpu = { 0 };

    open_side(&cpu, false, TRAIN_FP32, plan, 2); /* 2 also where the GPU has one group */
    open_side(&gpu, true, precision, plan, group);
    pass(&cpu, 1.0f);
    pass(&gpu, scale);
    for (size_t i = 0; i < cpu.model.tensor_count; i++) {
        const train_tensor_t *tensor = &cpu.model.tensors[i];
        const size_t at = (size_t)(tensor->value - cpu.model.parameters);

        for (size_t j = 0; j < tensor->count; j++)
            gpu.host_gradients[at + j] /= scale;
        expect_alike(tensor->name, gpu.host_gradients + at, cpu.host_gradients + at, tensor->count,
                     tolerance);
    }
    assert_true(fabs(gpu.score.loss - cpu.score.loss) <=
                smooth_tolerances[precision] * fabs(cpu.score.loss));
    if (precision == TRAIN_FP32)
        assert_true(gpu.score.correct == cpu.score.correct);
    assert_true(cpu.score.loss > 0.0);
    close_side(&cpu);
    close_side(&gpu);
}

static void computes_what_the_processor_does(void **state)
{
    (void)state;
    for (size_t plan = 0; plan < PLANS; plan++)
        for (int precision = TRAIN_FP32; precision <= TRAIN_FP16; precision++)
            for (size_t group = 0; group <= 2; group += 2)
                compare_models(&plans[plan], (train_precision_t)precision, group);
}

/* ---- optimizers ---- */

#define WEIGHTS 20000 /* more than the threads that sum squares */
#define BIASES 3

typedef struct {
    train_compute_t compute;
    train_tensor_t tensors[2];
    train_optimizer_t optimizer;
    float values[WEIGHTS + BIASES];
} rule_side_t;

static void open_rule(rule_side_t *side, bool on_device, train_precision_t precision,
                      const train_rule_t *rule)
{
    train_compute_t *compute = &side->compute;
    train_random_t random = train_random_make(3, 3);
    train_error_t error = { "" };

    if (on_device)
        open_gpu(compute, precision);
    else
        train_cpu_open(compute);
    for (size_t i = 0; i < WEIGHTS + BIASES; i++)
        side->values[i] = train_random_normal(&random);
    float *values = array(compute, sizeof(side->values));
    float *gradients = array(compute, sizeof(side->values));
    char *numbers = (char *)values;
    if (precision != TRAIN_FP32)
        numbers = array(compute, (WEIGHTS + BIASES) * compute->number_bytes);
    side->tensors[0] = (train_tensor_t){
        .count = WEIGHTS, .value = values, .gradient = gradients, .number = numbers
    };
    side->tensors[1] = (train_tensor_t){ .count = BIASES,
                                         .one_number = true,
                                         .value = values + WEIGHTS,
                                         .gradient = gradients + WEIGHTS,
                                         .number = numbers + WEIGHTS * compute->number_bytes };
    compute->ops->put(compute, values, side->values, sizeof(side->values));
    assert_true(train_optimizer_create(compute, rule, side->tensors, 2, &side->optimizer, &error));
}

static void step_rule(rule_side_t *side, int step)
{
    train_compute_t *compute = &side->compute;
    train_random_t random = train_random_make(4, (uint64_t)step);
    static float gradients[WEIGHTS + BIASES];

    for (size_t i = 0; i < WEIGHTS + BIASES; i++)
        gradients[i] = 0.1f * train_random_normal(&random);
    compute->ops->put(compute, side->tensors[0].gradient, gradients, sizeof(gradients));
    compute->ops->clip(compute, side->tensors, 2, step % 2 == 0 ? 1.0 : 1e6);
    train_optimizer_step(&side->optimizer, side->tensors, 2, 0.1 / (1 + step));
    compute->ops->get(compute, side->values, side->tensors[0].value, sizeof(side->values));
}

static void close_rule(rule_side_t *side)
{
    train_compute_t *compute = &side->compute;

    assert_string_equal(compute->error.text, "");
    if (side->tensors[0].number != (void *)side->tensors[0].value)
        compute->ops->free(compute, side->tensors[0].number);
    compute->ops->free(compute, side->tensors[0].value);
    compute->ops->free(compute, side->tensors[0].gradient);
    train_optimizer_free(&side->optimizer);
    train_gpu_close(compute);
}

static void compare_rules(train_optimizer_kind_t kind, train_precision_t precision)
{
    const train_rule_t rule = {
        .kind = kind,
        .momentum = 0.9,
        .beta1 = 0.9,
        .beta2 = 0.99,
        .epsilon = 1e-6,
        .trust = 0.02,
        .weight_decay = 0.01,
    };
    static rule_side_t cpu, gpu;
    static uint16_t numbers[WEIGHTS + BIASES];

    open_rule(&cpu, false, TRAIN_FP32, &rule);
    open_rule(&gpu, true, precision, &rule);
    for (int step = 0; step < 4; step++) {
        step_rule(&cpu, step);
        step_rule(&gpu, step);
        expect_alike("weights", gpu.values, cpu.values, WEIGHTS, 1e-5);
        expect_alike("biases", gpu.values + WEIGHTS, cpu.values + WEIGHTS, BIASES, 1e-5);
    }
    if (precision != TRAIN_FP32) {
        gpu.compute.ops->get(&gpu.compute, numbers, gpu.tensors[0].number, sizeof(numbers));
        for (size_t i = 0; i < WEIGHTS + BIASES; i++)
            assert_float_equal(host_number(numbers, precision, i), gpu.values[i],
                               fabs(gpu.values[i]) / 256 + 1e-7);
    }
    close_rule(&cpu);
    close_rule(&gpu);
}

static void steps_as_the_processor_does(void **state)
{
    (void)state;
    for (int kind = TRAIN_OPTIMIZER_SGD; kind <= TRAIN_OPTIMIZER_LAMB; kind++)
        for (int precision = TRAIN_FP32; precision <= TRAIN_FP16; precision++)
            compare_rules((train_optimizer_kind_t)kind, (train_precision_t)precision);
}

/* ---- numbers of 16 bits ---- */

static float narrowed(train_compute_t *compute, float *there, void *number, float x,
                      uint16_t *ret_code)
{
    const train_tensor_t tensor = { .count = 1, .value = there, .number = number };

    compute->ops->put(compute, there, &x, sizeof(x));
    compute->ops->narrow(compute, &tensor);
    compute->ops->get(compute, ret_code, number, sizeof(*ret_code));
    return host_number(ret_code, compute->precision, 0);
}

/* The value of a code without a sign. */
static double value_of(uint16_t code, int mantissa_bits, int bias)
{
    const int exponent = code >> mantissa_bits;
    const double mantissa = code & ((1 << mantissa_bits) - 1);

    if (exponent == 0)
        return ldexp(mantissa, 1 - bias - mantissa_bits);
    return ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

static void check_codes(train_precision_t precision, int mantissa_bits, int bias, uint16_t infinity)
{
    train_compute_t compute;
    uint16_t code;

    open_gpu(&compute, precision);
    float *there = array(&compute, sizeof(float));
    void *number = array(&compute, sizeof(code));
    for (uint16_t low = 0; low < infinity; low = (uint16_t)(low + (low < 40 ? 1 : 37))) {
        const float x = (float)value_of(low, mantissa_bits, bias);
        const double next = value_of((uint16_t)(low + 1), mantissa_bits, bias);
        const float middle = (float)((x + next) / 2); /* exact */
        const uint16_t even = (uint16_t)(low + (low & 1));

        assert_true(narrowed(&compute, there, number, x, &code) == x && code == low);
        assert_true(narrowed(&compute, there, number, -x, &code) == -x);
        assert_int_equal(code, low | 0x8000);
        if (middle <= x || isinf(middle)) /* no float in between */
            continue;
        narrowed(&compute, there, number, middle, &code);
        assert_int_equal(code, even);
        narrowed(&compute, there, number, nextafterf(middle, 0.0f), &code);
        assert_int_equal(code, low);
        narrowed(&compute, there, number, nextafterf(middle, INFINITY), &code);
        assert_int_equal(code, low + 1);
    }
    assert_true(isinf(narrowed(&compute, there, number, -INFINITY, &code)));
    assert_true(isinf(narrowed(&compute, there, number, 3.4e38f, &code)) ||
                precision == TRAIN_BF16);
    assert_true(isnan(narrowed(&compute, there, number, NAN, &code)));
    compute.ops->free(&compute, there);
    compute.ops->free(&compute, number);
    train_gpu_close(&compute);
}

static void rounds_to_nearest(void **state)
{
    (void)state;
    host_device_locked = false; /* locking would take long */
    check_codes(TRAIN_BF16, 7, 127, 0x7f80);
    check_codes(TRAIN_FP16, 10, 15, 0x7c00);
    host_device_locked = true;
}

/* ---- the loss's scale ---- */

static void go_on(train_scale_t *scale, int clean_steps)
{
    for (int i = 0; i < clean_steps; i++)
        assert_true(train_scale_update(scale, true));
}

static void halves_and_doubles(void **state)
{
    train_scale_t scale = train_scale_start();

    (void)state;
    assert_true(scale.value == 65536.0f);
    go_on(&scale, TRAIN_SCALE_INTERVAL - 1);
    assert_true(scale.value == 65536.0f);
    go_on(&scale, 1);
    assert_true(scale.value == 131072.0f);

    /* an overflow restarts the wait; the first overflow changes nothing else */
    for (int overflows = 1; overflows <= 3; overflows++) {
        const float wanted = 262144.0f / (float)(1 << overflows);

        go_on(&scale, TRAIN_SCALE_INTERVAL - 1);
        assert_true(train_scale_update(&scale, false) && scale.value == wanted);
    }
    go_on(&scale, TRAIN_SCALE_INTERVAL - 1);
    assert_true(scale.value == 32768.0f);

    /* after a doubling the next overflow counts as the first again */
    go_on(&scale, 1);
    assert_true(scale.value == 65536.0f);
    assert_true(train_scale_update(&scale, false) && scale.value == 65536.0f);

    for (int i = 0; i < 16; i++)
        assert_true(train_scale_update(&scale, false));
    assert_true(scale.value == 1.0f);
    assert_false(train_scale_update(&scale, false));
    assert_true(scale.value == 1.0f);
    go_on(&scale, 100 * TRAIN_SCALE_INTERVAL);
    assert_true(scale.value == TRAIN_SCALE_MOST);

    /* the same is true after as many steps at the largest scale */
    assert_true(train_scale_update(&scale, false) && scale.value == TRAIN_SCALE_MOST);
    go_on(&scale, TRAIN_SCALE_INTERVAL);
    assert_true(train_scale_update(&scale, false) && scale.value == TRAIN_SCALE_MOST);
    assert_true(train_scale_update(&scale, false) && scale.value == TRAIN_SCALE_MOST / 2);
}

#define RANKS 2

/* Make one step of two ranks. Both ranks get the sum of the gradients; the gradients of one rank
   may be spoilt. */
static void step_ranks(side_t *ranks, train_optimizer_t *optimizers, train_scale_t *scales,
                       float spoilt)
{
    const size_t count = ranks[0].model.parameter_count;
    float *sum = calloc(count, sizeof(float));

    assert_non_null(sum);
    for (size_t r = 0; r < RANKS; r++) {
        pass(&ranks[r], scales[r].value / RANKS);
        if (r == 1 && spoilt != 0.0f)
            ranks[r].host_gradients[1] = spoilt;
        for (size_t i = 0; i < count; i++)
            sum[i] += ranks[r].host_gradients[i];
    }
    for (size_t r = 0; r < RANKS; r++) {
        train_compute_t *compute = &ranks[r].compute;

        compute->ops->put(compute, ranks[r].gradients, sum, count * sizeof(float));
        const bool finite =
            compute->ops->unscale(compute, ranks[r].gradients, count, 1.0f / scales[r].value);
        assert_int_equal(finite, spoilt == 0.0f);
        compute->ops->get(compute, ranks[r].host_gradients, ranks[r].gradients,
                          count * sizeof(float));
        assert_true(ranks[r].host_gradients[0] == sum[0] / scales[r].value);
        assert_true(train_scale_update(&scales[r], finite));
        if (finite)
            train_optimizer_step(&optimizers[r], ranks[r].model.tensors,
                                 ranks[r].model.tensor_count, 0.1);
        else
            train_optimizer_skip(&optimizers[r]);
        train_model_get(&ranks[r].model);
    }
    free(sum);
}

/* If any rank's gradients overflow, all ranks skip the step, and continue from the same state. */
static void leaves_steps_out_on_all_ranks(void **state)
{
    static const float spoilt[] = { 0.0f, INFINITY, 0.0f, NAN, -INFINITY, 0.0f };
    const train_rule_t rule = {
        .kind = TRAIN_OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-6
    };
    side_t ranks[RANKS] = { { .score = { 0 } } };
    train_optimizer_t optimizers[RANKS];
    train_scale_t scales[RANKS] = { { 1024.0f, 0, 2 }, { 1024.0f, 0, 2 } };
    train_error_t error = { "" };
    float wanted = 1024.0f;
    uint64_t skipped = 0;

    (void)state;
    for (size_t r = 0; r < RANKS; r++) {
        open_side(&ranks[r], true, TRAIN_FP16, &plans[1], 0);
        assert_true(train_optimizer_create(&ranks[r].compute, &rule, ranks[r].model.tensors,
                                           ranks[r].model.tensor_count, &optimizers[r], &error));
    }
    const size_t bytes = ranks[0].model.parameter_count * sizeof(float);
    float *before = malloc(bytes);
    assert_non_null(before);
    for (size_t i = 0; i < sizeof(spoilt) / sizeof(spoilt[0]); i++) {
        memcpy(before, ranks[0].model.host_parameters, bytes);
        step_ranks(ranks, optimizers, scales, spoilt[i]);
        skipped += spoilt[i] != 0.0f;
        wanted *= spoilt[i] != 0.0f && skipped > 1 ? 0.5f : 1.0f;
        for (size_t r = 0; r < RANKS; r++) {
            assert_true(scales[r].value == wanted);
            assert_int_equal(optimizers[r].steps, i + 1);
            assert_int_equal(optimizers[r].skipped_steps, skipped);
        }
        assert_memory_equal(ranks[0].model.host_parameters, ranks[1].model.host_parameters, bytes);
        assert_int_equal(memcmp(before, ranks[0].model.host_parameters, bytes) == 0,
                         spoilt[i] != 0.0f);
    }
    free(before);
    for (size_t r = 0; r < RANKS; r++) {
        train_optimizer_free(&optimizers[r]);
        close_side(&ranks[r]);
    }
}

/* ---- errors ---- */

/* The first error is kept, nothing is computed after it, and reads return 0. */
static void stops_at_the_first_error(void **state)
{
    train_error_t error = { "" };
    side_t side = { 0 };

    (void)state;
    open_side(&side, true, TRAIN_FP32, &plans[0], 0);
    pass(&side, 1.0f);
    assert_true(side.score.loss > 0.0);
    host_device_fail_in = 30;
    pass(&side, 1.0f);
    assert_int_equal(host_device_fail_in, 0);
    assert_true(side.score.loss == 0.0);
    assert_false(train_compute_works(&side.compute, &error));
    assert_string_equal(error.text, "the device does not want any more");
    side.compute.error.text[0] = '\0';
    close_side(&side);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(computes_what_the_processor_does),
        cmocka_unit_test(steps_as_the_processor_does),
        cmocka_unit_test(rounds_to_nearest),
        cmocka_unit_test(halves_and_doubles),
        cmocka_unit_test(leaves_steps_out_on_all_ranks),
        cmocka_unit_test(stops_at_the_first_error),
    };

    host_device_locked = true;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
