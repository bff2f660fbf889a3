/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks the outcomes of all ranks when no message is in flight. Also runs the seeds of a test. See
   world.h. */
#include "world.h"

#include "agree/tensors.h"
#include "long.h"

#include <stdio.h>
#include <string.h>

static const char *outcome_text(unsigned outcome)
{
    static const char *const texts[] = { "nothing", "pending", "served", "",           "mismatch",
                                         "",        "",        "",       "unsupported" };

    return outcome <= 8 ? texts[outcome] : "several";
}

/* All ranks have received the same buckets in the same order. After a death or a goodbye, a rank
   may have received fewer buckets than the others. */
static void judge_order(world_t *w)
{
    const rank_state_t *first = &w->rank[0];

    for (uint32_t r = 1; r < w->nranks; r++) {
        const rank_state_t *me = &w->rank[r];
        uint32_t n = me->nserved < first->nserved ? me->nserved : first->nserved;

        if (memcmp(me->served, first->served, n * sizeof(me->served[0])) != 0)
            world_complain(w, "ranks 0 and %u have different buckets", r);
        if (!w->broken && me->nserved != first->nserved)
            world_complain(w, "rank 0 has %u tensors in buckets, rank %u %u", first->nserved, r,
                           me->nserved);
    }
}

/* Buckets are numbered and complete. A bucket of several tensors does not exceed the limit of
   bytes. */
static void judge_buckets(world_t *w)
{
    const rank_state_t *me = &w->rank[0];
    uint32_t number = 0, n = 0;
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < me->nserved; i++) {
        if (me->served[i].bucket != number)
            world_complain(w, "bucket %u instead of %u", me->served[i].bucket, number);
        bytes += me->bytes[i];
        if (++n > 1 && bytes > BUCKET_BYTES)
            world_complain(w, "bucket %u has more than %llu bytes", number,
                           (unsigned long long)bytes);
        if (me->served[i].last) {
            number++;
            n = 0;
            bytes = 0;
        }
    }
    if (me->nserved > 0 && !me->served[me->nserved - 1].last)
        world_complain(w, "the last bucket is not complete");
}

static void judge_outcomes(world_t *w, uint32_t round)
{
    const scenario_t *s = &w->scenario[round];

    for (uint32_t t = 0; t < s->ntensors; t++) {
        unsigned first = 0;

        for (uint32_t r = 0; r < s->nranks; r++) {
            unsigned is = w->rank[r].outcome[round][t];
            unsigned may = s->may[t][r];
            int message = is_message(&s->part[t][r]);

            if ((is & may) != is || (is == 0 && may != 0))
                world_complain(w, "round %u, tensor %u, rank %u: %s, but the reference has %u",
                               round, t, r, outcome_text(is), may);
            /* Even if the outcome depends on the order of messages, all ranks have the same
               outcome. */
            if (is == 0 || message || (may & (may - 1)) == 0)
                continue;
            first = first != 0 ? first : is;
            if (is != first)
                world_complain(w, "round %u, tensor %u: rank %u has %s, another one %s", round, t,
                               r, outcome_text(is), outcome_text(first));
        }
    }
}

/* The text names the ranks for which a tensor waits. If a named rank has submitted the tensor, the
   text is wrong. */
static void judge_text(world_t *w, uint32_t round, uint32_t tensor, const char *text)
{
    const char *at = text;
    int named, used;

    while (sscanf(at, at == text ? "rank%*[s ]%d%n" : ", %d%n", &named, &used) == 1) {
        if (w->rank[named].outcome[round][tensor] == PENDING)
            world_complain(w, "tensor %u waits for '%s', but rank %d has submitted it", tensor,
                           text, named);
        at += used;
    }
}

static void judge_texts(world_t *w, uint32_t round)
{
    const scenario_t *s = &w->scenario[round];

    for (uint32_t t = 0; t < s->ntensors; t++) {
        for (uint32_t r = 0; r < s->nranks; r++) {
            const part_t *p = &s->part[t][r];
            const tutti__tensor_t *tensor;
            char name = (char)('0' + t), text[256];

            if (is_message(p) || p->group > 0)
                continue;
            if (w->rank[r].outcome[round][t] == PENDING && w->rank[r].phase[t] == 0 &&
                tutti__agree_missing(w->rank[r].agree, &name, 1, &p->metadata, text, sizeof(text)))
                judge_text(w, round, t, text);
            tensor = tutti__agree_find(w->rank[r].agree, &name, 1, 0);
            if (tensor != NULL &&
                tutti__agree_awaits(w->rank[r].agree, tensor, text, sizeof(text)) &&
                strstr(text, " or ") == NULL && strstr(text, "its part") == NULL)
                judge_text(w, round, t, text);
        }
    }
}

/* If no call is pending, no rank may have participants or agreed tensors left. */
static void judge_tables(world_t *w)
{
    for (uint32_t r = 0; r < w->nranks; r++)
        if (w->rank[r].agree->nparticipants > 0 || w->rank[r].agree->ready_first != NULL)
            world_complain(w, "rank %u has %u participants left", r,
                           w->rank[r].agree->nparticipants);
}

/* Do all calls of the round end, and do all ranks join? If so, another round may follow. */
int scenario_ends(const scenario_t *s)
{
    for (uint32_t t = 0; t < s->ntensors; t++)
        for (uint32_t r = 0; r < s->nranks; r++)
            if (s->may[t][r] & PENDING)
                return 0;
    return !s->joins || s->joined == (1u << s->nranks) - 1;
}

/* For a seed that failed: print the calls and the outcomes of each rank. */
static void print_scenarios(const world_t *w)
{
    for (uint32_t i = 0; i < w->nrounds; i++) {
        const scenario_t *s = &w->scenario[i];

        printf("round %u%s\n", i, s->joins ? ", all join" : "");
        for (uint32_t t = 0; t < s->ntensors; t++)
            for (uint32_t r = 0; r < s->nranks; r++) {
                const part_t *p = &s->part[t][r];
                char text[128];

                if (!p->has)
                    continue;
                tutti__metadata_call_text(text, sizeof(text), &p->metadata);
                printf("tensor %u, rank %u: %s, group %d: %s\n", t, r, text, p->group,
                       outcome_text(w->rank[r].outcome[i][t]));
            }
    }
}

int judge(world_t *w)
{
    judge_order(w);
    for (uint32_t i = 0; i < w->nrounds && !w->broken; i++)
        judge_outcomes(w, i);
    if (!w->broken) {
        judge_buckets(w);
        judge_texts(w, w->nrounds - 1);
        if (scenario_ends(&w->scenario[w->nrounds - 1]))
            judge_tables(w);
    }
    if (w->failed)
        print_scenarios(w);
    return w->failed;
}

int run_seeds(int argc, char **argv, uint64_t quick, uint64_t all, int (*run_seed)(uint64_t seed))
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, seeds;
    char left_out[64];

    snprintf(left_out, sizeof(left_out), "%llu of %llu orders", (unsigned long long)(all - quick),
             (unsigned long long)all);
    if (argc > 1)
        seeds = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    else
        seeds = test_is_long(left_out) ? all : quick;
    for (uint64_t seed = first; seed < first + seeds; seed++)
        if (run_seed(seed))
            return 1;
    return 0;
}
