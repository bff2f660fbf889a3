/* SPDX-License-Identifier: BSD-3-Clause */
/* The scheduler, the memory and the system calls of explore.h. */
#include "explore.h"

#include "unit/boot/weak.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define STACK_BYTES (256 * 1024)
#define MOST_CHOICES 4096
/* A run with more points is a livelock, and counts as a deadlock. */
#define MOST_POINTS 20000

typedef enum {
    CAN_RUN,
    ON_WORD,
    ON_BELL,
    ON_TEST,
    IS_DONE
} state_t;

typedef struct {
    ucontext_t context;
    char *stack;
    state_t state;
    tutti__word_t *word; /* ON_WORD */
    int bell;            /* ON_BELL */
    int (*is_there)(void *arg);
    void *arg;
    int ended_early;       /* the actor's sleep ended by itself */
    tutti__word_t *stored; /* the store buffer; NULL: empty */
    uint32_t value;
} actor_t;

static struct {
    const ex_play_t *play;
    const ex_limits_t *limits;
    ucontext_t scheduler;
    actor_t actor[EX_ACTORS];
    int current, running, livelock;
    uint32_t switches, delays, points, timeouts;
    uint32_t bell[EX_BELLS];
    uint32_t random;
    /* The run's choices, and the number of alternatives at each. */
    uint32_t choice[MOST_CHOICES], width[MOST_CHOICES], nchoices, at;
} ex;

/* ---- choices ---- */

static uint32_t draw(void)
{
    /* Marsaglia's xorshift. */
    ex.random ^= ex.random << 13;
    ex.random ^= ex.random >> 17;
    ex.random ^= ex.random << 5;
    return ex.random;
}

/* Choose one of n alternatives. 0 is the default. */
static uint32_t choose(uint32_t n)
{
    if (n <= 1)
        return 0;
    if (ex.limits->random > 0)
        return draw() % 3 == 0 ? draw() % n : 0;
    if (ex.at == MOST_CHOICES)
        return 0;
    if (ex.at == ex.nchoices) {
        ex.choice[ex.at] = 0;
        ex.width[ex.at] = n;
        ex.nchoices++;
    }
    return ex.choice[ex.at++];
}

/* Go on to the next list of choices. Returns 0 if there is none. */
static int advance(void)
{
    while (ex.nchoices > 0 && ex.choice[ex.nchoices - 1] + 1 == ex.width[ex.nchoices - 1])
        ex.nchoices--;
    if (ex.nchoices == 0)
        return 0;
    ex.choice[ex.nchoices - 1]++;
    return 1;
}

/* ---- turns ---- */

static actor_t *me(void)
{
    return &ex.actor[ex.current];
}

int ex_me(void)
{
    return ex.current;
}

static void to_scheduler(void)
{
    swapcontext(&me()->context, &ex.scheduler);
}

static void drain(actor_t *a)
{
    if (a->stored == NULL)
        return;
    *a->stored = a->value;
    a->stored = NULL;
}

static int can_run(const actor_t *a)
{
    return a->state == CAN_RUN || (a->state == ON_TEST && a->is_there(a->arg));
}

/* Another actor may continue here, or an actor's store may become visible. */
void weak_point(void)
{
    int other[2 * EX_ACTORS];
    uint32_t n = 0, which;
    actor_t *from;

    if (!ex.running)
        return;
    if (++ex.points > MOST_POINTS) {
        ex.livelock = 1;
        to_scheduler();
    }
    for (int i = 0; i < ex.play->n; i++) {
        if (ex.actor[i].stored != NULL)
            other[n++] = EX_ACTORS + i;
        if (i != ex.current && can_run(&ex.actor[i]) && ex.switches < ex.limits->switches)
            other[n++] = i;
    }
    which = choose(n + 1);
    if (which == 0)
        return;
    if (other[which - 1] >= EX_ACTORS) {
        drain(&ex.actor[other[which - 1] - EX_ACTORS]);
        return;
    }
    ex.switches++;
    from = me();
    ex.current = other[which - 1];
    me()->state = CAN_RUN;
    swapcontext(&from->context, &me()->context);
}

static void sleep_as(state_t state)
{
    me()->state = state;
    me()->ended_early = 0;
    to_scheduler();
}

void ex_await(int (*is_there)(void *arg), void *arg)
{
    weak_drain();
    me()->is_there = is_there;
    me()->arg = arg;
    sleep_as(ON_TEST);
}

static void entry(void)
{
    ex.play->actor[ex.current](ex.play->arg);
    /* The actor's last store may still be in its buffer. */
    me()->state = IS_DONE;
    to_scheduler();
}

static void begin(actor_t *a)
{
    char *stack = a->stack ? a->stack : malloc(STACK_BYTES);

    memset(a, 0, sizeof(*a));
    a->stack = stack;
    getcontext(&a->context);
    a->context.uc_stack.ss_sp = stack;
    a->context.uc_stack.ss_size = STACK_BYTES;
    a->context.uc_link = NULL;
    makecontext(&a->context, entry, 0);
}

/* Called when no actor can run: let stores become visible. If there are none, end a bounded sleep,
   if the limits allow it. Returns 0 if neither is possible. */
static int help(void)
{
    uint32_t sleeper[EX_ACTORS], n = 0;
    int drained = 0;

    for (int i = 0; i < ex.play->n; i++) {
        drained |= ex.actor[i].stored != NULL;
        drain(&ex.actor[i]);
        if (ex.actor[i].state == ON_WORD || ex.actor[i].state == ON_BELL)
            sleeper[n++] = (uint32_t)i;
    }
    if (drained)
        return 1;
    if (n == 0 || !ex.limits->timeouts)
        return 0;
    ex.timeouts++;
    n = sleeper[choose(n)];
    ex.actor[n].state = CAN_RUN;
    ex.actor[n].ended_early = 1;
    return 1;
}

/* Make one run to its end. Returns 0 if it hangs. */
static int run_once(void)
{
    ex.switches = ex.delays = ex.points = ex.timeouts = ex.at = 0;
    ex.livelock = 0;
    memset(ex.bell, 0, sizeof(ex.bell));
    ex.play->begin(ex.play->arg);
    for (int i = 0; i < ex.play->n; i++)
        begin(&ex.actor[i]);
    for (;;) {
        int ready[EX_ACTORS], left = 0;
        uint32_t n = 0;

        for (int i = 0; i < ex.play->n; i++) {
            left += ex.actor[i].state != IS_DONE;
            if (can_run(&ex.actor[i]))
                ready[n++] = i;
        }
        if (left == 0)
            return 1;
        if (ex.livelock || (n == 0 && !help()))
            return 0;
        if (n == 0)
            continue;
        ex.current = ready[choose(n)];
        me()->state = CAN_RUN;
        ex.running = 1;
        swapcontext(&ex.scheduler, &me()->context);
        ex.running = 0;
    }
}

void ex_explore(const ex_play_t *play, const ex_limits_t *limits, ex_result_t *ret_result)
{
    memset(ret_result, 0, sizeof(*ret_result));
    ex.play = play;
    ex.limits = limits;
    ex.nchoices = 0;
    ex.random = 2463534242u;
    do {
        int ended = run_once();

        ret_result->runs++;
        ret_result->deadlocks += !ended;
        ret_result->timed_out += ex.timeouts > 0;
        ret_result->excused += ex.timeouts > 0 && ex.delays > 0;
        ret_result->wrong += ended && play->is_right != NULL && !play->is_right(play->arg);
        if (limits->first && !ended)
            break;
    } while (limits->random > 0 ? ret_result->runs < limits->random : advance());
    for (int i = 0; i < EX_ACTORS; i++) {
        free(ex.actor[i].stack);
        ex.actor[i].stack = NULL;
    }
}

/* ---- memory ---- */

uint32_t weak_load(const tutti__word_t *word)
{
    weak_point();
    return ex.running && me()->stored == word ? me()->value : *word;
}

void weak_store(tutti__word_t *word, uint32_t value)
{
    weak_point();
    weak_drain();
    if (ex.running && ex.delays < ex.limits->delays && choose(2) == 1) {
        ex.delays++;
        me()->stored = word;
        me()->value = value;
        return;
    }
    *word = value;
}

void weak_drain(void)
{
    if (ex.running)
        drain(me());
}

void weak_fence(void)
{
    if (!ex.running || ex.limits->no_fence >> ex.current & 1)
        return;
    weak_drain();
}

/* ---- the system ---- */

long weak_syscall(long number, tutti__word_t *word, int what, uint32_t value, const void *timeout,
                  const void *unused, int unused_too)
{
    (void)number;
    (void)timeout;
    (void)unused;
    (void)unused_too;
    weak_drain();
    weak_point();
    if (what == FUTEX_WAIT) {
        if (*word != value && !ex.limits->futex_blind) {
            errno = EAGAIN;
            return -1;
        }
        me()->word = word;
        sleep_as(ON_WORD);
        errno = ETIMEDOUT;
        return me()->ended_early ? -1 : 0;
    }
    for (int i = 0; i < ex.play->n; i++)
        if (ex.actor[i].state == ON_WORD && ex.actor[i].word == word)
            ex.actor[i].state = CAN_RUN;
    return 0;
}

ssize_t weak_write(int fd, const void *data, size_t bytes)
{
    int slept = 0;

    (void)data;
    weak_drain();
    weak_point();
    for (int i = 0; i < ex.play->n; i++) {
        if (ex.actor[i].state != ON_BELL || ex.actor[i].bell != fd)
            continue;
        ex.actor[i].state = CAN_RUN;
        slept = 1;
    }
    if (slept || !ex.limits->bells_forgotten)
        ex.bell[fd]++;
    return (ssize_t)bytes;
}

ssize_t weak_read(int fd, void *data, size_t bytes)
{
    (void)data;
    weak_drain();
    weak_point();
    if (ex.bell[fd] == 0) {
        errno = EAGAIN;
        return -1;
    }
    ex.bell[fd] = 0;
    return (ssize_t)bytes;
}

int weak_poll(struct pollfd *events, nfds_t n, const void *timeout)
{
    int fd = events->fd;

    (void)n;
    (void)timeout;
    weak_drain();
    weak_point();
    if (ex.bell[fd] == 0) {
        me()->bell = fd;
        sleep_as(ON_BELL);
    }
    return ex.bell[fd] > 0;
}
