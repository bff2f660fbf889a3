/* SPDX-License-Identifier: BSD-3-Clause */
/* The scheduler of interleave.h. */
#include "interleave.h"

#include "base/atomic.h"

#include <stdlib.h>
#include <ucontext.h>

#define STACK_BYTES (256 * 1024)
/* After this number of rounds without progress, a wake-up counts as lost. */
#define IDLE_LIMIT 1000

typedef struct {
    ucontext_t context;
    char *stack;
    int done, idle;
} co_t;

/* One run at a time; the code under test has no other way to reach its scheduler. */
static struct {
    co_t co[IL_RANKS];
    ucontext_t scheduler;
    int n, current, running;
    uint32_t points, random;
    const il_plan_t *plan;
    il_fn_t fn;
    void *arg;
} il;

static uint32_t draw(void)
{
    /* Marsaglia's xorshift. */
    il.random ^= il.random << 13;
    il.random ^= il.random >> 17;
    il.random ^= il.random << 5;
    return il.random;
}

static void to_scheduler(void)
{
    swapcontext(&il.co[il.current].context, &il.scheduler);
}

void tutti__interleave_point(void)
{
    int switches = 0;

    if (!il.running)
        return;
    il.points++;
    il.co[il.current].idle = 0;
    if (il.plan->percent > 0)
        switches = draw() % 100 < il.plan->percent;
    for (uint32_t i = 0; i < il.plan->nplaces; i++)
        switches |= il.plan->place[i] == il.points;
    if (switches)
        to_scheduler();
}

void il_idle(void)
{
    il.co[il.current].idle = 1;
    to_scheduler();
}

static void entry(void)
{
    il.fn(il.current, il.arg);
    il.co[il.current].done = 1;
    to_scheduler();
}

static void begin(co_t *co)
{
    co->stack = co->stack ? co->stack : malloc(STACK_BYTES);
    co->done = co->idle = 0;
    getcontext(&co->context);
    co->context.uc_stack.ss_sp = co->stack;
    co->context.uc_stack.ss_size = STACK_BYTES;
    co->context.uc_link = NULL;
    makecontext(&co->context, entry, 0);
}

/* Choose a rank other than the current one, if another rank is not done. */
static int choose(void)
{
    int from = il.plan->percent > 0 ? (int)(draw() % (uint32_t)il.n) : il.current + 1;

    for (int i = 0; i < il.n; i++) {
        int r = (from + i) % il.n;

        if (!il.co[r].done && (r != il.current || i == il.n - 1 || il.plan->percent > 0))
            return r;
    }
    return il.co[il.current].done ? -1 : il.current;
}

uint32_t il_run(int n, il_fn_t fn, void *arg, const il_plan_t *plan)
{
    int idle_rounds = 0;

    il.n = n;
    il.fn = fn;
    il.arg = arg;
    il.plan = plan;
    il.points = 0;
    il.random = plan->seed * 2654435761u + 1;
    for (int r = 0; r < n; r++)
        begin(&il.co[r]);
    il.current = (int)(plan->first % (uint32_t)n);
    while (il.current >= 0 && idle_rounds < IDLE_LIMIT * n) {
        uint32_t before = il.points;

        il.running = 1;
        swapcontext(&il.scheduler, &il.co[il.current].context);
        il.running = 0;
        idle_rounds = il.co[il.current].idle && il.points - before < 64 ? idle_rounds + 1 : 0;
        il.current = choose();
    }
    return il.current >= 0 ? 0 : il.points;
}
