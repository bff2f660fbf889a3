/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The optimizers against reference values: twelve steps on six weights and two biases, with a
 * gradient that depends on the parameters, so that an error grows.
 *
 * The values for sgd, adamw and clipping are from PyTorch (2.15.0, float64). The values for lars
 * and lamb are from NumPy programs that follow the papers' algorithms. Lamb of timm 1.0.31 gave the
 * same numbers, and Lars of timm gave the same numbers at a constant rate. The values were made
 * with
 *
 *     import numpy as np, torch
 *     p0 = np.array([(-1.0) ** i * (1 + i / 4) for i in range(8)])
 *     gradient = lambda p, t: p / 2 + np.cos(t + np.arange(8))
 *     rate = lambda t: 0.1 / (1 + t)
 *     parts = [slice(0, 6), slice(6, 8)]           # weights, biases
 *
 *     def by_torch(make):
 *         p = [torch.tensor(p0[s]) for s in parts]
 *         o = make(p)
 *         for t in range(12):
 *             g = gradient(np.concatenate([x.numpy() for x in p]), t)
 *             for x, s in zip(p, parts): x.grad = torch.tensor(g[s])
 *             o.param_groups[0]["lr"] = rate(t)
 *             o.step()
 *     by_torch(lambda p: torch.optim.SGD(p, 1, momentum=0.9, weight_decay=0.01))
 *     by_torch(lambda p: torch.optim.AdamW(p, 1, (0.9, 0.99), 1e-3, 0.1))
 *
 *     length = np.linalg.norm
 *     def lars(p, g, state, t, weight):
 *         d, s = (0.01, 0.02 * length(p) / (length(g) + 0.01 * length(p))) if weight else (0, 1)
 *         state[0] = 0.9 * state[0] + rate(t) * s * (g + d * p)
 *         return p - state[0]
 *     def lamb(p, g, state, t, weight):
 *         state[0] = 0.9 * state[0] + 0.1 * g
 *         state[1] = 0.99 * state[1] + 0.01 * g * g
 *         u = state[0] / (1 - 0.9 ** (t + 1)) / (np.sqrt(state[1] / (1 - 0.99 ** (t + 1))) + 1e-3)
 *         u = u + 0.1 * p if weight else u
 *         return p - rate(t) * (length(p) / length(u) if weight else 1) * u
 *     def by_numpy(rule):
 *         p, state = p0.copy(), [[0, 0], [0, 0]]
 *         for t in range(12):
 *             g = gradient(p, t)
 *             for i, s in enumerate(parts): p[s] = rule(p[s], g[s], state[i], t, i == 0)
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "train_base.h"
#include "train_optimizer.h"

#define COUNT 8
#define WEIGHTS 6
#define STEPS 12

typedef struct {
    const char *name;
    train_rule_t rule;
    double wanted[COUNT];
} reference_t;

static const reference_t references[] = {
    { "sgd",
      { .kind = TRAIN_OPTIMIZER_SGD, .momentum = 0.9, .weight_decay = 0.01 },
      { 0.446500307, -0.683119117, 1.061972385, -0.865293859, 1.148303185, -1.488491401,
        1.287203992, -1.613858751 } },
    { "adamw",
      { .kind = TRAIN_OPTIMIZER_ADAMW,
        .beta1 = 0.9,
        .beta2 = 0.99,
        .epsilon = 1e-3,
        .weight_decay = 0.1 },
      { 0.743649308, -0.959361708, 1.270399384, -1.434921794, 1.661956437, -1.914664158,
        2.144476533, -2.377046522 } },
    { "lars",
      { .kind = TRAIN_OPTIMIZER_LARS, .momentum = 0.9, .trust = 0.02, .weight_decay = 0.01 },
      { 0.949448002, -1.214920812, 1.477142364, -1.676199615, 1.946763759, -2.203221525,
        -0.086139111, -0.737310798 } },
    { "lamb",
      { .kind = TRAIN_OPTIMIZER_LAMB,
        .beta1 = 0.9,
        .beta2 = 0.99,
        .epsilon = 1e-3,
        .weight_decay = 0.1 },
      { 0.616480702, -0.807025521, 1.161474530, -1.269884705, 1.479529600, -1.737924430,
        2.216270613, -2.457065985 } },
};

typedef struct {
    float values[COUNT];
    float gradients[COUNT];
    train_tensor_t tensors[2];
} parameters_t;

static train_compute_t cpu;

static void start(parameters_t *p)
{
    memset(p, 0, sizeof(*p));
    for (int i = 0; i < COUNT; i++)
        p->values[i] = (i % 2 == 0 ? 1.0f : -1.0f) * (1.0f + (float)i / 4.0f);
    p->tensors[0] = (train_tensor_t){
        .name = "weight", .count = WEIGHTS, .value = p->values, .gradient = p->gradients
    };
    p->tensors[1] = (train_tensor_t){ .name = "bias",
                                      .count = COUNT - WEIGHTS,
                                      .one_number = true,
                                      .value = p->values + WEIGHTS,
                                      .gradient = p->gradients + WEIGHTS };
}

static void make_step(parameters_t *p, train_optimizer_t *optimizer, int step)
{
    for (int i = 0; i < COUNT; i++)
        p->gradients[i] = (float)(p->values[i] / 2.0 + cos(step + i));
    train_optimizer_step(optimizer, p->tensors, 2, 0.1 / (1 + step));
}

static void follows_its_reference(void **state)
{
    const reference_t *reference = *state;
    train_error_t error = { "" };
    train_optimizer_t optimizer;
    parameters_t p;

    start(&p);
    assert_true(train_optimizer_create(&cpu, &reference->rule, p.tensors, 2, &optimizer, &error));
    for (int step = 0; step < STEPS; step++)
        make_step(&p, &optimizer, step);
    for (size_t i = 0; i < COUNT; i++)
        if (!(fabs(p.values[i] - reference->wanted[i]) < 2e-6))
            fail_msg("%s: parameter %zu is %.9f instead of %.9f", reference->name, i, p.values[i],
                     reference->wanted[i]);
    assert_int_equal(optimizer.steps, STEPS);
    train_optimizer_free(&optimizer);
    train_optimizer_free(&optimizer);
}

/* An optimizer's only memory is its state and the number of steps, which checkpoints save. */
static void goes_on_from_its_state(void **state)
{
    const reference_t *reference = *state;
    train_error_t error = { "" };
    train_optimizer_t whole, second;
    parameters_t p, q;

    start(&p);
    assert_true(train_optimizer_create(&cpu, &reference->rule, p.tensors, 2, &whole, &error));
    assert_true(train_optimizer_create(&cpu, &reference->rule, p.tensors, 2, &second, &error));
    for (int step = 0; step < STEPS / 2; step++)
        make_step(&p, &whole, step);

    start(&q);
    memcpy(q.values, p.values, sizeof(q.values));
    memcpy(second.state, whole.state, whole.state_count * sizeof(float));
    second.steps = whole.steps;
    for (int step = STEPS / 2; step < STEPS; step++) {
        make_step(&p, &whole, step);
        make_step(&q, &second, step);
    }
    assert_memory_equal(p.values, q.values, sizeof(p.values));
    train_optimizer_free(&whole);
    train_optimizer_free(&second);
}

/* A skipped step counts, but has no other effect, in particular not on the bias correction. */
static void leaves_steps_out(void **state)
{
    const reference_t *reference = *state;
    train_error_t error = { "" };
    train_optimizer_t whole, gaps;
    parameters_t p, q;

    start(&p);
    start(&q);
    assert_true(train_optimizer_create(&cpu, &reference->rule, p.tensors, 2, &whole, &error));
    assert_true(train_optimizer_create(&cpu, &reference->rule, q.tensors, 2, &gaps, &error));
    for (int step = 0; step < STEPS; step++) {
        make_step(&p, &whole, step);
        train_optimizer_skip(&gaps);
        make_step(&q, &gaps, step);
    }
    assert_memory_equal(p.values, q.values, sizeof(p.values));
    assert_int_equal(gaps.steps, 2 * STEPS);
    train_optimizer_free(&whole);
    train_optimizer_free(&gaps);
}

/* Zero parameters or gradients give no NaN: all rules leave them finite. */
static void stands_zeros(void **state)
{
    const reference_t *reference = *state;
    train_error_t error = { "" };
    train_optimizer_t optimizer;
    parameters_t p;

    start(&p);
    assert_true(train_optimizer_create(&cpu, &reference->rule, p.tensors, 2, &optimizer, &error));
    memset(p.gradients, 0, sizeof(p.gradients));
    train_optimizer_step(&optimizer, p.tensors, 2, 0.1);
    memset(p.values, 0, sizeof(p.values));
    train_optimizer_step(&optimizer, p.tensors, 2, 0.1);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(isfinite(p.values[i]));

    /* parameters that begin at 0 must be able to become different from 0 */
    memset(p.values, 0, sizeof(p.values));
    for (size_t i = 0; i < COUNT; i++)
        p.gradients[i] = 1.0f;
    train_optimizer_step(&optimizer, p.tensors, 2, 0.1);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(p.values[i] < 0.0f);
    train_optimizer_free(&optimizer);
}

/* sums of powers of two are exact, so any other order of operations is detected */
static void steps_with_momentum(void **state)
{
    const train_rule_t rule = { .kind = TRAIN_OPTIMIZER_SGD,
                                .momentum = 0.5,
                                .weight_decay = 0.125 };
    train_error_t error = { "" };
    train_optimizer_t optimizer;
    float values[] = { 1.0f, -2.0f };
    float gradients[] = { 0.5f, 0.25f };
    const train_tensor_t tensor = { .count = 2, .value = values, .gradient = gradients };

    (void)state;
    assert_true(train_optimizer_create(&cpu, &rule, &tensor, 1, &optimizer, &error));
    train_optimizer_step(&optimizer, &tensor, 1, 0.5);
    /* v = 0.5 + 0.125, 0.25 - 0.25 */
    assert_true(values[0] == 0.6875f && values[1] == -2.0f);
    train_optimizer_step(&optimizer, &tensor, 1, 0.5);
    /* v = 0.3125 + 0.5 + 0.0859375, 0 */
    assert_true(values[0] == 0.6875f - 0.44921875f && values[1] == -2.0f);
    train_optimizer_free(&optimizer);
}

/* torch.nn.utils.clip_grad_norm_ of the parameters above as gradients, to 0.5 and to 100 */
static void clips_the_common_length(void **state)
{
    static const double wanted[COUNT] = { 0.090166947, -0.112708684, 0.135250421, -0.157792158,
                                          0.180333894, -0.202875631, 0.225417368, -0.247959105 };
    parameters_t p;

    (void)state;
    start(&p);
    memcpy(p.gradients, p.values, sizeof(p.gradients));
    assert_float_equal(train_rules_clip(p.tensors, 2, 100), 5.545268253, 1e-6);
    assert_memory_equal(p.gradients, p.values, sizeof(p.gradients));
    assert_float_equal(train_rules_clip(p.tensors, 2, 0.5), 5.545268253, 1e-6);
    for (size_t i = 0; i < COUNT; i++)
        assert_float_equal(p.gradients[i], wanted[i], 1e-7);

    memset(p.gradients, 0, sizeof(p.gradients));
    assert_float_equal(train_rules_clip(p.tensors, 2, 0.5), 0.0, 0.0);
    assert_float_equal(p.gradients[0], 0.0, 0.0);
}

/* Long tensors use a different loop from short tensors. */
static void measures_long_tensors(void **state)
{
    float *gradients = malloc(1003 * sizeof(float));
    const train_tensor_t tensor = { .count = 1003, .gradient = gradients };

    (void)state;
    assert_non_null(gradients);
    for (size_t i = 0; i < 1003; i++)
        gradients[i] = (float)(i + 1);
    /* the sum of the first n squares is n (n + 1) (2 n + 1) / 6 */
    assert_float_equal(train_rules_clip(&tensor, 1, 1e9), sqrt(1003.0 * 1004 * 2007 / 6), 1e-2);
    free(gradients);
}

#define WITH(i, test)                                                                              \
    {                                                                                              \
#test " " #i, test, NULL, NULL, (void *)&references[i]                                     \
    }
#define WITH_ALL(test) WITH(0, test), WITH(1, test), WITH(2, test), WITH(3, test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_ALL(follows_its_reference),
        WITH_ALL(goes_on_from_its_state),
        WITH_ALL(leaves_steps_out),
        WITH_ALL(stands_zeros),
        cmocka_unit_test(steps_with_momentum),
        cmocka_unit_test(clips_the_common_length),
        cmocka_unit_test(measures_long_tensors),
    };

    train_cpu_open(&cpu);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
