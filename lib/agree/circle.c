/* SPDX-License-Identifier: BSD-3-Clause */
/* See circle.h. */
#include "agree/circle.h"

#include "base/compiler.h"

#include <stdlib.h>
#include <string.h>

/* Values of `seen`. */
enum {
    UNSEEN,
    ON_PATH,
    LEFT /* no circle passes through this rank */
};

tutti__circle_t *tutti__circle_new(uint32_t size)
{
    tutti__circle_t *c = calloc(1, sizeof(*c) + size * sizeof(c->stuck[0]));

    if (c == NULL)
        return NULL;
    c->size = size;
    c->path = calloc(size, sizeof(*c->path));
    if (c->path != NULL)
        return c;
    free(c);
    return NULL;
}

void tutti__circle_free(tutti__circle_t *c)
{
    if (c != NULL)
        free(c->path);
    free(c);
}

/* Index of the tensor in the question, or -1. */
static int index_of(const tutti__question_t *question, uint64_t hash)
{
    for (uint32_t i = 0; hash != 0 && i < question->n; i++)
        if (question->hash[i] == hash)
            return (int)i;
    return -1;
}

int tutti__circle_take(tutti__circle_t *c, const void *body, size_t bytes)
{
    tutti__stuck_msg_t msg;
    tutti__stuck_t *s;
    size_t kept;

    if (bytes < sizeof(msg))
        return 0;
    memcpy(&msg, body, sizeof(msg));
    if (bytes != sizeof(msg) + msg.name_bytes || msg.rank >= c->size || msg.wait == 0)
        return 0;
    s = &c->stuck[msg.rank];
    if (msg.wait != s->msg.wait)
        s->is_new = c->has_news = 1;
    c->has_answers |= msg.question != 0;
    s->msg = msg;
    kept = TUTTI__MIN((size_t)msg.name_bytes, sizeof(s->name) - 1);
    memcpy(s->name, (const char *)body + sizeof(msg), kept);
    s->name[kept] = '\0';
    return 1;
}

/* ---- searching ---- */

static int has_answered(const tutti__circle_t *c, const tutti__stuck_t *s)
{
    return s->msg.wait != 0 && s->msg.question != 0 && s->msg.question == c->question.number;
}

/* Has the rank given this answer twice? */
static int is_proved(const tutti__stuck_t *s)
{
    return s->before_wait == s->msg.wait;
}

/* Prepare a search. proved: use only answers that a rank has given twice. */
static void prepare(tutti__circle_t *c, int proved)
{
    for (uint32_t r = 0; r < c->size; r++) {
        tutti__stuck_t *s = &c->stuck[r];
        int counts = has_answered(c, s) && s->reported != s->msg.wait && (!proved || is_proved(s));

        s->seen = counts ? UNSEEN : LEFT;
        s->lacks = proved ? s->msg.lacks & s->before_lacks : s->msg.lacks;
        s->at = index_of(&c->question, s->msg.hash);
        s->next = 0;
    }
}

/* Does the first rank wait for the second? If both are in direct calls, these calls may be in
   progress. So a rank in a direct call counts as waiting only for a rank that waits for a
   tensor. */
static int waits_for(const tutti__stuck_t *from, const tutti__stuck_t *to)
{
    const uint32_t *peer = from->msg.peer;
    int is_any = peer[0] == TUTTI__NOBODY && peer[1] == TUTTI__NOBODY;

    if (!is_any && peer[0] != to->msg.rank && peer[1] != to->msg.rank)
        return 0;
    if (from->msg.hash == 0)
        return to->msg.hash != 0;
    return from->at >= 0 && (to->lacks >> from->at & 1);
}

/* Search from one rank, depth first. Returns the length of the circle from path[0] on, or 0. */
static uint32_t search_from(tutti__circle_t *c, uint32_t rank)
{
    uint32_t depth = 1;

    c->path[0] = rank;
    c->stuck[rank].seen = ON_PATH;
    while (depth > 0) {
        tutti__stuck_t *from = &c->stuck[c->path[depth - 1]];
        uint32_t r = from->next++, first = 0;
        tutti__stuck_t *to = &c->stuck[r];

        if (r == c->size) {
            from->seen = LEFT;
            depth--;
        } else if (to->seen == UNSEEN && waits_for(from, to)) {
            to->seen = ON_PATH;
            c->path[depth++] = r;
        } else if (to->seen == ON_PATH && waits_for(from, to)) {
            while (c->path[first] != r)
                first++;
            memmove(c->path, c->path + first, (depth - first) * sizeof(*c->path));
            return depth - first;
        }
    }
    return 0;
}

static uint32_t search(tutti__circle_t *c, int proved)
{
    uint32_t n = 0;

    prepare(c, proved);
    for (uint32_t r = 0; r < c->size && n == 0; r++)
        if (c->stuck[r].seen == UNSEEN)
            n = search_from(c, r);
    return n;
}

/* ---- asking ---- */

/* Prepare to ask about the same tensors again, and keep the answers to the last question. */
static void ask_again(tutti__circle_t *c)
{
    for (uint32_t r = 0; r < c->size; r++) {
        tutti__stuck_t *s = &c->stuck[r];

        s->before_wait = has_answered(c, s) ? s->msg.wait : 0;
        s->before_lacks = s->msg.lacks;
    }
    c->question.number++;
}

/* Add the tensors of ranks to a question. newest 1: the tensors of ranks that have become stuck
   after the last question, or have answered it; 0: the tensors of all other ranks, whose waits are
   probably over. Returns 1 if one of these ranks is in a direct call. */
static uint32_t add_tensors(const tutti__circle_t *c, tutti__question_t *question, int newest)
{
    uint32_t direct = 0;

    for (uint32_t r = 0; r < c->size; r++) {
        const tutti__stuck_t *s = &c->stuck[r];

        if (s->msg.wait == 0 || (s->is_new || has_answered(c, s)) != newest)
            continue;
        if (s->msg.hash == 0)
            direct = 1;
        else if (index_of(question, s->msg.hash) < 0 && question->n < TUTTI__QUESTION_TENSORS)
            question->hash[question->n++] = s->msg.hash;
    }
    return direct;
}

/* Make a question about the tensors of all ranks that are stuck. Returns 0 if there are fewer than
   two different waits, which cannot form a circle. */
static int ask_anew(tutti__circle_t *c)
{
    tutti__question_t next = { .number = c->question.number + 1 };
    uint32_t direct = add_tensors(c, &next, 1);

    direct |= add_tensors(c, &next, 0);
    if (next.n + direct < 2)
        return 0;
    for (uint32_t r = 0; r < c->size; r++)
        c->stuck[r].is_new = c->stuck[r].before_wait = 0;
    c->question = next;
    return 1;
}

uint32_t tutti__circle_search(tutti__circle_t *c, int *ret_asks)
{
    uint32_t n = 0;

    *ret_asks = 0;
    if (c->has_answers) {
        n = search(c, 1);
        for (uint32_t i = 0; i < n; i++)
            c->stuck[c->path[i]].reported = c->stuck[c->path[i]].msg.wait;
        c->has_answers = n > 0; /* there may be a further circle */
        if (n > 0)
            return n;
        *ret_asks = search(c, 0) > 0;
    }
    if (*ret_asks) {
        ask_again(c);
    } else if (c->has_news) {
        c->has_news = 0;
        *ret_asks = ask_anew(c);
    }
    return 0;
}
