/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The coordinator learns a plan from the submissions of rank 0's program.
 *
 * A step ends when a name is submitted again, but not within a submission group. A tensor is
 * regular if its call was the same in each of the last `need` steps. The regular tensors become a
 * plan. If a new tensor may soon become regular, no plan begins yet. Tensors that are submitted
 * irregularly stay outside the plan. The plan has the order of the last step, which is the
 * program's own order.
 *
 * If the program waits between two tensors, no bucket contains both: perhaps the program submits
 * the second only when the first is complete. If a rank's deviation stops a plan within 4 * `need`
 * steps, `need` doubles; after a longer plan, `need` is reset. This limits the cost of plans for a
 * program whose steps differ.
 *
 * If the tensors of a bucket follow each other in rank 0's memory, the bucket has them in the order
 * of memory. The bucket then has no gaps, and a rank with the same order in its memory need not
 * pack it. If the program's order changes from step to step, the order of memory also determines
 * which tensors share a bucket.
 *
 * A submission group is planned as a whole, or not at all. Its calls have buckets of their own.
 * These buckets follow each other.
 */
#include "agree/plan.h"

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
    free(learn->planned);
    *learn = (tutti__learn_t){ 0 };
}

void tutti__learn_begin(tutti__learn_t *learn, const tutti__laid_t *laid, uint32_t n)
{
    uint32_t *planned = realloc(learn->planned, n * sizeof(*planned));

    learn->begun = learn->step;
    /* Without these indices the tensors of the plan are found by name. */
    learn->nplanned = planned != NULL ? n : 0;
    if (planned != NULL)
        learn->planned = planned;
    for (uint32_t i = 0; i < n; i++) {
        learn->known[laid[i].tensor].is_planned = 1;
        if (planned != NULL)
            planned[i] = laid[i].tensor;
    }
}

void tutti__learn_again(tutti__learn_t *learn, int is_deviation)
{
    learn->nplanned = 0;
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

/* Can the call be part of a plan? It must change no buffer before the ranks have compared their
   calls, and its counts must be equal on all ranks. Buckets start in the order of the plan, so a
   call with a priority cannot be part of a plan. */
static int can_be_planned(const tutti__metadata_t *m)
{
    return !m->on_device && m->phase == 0 && m->priority == 0 &&
           (m->kind == TUTTI_CALL_BARRIER || (m->count > 0 && tutti__metadata_can_fuse(m)));
}

static void restart(tutti__learn_t *learn)
{
    tutti__tensor_names_clear(&learn->names);
    learn->step = 1;
    learn->position = learn->last = learn->leader = 0;
    learn->begun = learn->nplanned = 0;
}

tutti__known_t *tutti__learn_entry(tutti__learn_t *learn, const char *name, size_t bytes,
                                   uint64_t hash, const tutti__metadata_t *metadata)
{
    int64_t i;

    if (!can_be_planned(metadata))
        return NULL;
    i = tutti__tensor_names_find(&learn->names, name, bytes, hash);
    if (i >= 0)
        return &learn->known[i];
    if (learn->names.n == TUTTI__PLAN_NAMES_MOST)
        restart(learn);
    if (learn->names.n == learn->capacity) {
        uint32_t capacity = learn->capacity ? 2 * learn->capacity : 64;
        tutti__known_t *known = realloc(learn->known, capacity * sizeof(*known));

        if (known == NULL)
            return NULL;
        learn->known = known;
        learn->capacity = capacity;
    }
    i = tutti__tensor_names_add(&learn->names, name, bytes, hash);
    if (i < 0)
        return NULL;
    learn->known[i] = (tutti__known_t){ .first_step = learn->step };
    return &learn->known[i];
}

int tutti__learn_is_regular(const tutti__learn_t *learn, const tutti__known_t *known)
{
    if (known->last_step != learn->step || known->streak < learn->need)
        return 0;
    return known->group.size == 0 ||
           (known->leader > 0 && learn->known[known->leader - 1].members == known->group.size);
}

/* Is the tensor new, so that it may become regular soon? */
static int is_young(const tutti__learn_t *learn, const tutti__known_t *known)
{
    return known->last_step == learn->step && known->streak < learn->need &&
           learn->step - known->first_step < learn->need;
}

uint32_t tutti__learn_regular(const tutti__learn_t *learn, int *ret_more)
{
    uint32_t n = 0;

    *ret_more = 0;
    for (uint32_t i = 0; i < learn->names.n; i++) {
        if (is_young(learn, &learn->known[i]))
            return 0;
        if (!tutti__learn_is_regular(learn, &learn->known[i]))
            continue;
        n++;
        *ret_more |= !learn->known[i].is_planned;
    }
    return n;
}

/* ---- the buckets of a plan ---- */

/* An open bucket: more tensors may join it. */
typedef struct {
    uint32_t number;
    uint64_t bytes;
    const tutti__known_t *like; /* its first tensor */
} open_t;

/* Number of buckets that are open at the same time. So tensors of up to this many types and
   operations may alternate, and each tensor still joins the open bucket of its own type and
   operation. */
#define OPEN_BUCKETS 4

static int by_position(const void *a, const void *b)
{
    const tutti__laid_t *x = a, *y = b;

    return x->position < y->position ? -1 : x->position > y->position;
}

static int by_bucket(const void *a, const void *b)
{
    const tutti__laid_t *x = a, *y = b;

    return x->bucket != y->bucket ? (x->bucket < y->bucket ? -1 : 1) : by_position(a, b);
}

/* Find the place of the open bucket that the tensor joins. In the returned place, `like` is NULL if
   the tensor must begin a new bucket: the place was free, or its bucket was full, or its bucket was
   the oldest and no place was free. */
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

/* The limit of a bucket, in bytes. The limit gives even a small plan several buckets, because a
   bucket starts only when its last tensor is submitted. */
static uint64_t most_bytes(const tutti__learn_t *learn, const tutti__laid_t *laid, uint32_t n,
                           const tutti__agree_env_t *env)
{
    uint64_t total = 0;

    if (env->plan_part_bytes == 0)
        return env->plan_bytes;
    for (uint32_t i = 0; i < n; i++)
        total += tutti__metadata_bytes(&learn->known[laid[i].tensor].metadata, env->size);
    return TUTTI__MIN(env->plan_bytes, TUTTI__MAX(total / TUTTI__PLAN_PARTS, env->plan_part_bytes));
}

/* Give each tensor a bucket. The buckets are numbered in the order of their first tensors. Returns
   the number of buckets. */
static uint32_t lay_out(const tutti__learn_t *learn, tutti__laid_t *laid, uint32_t n,
                        const tutti__agree_env_t *env)
{
    uint64_t bucket_bytes = most_bytes(learn, laid, n, env);
    open_t open[OPEN_BUCKETS] = { { 0 } };
    uint32_t nbuckets = 0;

    for (uint32_t i = 0; i < n; i++) {
        const tutti__known_t *known = &learn->known[laid[i].tensor];
        uint64_t bytes = tutti__metadata_bytes(&known->metadata, env->size);
        /* The first bucket is small, so that the communication begins early. */
        uint64_t most = bucket_bytes >> (nbuckets <= 1 ? 2 : 0);
        open_t *its;

        if (laid[i].after_wait || (i > 0 && laid[i].leader != laid[i - 1].leader))
            memset(open, 0, sizeof(open));
        its = choose(open, known, bytes, most);
        if (its->like == NULL)
            *its = (open_t){ nbuckets++, 0, known };
        its->bytes += bytes;
        laid[i].bucket = its->number;
    }
    return nbuckets;
}

/* Number the buckets in the order in which their last tensors are submitted: they start in this
   order. */
static void order_buckets(tutti__laid_t *laid, uint32_t n, uint32_t nbuckets, uint32_t *number)
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

static int by_place(const void *a, const void *b)
{
    const tutti__laid_t *x = a, *y = b;

    return x->place != y->place ? (x->place < y->place ? -1 : 1) : by_position(a, b);
}

/* If the n tensors of a bucket follow each other in memory, bring them into the order of memory. */
static void order_by_place(const tutti__learn_t *learn, tutti__laid_t *laid, uint32_t n)
{
    int are_adjacent = n > 1;

    qsort(laid, n, sizeof(*laid), by_place);
    for (uint32_t i = 0; i < n; i++) {
        const tutti__metadata_t *m = &learn->known[laid[i].tensor].metadata;
        uint64_t end = laid[i].place + m->count * tutti_dtype_bytes(m->dtype);

        are_adjacent &= laid[i].place != 0 && (i + 1 == n || laid[i + 1].place == end);
    }
    for (uint32_t i = 0; i < n; i++)
        laid[i].is_adjacent = (uint8_t)are_adjacent;
    if (!are_adjacent)
        qsort(laid, n, sizeof(*laid), by_bucket);
}

/* Does the order change from step to step, for more than half of the tensors? Always 0 if a tensor
   has no place in memory, or if the program waits within a step. */
static int has_no_order(const tutti__learn_t *learn, const tutti__laid_t *laid, uint32_t n)
{
    uint32_t moved = 0;

    for (uint32_t i = 0; i < n; i++) {
        const tutti__known_t *known = &learn->known[laid[i].tensor];

        if (known->place == 0 || known->waits_inside)
            return 0;
        moved += known->has_moved;
    }
    return moved > n / 2;
}

/* Sort the tensors by address, so that tensors that are adjacent in memory share a bucket. */
static void sort_by_place(tutti__laid_t *laid, uint32_t n)
{
    qsort(laid, n, sizeof(*laid), by_place);
    for (uint32_t i = 0; i < n; i++)
        laid[i].after_wait = 0;
}

static void order_tensors(const tutti__learn_t *learn, tutti__laid_t *laid, uint32_t n)
{
    uint32_t first = 0;

    for (uint32_t i = 1; i <= n; i++) {
        if (i < n && laid[i].bucket == laid[first].bucket)
            continue;
        order_by_place(learn, laid + first, i - first);
        first = i;
    }
}

tutti__laid_t *tutti__learn_lay_out(const tutti__learn_t *learn, uint32_t n,
                                    const tutti__agree_env_t *env)
{
    tutti__laid_t *laid = calloc(n, sizeof(*laid));
    uint32_t *number = calloc(n, sizeof(*number)), at = 0, nbuckets;

    if (laid == NULL || number == NULL) {
        free(laid);
        free(number);
        return NULL;
    }
    for (uint32_t i = 0; i < learn->names.n; i++)
        if (tutti__learn_is_regular(learn, &learn->known[i]))
            laid[at++] = (tutti__laid_t){ .position = learn->known[i].position,
                                          .tensor = i,
                                          .leader = learn->known[i].leader,
                                          .place = learn->known[i].place,
                                          .after_wait = learn->known[i].after_wait };
    assert(at == n);
    qsort(laid, n, sizeof(*laid), by_position);
    if (has_no_order(learn, laid, n))
        sort_by_place(laid, n);
    nbuckets = lay_out(learn, laid, n, env);
    qsort(laid, n, sizeof(*laid), by_position);
    order_buckets(laid, n, nbuckets, number);
    order_tensors(learn, laid, n);
    free(number);
    return laid;
}

/* ---- steps ---- */

void tutti__learn_next_step(tutti__learn_t *learn)
{
    learn->step++;
    learn->position = learn->last = 0;
}

/* The calls of a submission group are noted one after the other. If the group's first call was not
   noted in this step, the group cannot be planned. */
static void note_group(tutti__learn_t *learn, tutti__known_t *known)
{
    tutti__known_t *leader;

    known->leader = 0;
    if (TUTTI__LIKELY(known->group.size == 0))
        return;
    if (known->group.index == 0) {
        learn->leader = (uint32_t)(known - learn->known) + 1;
        known->members = 0;
    }
    leader = learn->leader > 0 ? &learn->known[learn->leader - 1] : NULL;
    if (leader == NULL || leader->group.index > 0 || leader->last_step != learn->step ||
        !tutti__group_is_same(&leader->group, &known->group))
        return;
    known->leader = learn->leader;
    leader->members += known->streak >= learn->need;
}

/* is_same: the call is equal to that of the previous step. */
static void note(tutti__learn_t *learn, tutti__known_t *known, uint64_t place, int is_same)
{
    /* If the name was already submitted in this step, in a group, do not plan that group. */
    if (known->last_step == learn->step && known->leader > 0)
        learn->known[known->leader - 1].members = 0;
    known->is_refused = is_same && known->is_refused;
    known->streak = known->is_refused ? 0 : is_same ? known->streak + 1 : 1;
    known->after_wait = (uint8_t)(learn->has_waited | (is_same && known->after_wait));
    known->place = place;
    known->waits_inside =
        (learn->has_waited && learn->last != 0) || (is_same && known->waits_inside);
    known->has_moved = is_same && known->before != learn->last;
    known->before = learn->last;
    learn->last = (uint32_t)(known - learn->known) + 1;
    known->last_step = learn->step;
    known->position = learn->position++;
    learn->has_waited = 0;
    note_group(learn, known);
}

void tutti__learn_note(tutti__learn_t *learn, tutti__known_t *known,
                       const tutti__metadata_t *metadata, const tutti__group_msg_t *group,
                       uint64_t place)
{
    /* A new entry has kind 0, so its metadata differ from those of every call. */
    int is_same = known->last_step + 1 == learn->step && known->group.size == group->size &&
                  known->group.hash == group->hash &&
                  !tutti__metadata_differ(&known->metadata, metadata);

    known->metadata = *metadata;
    known->group = *group;
    note(learn, known, place, is_same);
}

void tutti__learn_repeat(tutti__learn_t *learn, tutti__known_t *known, uint64_t place)
{
    note(learn, known, place, known->last_step + 1 == learn->step);
}
