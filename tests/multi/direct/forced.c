/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs a job with each algorithm of the table. See coll_case.h. */
#include "multi/direct/coll_case.h"

#include <string.h>

/* The shape that ranks_run makes from job_t.hosts, which has one letter per rank. */
typedef struct {
    tutti__shape_t shape;
    uint32_t host_of[16], local_of[16], host_first[17], by_host[16];
} known_shape_t;

static void shape_of_hosts(known_shape_t *s, int size, const char *hosts)
{
    uint32_t at = 0;
    char letter[16];

    memset(s, 0, sizeof(*s));
    s->shape = (tutti__shape_t){ .size = (uint32_t)size,
                                 .host_of = s->host_of,
                                 .local_of = s->local_of,
                                 .host_first = s->host_first,
                                 .by_host = s->by_host,
                                 .min_local = (uint32_t)size };
    for (int r = 0; r < size; r++) {
        uint32_t h = 0;

        while (h < s->shape.nhosts && letter[h] != (hosts != NULL ? hosts[r] : 'a'))
            h++;
        if (h == s->shape.nhosts)
            letter[s->shape.nhosts++] = hosts != NULL ? hosts[r] : 'a';
        s->host_of[r] = h;
    }
    for (uint32_t h = 0; h < s->shape.nhosts; h++) {
        s->host_first[h] = at;
        for (int r = 0; r < size; r++)
            if (s->host_of[r] == h) {
                s->local_of[r] = at - s->host_first[h];
                s->by_host[at++] = (uint32_t)r;
            }
        s->host_first[h + 1] = at;
        s->shape.min_local = TUTTI__MIN(s->shape.min_local, at - s->host_first[h]);
    }
}

static int run_forced(const tutti__algorithm_t *a, const char *sub, const job_t *like)
{
    forced_t forced = { a, a->ordered };
    job_t job = *like;
    char text[128];
    int failures = 0;

    if (sub != NULL)
        forced.ordered = a->ordered && tutti__algorithm_find(a->collective, sub)->ordered;
    snprintf(text, sizeof(text), "%s:%s%s%s", tutti__collective_name(a->collective), a->name,
             sub != NULL ? "/" : "", sub != NULL ? sub : "");
    job.algorithm = text;
    job.arg = &forced;
    RUN_JOB(failures, &job);
    return failures;
}

int run_each_algorithm(rank_fn_t fn, int size, const char *hosts, int threads)
{
    job_t job = {
        .size = size, .hosts = hosts, .fn = fn, .threads = threads, .settings = small_pieces
    };
    known_shape_t known;
    int failures = 0;

    shape_of_hosts(&known, size, hosts);
    for (const tutti__algorithm_t *a = tutti__algorithms; a->name != NULL; a++) {
        if (a->refuses != NULL && a->refuses(&known.shape) != NULL)
            continue;
        for (const char *const *sub = a->subs; sub != NULL && *sub != NULL; sub++)
            failures += run_forced(a, *sub, &job);
        if (a->subs == NULL)
            failures += run_forced(a, NULL, &job);
    }
    return failures;
}
