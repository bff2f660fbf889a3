/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The coordinator learns a plan from what rank 0's program submits.
 *
 * A step ends when a name comes again. Tensors that were equal in the last `need` steps become a
 * plan, if no other tensor is new: it would soon be part of the plan, too. Tensors that come
 * irregularly stay outside. Their order is that of the last step, which is the program's own.
 *
 * A bucket never contains tensors from before and after a wait of the program: the program may wait
 * for the bucket there. A plan that is stopped because a rank deviated soon makes `need` grow, so a
 * program whose steps differ costs little.
 */
#include "agree/plan.h"

#include "agree/tensors.h"
#include "base/compiler.h"
#include "base/constants.h"
#include "base/hash.h"

#include <tutti/tutti.h>

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void tutti__learn_open(tutti__learn_t *learn)
{
    learn->step = 1;
    learn->need = TUTTI__PLAN_STEPS;
}

void tutti__learn_close(tutti__learn_t *learn)
{
    tutti__tensor_names_free(&learn->names);
    free(learn->known);
    *learn = (tutti__learn_t){ 0 };
}

void tutti__learn_again(tutti__learn_t *learn, int is_deviation)
{
    if (is_deviation && learn->step - learn->begun < 4 * learn->need)
        learn->need = TUTTI__MIN(2 * learn->need, TUTTI__PLAN_STEPS_MOST);
    else if (is_deviation)
        learn->need = TUTTI__PLAN_STEPS;
    for (uint32_t i = 0; i < learn->names.n; i++) {
        learn->known[i].is_planned = 0;
        if (!is_deviation)
            continue;
        learn->known[i].streak = 0;
        learn->known[i].first_step = learn->step + 1;
    }
}

/* ---- what is learned ---- */

/* Calls that touch no buffer before all ranks have the same call, and whose counts are equal. */
static int can_be_planned(const tutti__metadata_t *m)
{
    return !m->on_device && m->count > 0 && m->phase == 0 &&
           (m->kind == TUTTI_CALL_ALLREDUCE || m->kind == TUTTI_CALL_REDUCE_SCATTER ||
            m->kind == TUTTI_CALL_ALLGATHER);
}

/* Forget everything. */
static void restart(tutti__learn_t *learn)
{
    tutti__tensor_names_clear(&learn->names);
    learn->step = 1;
    learn->position = 0;
    learn->begun = 0;
}

/* The entry of a name; NULL: no memory, so nothing is learned. *ret_is_new: it was not known. */
static tutti__known_t *entry(tutti__learn_t *learn, const char *name, size_t bytes, int *ret_is_new)
{
    uint64_t hash = tutti__hash(name, bytes);
    int64_t i = tutti__tensor_names_find(&learn->names, name, bytes, hash);

    *ret_is_new = i < 0;
    if (i >= 0)
        return &learn->known[i];
    if (learn->names.n == TUTTI__PLAN_NAMES_MOST)
        restart(learn);
    if (learn->names.n == learn->room) {
        uint32_t room = learn->room ? 2 * learn->room : 64;
        tutti__known_t *known = realloc(learn->known, room * sizeof(*known));

        if (known == NULL)
            return NULL;
        learn->known = known;
        learn->room = room;
    }
    i = tutti__tensor_names_add(&learn->names, name, bytes, hash);
    if (i < 0)
        return NULL;
    learn->known[i] = (tutti__known_t){ .first_step = learn->step };
    return &learn->known[i];
}

static int is_regular(const tutti__learn_t *learn, const tutti__known_t *known)
{
    return known->last_step == learn->step && known->streak >= learn->need;
}

/* May it become regular soon? */
static int is_young(const tutti__learn_t *learn, const tutti__known_t *known)
{
    return known->last_step == learn->step && known->streak < learn->need &&
           learn->step - known->first_step < learn->need;
}

/* How many regular tensors there are; 0 if others are young. *ret_more: some are in no plan. */
static uint32_t count_regular(const tutti__learn_t *learn, int *ret_more)
{
    uint32_t n = 0;

    *ret_more = 0;
    for (uint32_t i = 0; i < learn->names.n; i++) {
        if (is_young(learn, &learn->known[i]))
            return 0;
        if (!is_regular(learn, &learn->known[i]))
            continue;
        n++;
        *ret_more |= !learn->known[i].is_planned;
    }
    return n;
}

/* Has rank 0 announced tensors of the plan that are in no bucket yet? */
static int are_announced(tutti__agree_t *a)
{
    const tutti__learn_t *learn = &a->learn;

    if (a->ready_first != NULL)
        return 1;
    for (uint32_t i = 0; i < learn->names.n; i++) {
        const tutti__tensor_t *tensor;

        if (!is_regular(learn, &learn->known[i]))
            continue;
        tensor = tutti__tensor_find(a, tutti__tensor_names_text(&learn->names, i),
                                    learn->names.name[i].bytes, 0);
        if (tensor != NULL && (tensor->from[a->env.nlinks] || tensor->nparticipants > 0))
            return 1;
    }
    return 0;
}

/* ---- the buckets of a plan ---- */

/* Position of a tensor, while buckets are laid out. */
typedef struct {
    uint32_t position, tensor; /* index of the name */
    uint32_t bucket;
} laid_t;

/* A bucket that takes more tensors. */
typedef struct {
    uint32_t number, last; /* position of its last tensor */
    uint64_t bytes;
    const tutti__known_t *like; /* its first tensor */
} open_t;

/* Types and operations that may alternate in a program without cutting the buckets of another. */
#define OPEN_BUCKETS 4

static int by_position(const void *a, const void *b)
{
    const laid_t *x = a, *y = b;

    return x->position < y->position ? -1 : x->position > y->position;
}

static int by_bucket(const void *a, const void *b)
{
    const laid_t *x = a, *y = b;

    return x->bucket != y->bucket ? (x->bucket < y->bucket ? -1 : 1) : by_position(a, b);
}

/* The open bucket that takes the tensor; or a free place, after the oldest bucket was closed. */
static open_t *choose(open_t *open, const tutti__known_t *known, uint64_t bytes, uint64_t most)
{
    open_t *oldest = &open[0];

    for (uint32_t i = 0; i < OPEN_BUCKETS; i++) {
        if (open[i].like == NULL)
            return &open[i];
        if (tutti__metadata_fuse(&open[i].like->metadata, &known->metadata)) {
            if (open[i].bytes + bytes > most)
                open[i].like = NULL;
            return &open[i];
        }
        if (open[i].number < oldest->number)
            oldest = &open[i];
    }
    oldest->like = NULL;
    return oldest;
}

/* Give each tensor a bucket. Buckets are numbered by their first tensors. Returns their number. */
static uint32_t lay_out(const tutti__agree_t *a, laid_t *laid, uint32_t n)
{
    open_t open[OPEN_BUCKETS] = { { 0 } };
    uint32_t nbuckets = 0;

    for (uint32_t i = 0; i < n; i++) {
        const tutti__known_t *known = &a->learn.known[laid[i].tensor];
        uint64_t bytes = tutti__metadata_bytes(&known->metadata, a->env.size);
        /* The first bucket is small, so that the communication begins early. */
        uint64_t most = a->env.plan_bytes >> (nbuckets <= 1 ? 2 : 0);
        open_t *its;

        if (known->after_wait)
            memset(open, 0, sizeof(open));
        its = choose(open, known, bytes, most);
        if (its->like == NULL)
            *its = (open_t){ nbuckets++, 0, 0, known };
        its->bytes += bytes;
        laid[i].bucket = its->number;
    }
    return nbuckets;
}

/* Buckets start in the order in which their last tensors come. */
static void order_buckets(laid_t *laid, uint32_t n, uint32_t nbuckets, uint32_t *number)
{
    uint32_t next = nbuckets;

    memset(number, 0xff, nbuckets * sizeof(*number));
    for (uint32_t i = n; i-- > 0;)
        if (number[laid[i].bucket] == UINT32_MAX)
            number[laid[i].bucket] = --next;
    assert(next == 0);
    for (uint32_t i = 0; i < n; i++)
        laid[i].bucket = number[laid[i].bucket];
    qsort(laid, n, sizeof(*laid), by_bucket);
}

static void send_plan(tutti__agree_t *a, const laid_t *laid, uint32_t n)
{
    tutti__learn_t *learn = &a->learn;
    uint32_t number = a->plan.number + 1;

    for (uint32_t i = 0; i < n && !a->ended; i++) {
        uint32_t t = laid[i].tensor;
        tutti__plan_msg_t msg = { .metadata = learn->known[t].metadata,
                                  .number = number,
                                  .bucket = laid[i].bucket,
                                  .first = i == 0,
                                  .last = i == n - 1,
                                  .name_bytes = (uint8_t)learn->names.name[t].bytes };

        learn->known[t].is_planned = 1;
        tutti__plan_add(a, &msg, tutti__tensor_names_text(&learn->names, t));
    }
    learn->begun = learn->step;
}

/* Without memory there is no plan. */
static void make_plan(tutti__agree_t *a, uint32_t n)
{
    tutti__learn_t *learn = &a->learn;
    laid_t *laid = calloc(n, sizeof(*laid));
    uint32_t *number = calloc(n, sizeof(*number)), at = 0;

    for (uint32_t i = 0; laid != NULL && i < learn->names.n; i++)
        if (is_regular(learn, &learn->known[i]))
            laid[at++] = (laid_t){ learn->known[i].position, i, 0 };
    if (laid != NULL && number != NULL) {
        qsort(laid, n, sizeof(*laid), by_position);
        order_buckets(laid, n, lay_out(a, laid, n), number);
        send_plan(a, laid, n);
    }
    free(laid);
    free(number);
}

/* ---- steps ---- */

/* A step is over. */
static void end_step(tutti__agree_t *a, int may_begin)
{
    tutti__learn_t *learn = &a->learn;
    int more;
    uint32_t n = count_regular(learn, &more);

    if (n > 0 && more && a->njoined == 0 && a->plan.state == TUTTI__PLAN_RUNS)
        tutti__plan_ask(a, 0); /* the next plan has more tensors */
    else if (n > 0 && a->njoined == 0 && a->plan.state == TUTTI__PLAN_NONE && may_begin &&
             !are_announced(a))
        make_plan(a, n);
    learn->step++;
    learn->position = 0;
}

void tutti__agree_learn(tutti__agree_t *a, const char *name, size_t bytes,
                        const tutti__metadata_t *metadata, int may_begin)
{
    tutti__learn_t *learn = &a->learn;
    tutti__known_t *known;
    int is_new, is_same;

    if (a->env.parent >= 0 || a->env.size == 1 || a->env.plan_bytes == 0 || a->departed ||
        a->ended || !can_be_planned(metadata))
        return;
    known = entry(learn, name, bytes, &is_new);
    if (known == NULL)
        return;
    if (!is_new && known->last_step == learn->step)
        end_step(a, may_begin);
    is_same = !is_new && known->last_step + 1 == learn->step &&
              !tutti__metadata_differ(&known->metadata, metadata);
    known->streak = is_same ? known->streak + 1 : 1;
    known->after_wait = (uint8_t)(learn->has_waited | (is_same && known->after_wait));
    known->metadata = *metadata;
    known->last_step = learn->step;
    known->position = learn->position++;
    learn->has_waited = 0;
}

void tutti__agree_waited(tutti__agree_t *a)
{
    a->learn.has_waited = 1;
}
