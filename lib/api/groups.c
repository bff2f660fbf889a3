/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators of some ranks of a parent: tutti_comm_split, tutti_comm_create.
 *
 * All ranks of the parent take part, by direct calls on the parent:
 *
 *      1. all ranks exchange their arguments   each rank checks all of them, and computes the
 *                                              groups, with the same result on all ranks
 *      2. all ranks exchange whether they      all ranks have enough file descriptors; the first
 *         can take part                        rank of each group has opened a meeting point
 *      3. the ranks of each group meet, and open a communicator as in tutti_init
 *      4. all ranks exchange their status      all ranks of a group have a communicator, or none
 *
 * So if an argument is invalid, or a rank cannot take part, all ranks of the parent or of the group
 * return an error before any rank waits for another. In step 3 the ranks of a group wait for each
 * other, and watch the parent: the parent detects a rank that dies, and its side channel reports a
 * rank that gives up (for example without file descriptors). In step 4 all ranks receive the cause.
 *
 * Runs on the calling thread.
 */
#include "api/comm_state.h"

#include "base/hash.h"
#include "base/status.h"
#include "boot/meet.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A rank of a group opens at most FILES file descriptors, and FILES_EACH more for each rank. */
#define FILES 8u
#define FILES_EACH 6u

typedef enum {
    SPLIT = 1,
    CREATE
} kind_t;

/* A rank's data of step 1. */
typedef struct {
    uint32_t kind;
    int32_t status; /* result of the check of this rank's arguments, with its text */
    char text[104];
    int32_t color, key; /* split */
    uint32_t nranks;    /* create: length of the list */
    uint32_t unused;
    uint64_t hash;
} wish_t;

/* A rank's data of steps 2 and 4. */
typedef struct {
    int32_t status;
    int32_t own; /* 1: this rank found the error; 0: the error is a consequence of another rank's
                    error */
    char text[248];
    tutti__venue_t place; /* step 2: the meeting point, from the group's first rank */
} ready_t;

/* The state of a call on this rank. */
typedef struct {
    tutti__comm_t *parent;
    const int *list;   /* create: the caller's list */
    wish_t *wishes;    /* [parent's size] */
    ready_t ready;     /* this rank's data of steps 2 and 4 */
    ready_t *readies;  /* [parent's size] */
    uint64_t *line;    /* [parent's size] for sorting */
    uint32_t *members; /* [n] of this rank's group, as ranks of the parent */
    uint32_t n, me;    /* n 0: this rank is in no group */
    int meetings;      /* 1: some group has more than one rank */
    int door;          /* the meeting point's listening socket, or -1 */
    uint32_t number;   /* number of this call on the parent, equal on all ranks */
} making_t;

/* A direct allgather with a tag of its own. */
static tutti_status_t gather(tutti__comm_t *comm, const void *mine, void *all, size_t bytes)
{
    size_t before = comm->topo->rank * bytes;
    /* `in` is shifted back: see call/call_prepare.c. */
    tutti__exec_call_t call = { .in = (const void *)((uintptr_t)mine - before),
                                .out = all,
                                .count = comm->topo->size * bytes,
                                .dtype = TUTTI_UINT8,
                                .op = TUTTI_SUM,
                                .tag = TUTTI__TAG_SPLIT };

    return tutti__comm_direct(comm, TUTTI__ALLGATHER, &call, 0);
}

/* ---- step 1: the groups ---- */

static const char *name_of(uint32_t kind)
{
    return kind == SPLIT ? "tutti_comm_split" : "tutti_comm_create";
}

/* Are all ranks' arguments valid and consistent? All ranks get the same result. */
static tutti_status_t judge(const making_t *m)
{
    const wish_t *first = &m->wishes[0];

    for (uint32_t r = 0; r < m->parent->topo->size; r++) {
        const wish_t *wish = &m->wishes[r];

        if (wish->kind != first->kind)
            return tutti__fail(TUTTI_ERR_MISMATCH, "rank %u called %s, rank 0 %s", r,
                               name_of(wish->kind), name_of(first->kind));
        if (wish->status != TUTTI_OK)
            return tutti__fail((tutti_status_t)wish->status, "rank %u: %.*s", r,
                               (int)sizeof(wish->text), wish->text);
    }
    for (uint32_t r = 1; first->kind == CREATE && r < m->parent->topo->size; r++)
        if (m->wishes[r].nranks != first->nranks || m->wishes[r].hash != first->hash)
            return tutti__fail(TUTTI_ERR_MISMATCH,
                               "tutti_comm_create: ranks %u and 0 passed different lists of ranks",
                               r);
    return TUTTI_OK;
}

/* A number that orders the ranks of a group: key and rank. */
static uint64_t place_in_line(const making_t *m, uint32_t rank)
{
    /* INT_MIN becomes 0. */
    return (uint64_t)((uint32_t)m->wishes[rank].key ^ 0x80000000u) << 32 | rank;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* The colors are sorted, so that finding groups of more than one rank takes n log n, not n^2. */
static void group_by_color(making_t *m)
{
    uint32_t size = m->parent->topo->size, rank = m->parent->topo->rank;
    int32_t color = m->wishes[rank].color;
    uint64_t *line = m->line;

    for (uint32_t r = 0; r < size; r++)
        line[r] = (uint64_t)(uint32_t)m->wishes[r].color;
    qsort(line, size, sizeof(*line), compare);
    for (uint32_t r = 1; r < size; r++)
        m->meetings |= line[r] == line[r - 1] && line[r] != (uint32_t)TUTTI_COLOR_NONE;
    for (uint32_t r = 0; r < size; r++)
        if (color != TUTTI_COLOR_NONE && m->wishes[r].color == color)
            line[m->n++] = place_in_line(m, r);
    qsort(line, m->n, sizeof(*line), compare);
    for (uint32_t i = 0; i < m->n; i++) {
        m->members[i] = (uint32_t)line[i];
        if (m->members[i] == rank)
            m->me = i;
    }
}

static void group_by_list(making_t *m)
{
    uint32_t nranks = m->wishes[0].nranks;

    m->meetings = nranks > 1;
    for (uint32_t i = 0; i < nranks; i++) {
        m->members[i] = (uint32_t)m->list[i];
        if (m->members[i] == m->parent->topo->rank) {
            m->me = i;
            m->n = nranks;
        }
    }
}

/* ---- step 2: can all ranks take part ---- */

/* Are all ranks of this rank's group on this machine? */
static int on_machine(const making_t *m)
{
    const tutti__topo_t *topo = m->parent->topo;

    for (uint32_t i = 0; i < m->n; i++)
        if (topo->machine_of[m->members[i]] != topo->machine_of[topo->rank])
            return 0;
    return 1;
}

static void note(ready_t *ready, tutti_status_t status, int own)
{
    ready->status = (int32_t)status;
    ready->own = own;
    snprintf(ready->text, sizeof(ready->text), "%.240s",
             status == TUTTI_OK ? "" : tutti_last_error());
}

/* note() while the group is opened: the rank numbers in the text are those of the group. */
static void note_opening(making_t *m, tutti_status_t status, int own)
{
    note(&m->ready, status, own);
    snprintf(m->ready.text, sizeof(m->ready.text), "in a group of %u ranks: %.200s", m->n,
             tutti_last_error());
}

/* Find errors of this rank now, before other ranks wait for it. */
static void get_ready(making_t *m)
{
    tutti_status_t status = TUTTI_OK;

    if (m->n > 1)
        status = tutti__net_files_left(FILES + FILES_EACH * m->n);
    if (status == TUTTI_OK && m->n > 1 && m->me == 0)
        status =
            tutti__venue_open(m->parent->conf.interface, on_machine(m), &m->ready.place, &m->door);
    note(&m->ready, status, 1);
}

/* Exchange the status of all ranks of the parent. */
static tutti_status_t share(making_t *m)
{
    return gather(m->parent, &m->ready, m->readies, sizeof(m->ready));
}

/* Return OK if no rank of this rank's group has an error. Otherwise return the error of the first
   rank that has `own` 1; if there is no such rank, the error of the first failed rank. All ranks of
   the group get the same result. */
static tutti_status_t judge_group(const making_t *m)
{
    uint32_t failed = m->n;

    for (uint32_t i = m->n; i-- > 0;) {
        const ready_t *ready = &m->readies[m->members[i]];

        if (ready->status != TUTTI_OK &&
            (ready->own || failed == m->n || !m->readies[m->members[failed]].own))
            failed = i;
    }
    if (failed == m->n)
        return TUTTI_OK;
    return tutti__fail((tutti_status_t)m->readies[m->members[failed]].status, "rank %u: %.*s",
                       m->members[failed], (int)sizeof(m->ready.text),
                       m->readies[m->members[failed]].text);
}

/* ---- step 3: meeting ---- */

static int is_cancelled(const making_t *m)
{
    return tutti__watch_cancelled(m->parent->watch, m->members[0], m->number);
}

/* Is there a reason to stop waiting for the other ranks of the group? */
static tutti_status_t look(void *arg)
{
    const making_t *m = arg;
    tutti_status_t status = tutti__watch_alive(m->parent->watch);

    if (status == TUTTI_OK && is_cancelled(m))
        status = tutti__fail(TUTTI_ERR_PEER_LOST, "another rank of the group has given up");
    return status;
}

/* This rank has an error, and other ranks may wait for this rank. The parent is alive, so a lost or
   unreachable peer is a consequence of another rank's error. */
static void give_up(void *arg, tutti_status_t status)
{
    making_t *m = arg;

    if (m->ready.status == TUTTI_OK && status != TUTTI_ERR_PEER_LOST &&
        status != TUTTI_ERR_TRANSPORT)
        note_opening(m, status, 1);
    if (!is_cancelled(m))
        tutti__engine_cancel(m->parent->engine, m->members[0], m->number);
}

static tutti_status_t meet(making_t *m, tutti__meet_t *ret_meet)
{
    /* Wait for half of the timeout: other groups already wait in step 4, for the whole timeout. */
    uint64_t deadline = tutti__net_deadline(m->parent->conf.shared.timeout_ms / 2);
    const tutti__venue_t *place = &m->readies[m->members[0]].place;
    tutti_status_t status;

    /* All ranks of the group are ready, so the first rank has opened its meeting point. */
    assert((m->door >= 0) == (m->n > 1 && m->me == 0));
    if (m->n == 1) {
        tutti__meet_self(ret_meet);
        return TUTTI_OK;
    }
    if (m->me > 0)
        return tutti__venue_join(place, m->me, m->n, deadline, ret_meet);
    status = tutti__venue_host(place, m->door, m->n, deadline, ret_meet);
    m->door = -1;
    return status;
}

static tutti_status_t open_group(making_t *m, tutti__comm_t **ret_comm)
{
    const tutti__comm_t *parent = m->parent;
    uint32_t *world_rank = malloc(m->n * sizeof(*world_rank));
    tutti_status_t status;
    tutti__meet_t way;

    assert(m->n > 0 && m->me < m->n && m->n <= parent->topo->size);
    if (world_rank == NULL) {
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "group of %u ranks", m->n);
        give_up(m, status);
        return status;
    }
    for (uint32_t i = 0; i < m->n; i++)
        world_rank[i] =
            parent->world_rank == NULL ? m->members[i] : parent->world_rank[m->members[i]];
    status = meet(m, &way);
    if (status != TUTTI_OK) {
        free(world_rank);
        give_up(m, status);
        return status;
    }
    return tutti__comm_open_part(&way, parent, world_rank, ret_comm);
}

/* Steps 3 and 4. status: the result of step 2; the ranks of a failed group skip step 3. */
static tutti_status_t make_group(making_t *m, tutti_status_t status, tutti__comm_t **ret_comm)
{
    if (status == TUTTI_OK && m->n > 0) {
        tutti__net_watch(look, m);
        tutti__net_watch_failures(give_up, m);
        status = open_group(m, ret_comm);
        if (status != TUTTI_OK && m->ready.status == TUTTI_OK)
            note_opening(m, status, 0);
        tutti__net_watch_failures(NULL, NULL);
        tutti__net_watch(NULL, NULL);
    }
    if (!m->meetings)
        return status;
    if (m->ready.status == TUTTI_OK)
        note(&m->ready, status, 0);
    status = share(m);
    return status == TUTTI_OK ? judge_group(m) : status;
}

/* ---- the calls ---- */

static tutti_status_t run(making_t *m, const wish_t *mine, tutti_comm_t **ret_comm)
{
    char text[TUTTI__ERROR_BYTES];
    tutti__comm_t *comm = NULL;
    tutti_status_t status;

    status = gather(m->parent, mine, m->wishes, sizeof(*mine));
    if (status != TUTTI_OK)
        return status;
    m->number = ++tutti__comm_state(m->parent)->groupings;
    status = judge(m);
    if (status != TUTTI_OK)
        return status;
    if (mine->kind == SPLIT)
        group_by_color(m);
    else
        group_by_list(m);
    assert(m->n == 0 || m->members[m->me] == m->parent->topo->rank);
    if (m->meetings) {
        get_ready(m);
        status = share(m);
        if (status != TUTTI_OK)
            return status;
        status = judge_group(m);
    }
    status = make_group(m, status, &comm);
    if (status != TUTTI_OK) {
        snprintf(text, sizeof(text), "%s", tutti_last_error());
        tutti__comm_close(comm);
        return tutti__fail(status, "%s", text);
    }
    if (comm != NULL)
        tutti__parts_add(comm);
    *ret_comm = comm != NULL ? comm->handle : NULL;
    return TUTTI_OK;
}

/* Without memory this rank cannot take part in the exchanges, so it ends the parent. */
static tutti_status_t no_memory(tutti__comm_t *parent)
{
    char text[128];

    snprintf(text, sizeof(text), "%s has no memory for groups of %u ranks",
             tutti__boot_rank_name(parent->boot, parent->topo->rank), parent->topo->size);
    return tutti__engine_kill(parent->engine, TUTTI_ERR_NO_MEMORY, text);
}

static tutti_status_t make(tutti__comm_t *parent, const wish_t *mine, const int *list,
                           tutti_comm_t **ret_comm)
{
    size_t size = parent->topo->size;
    making_t m = { .parent = parent, .list = list, .door = -1 };
    tutti_status_t status;

    m.wishes = malloc(size * sizeof(*m.wishes));
    m.readies = malloc(size * sizeof(*m.readies));
    m.line = malloc(size * sizeof(*m.line));
    m.members = malloc(size * sizeof(*m.members));
    if (m.wishes == NULL || m.readies == NULL || m.line == NULL || m.members == NULL)
        status = no_memory(parent);
    else
        status = run(&m, mine, ret_comm);
    if (m.door >= 0)
        close(m.door);
    free(m.members);
    free(m.line);
    free(m.readies);
    free(m.wishes);
    return status;
}

/* Store an error for this rank's caller and for the other ranks. */
static void refuse(wish_t *wish, const char *text)
{
    wish->status = TUTTI_ERR_INVALID_ARGUMENT;
    snprintf(wish->text, sizeof(wish->text), "%s: %s", name_of(wish->kind), text);
}

tutti_status_t tutti_comm_split(tutti_comm_t *handle, int color, int key, tutti_comm_t **ret_comm)
{
    tutti__comm_t *comm;
    tutti_status_t status = tutti__comm_of(handle, &comm);
    wish_t mine;
    char text[64];

    if (status != TUTTI_OK)
        return status;
    memset(&mine, 0, sizeof(mine));
    mine.kind = SPLIT;
    mine.color = color;
    mine.key = key;
    snprintf(text, sizeof(text), "color %d is neither >= 0 nor TUTTI_COLOR_NONE", color);
    if (color < 0 && color != TUTTI_COLOR_NONE)
        refuse(&mine, text);
    if (ret_comm == NULL)
        refuse(&mine, "ret_comm is NULL");
    return make(comm, &mine, NULL, ret_comm);
}

/* Are the entries different ranks of the parent? */
static void check_list(const tutti__comm_t *comm, const int *ranks, int nranks, wish_t *wish)
{
    int size = (int)comm->topo->size;
    char text[80];

    snprintf(text, sizeof(text), "nranks is %d, but there are %d ranks", nranks, size);
    if (nranks < 0 || nranks > size) {
        refuse(wish, text);
        return;
    }
    if (ranks == NULL && nranks > 0) {
        refuse(wish, "ranks is NULL");
        return;
    }
    for (int i = 0; i < nranks; i++) {
        snprintf(text, sizeof(text), "%d in the list is no rank: there are %d ranks", ranks[i],
                 size);
        if (ranks[i] < 0 || ranks[i] >= size)
            refuse(wish, text);
        snprintf(text, sizeof(text), "rank %d is in the list twice", ranks[i]);
        for (int j = 0; j < i && wish->status == TUTTI_OK; j++)
            if (ranks[j] == ranks[i])
                refuse(wish, text);
        if (wish->status != TUTTI_OK)
            return;
    }
}

tutti_status_t tutti_comm_create(tutti_comm_t *handle, const int *ranks, int nranks,
                                 tutti_comm_t **ret_comm)
{
    tutti__comm_t *comm;
    tutti_status_t status = tutti__comm_of(handle, &comm);
    wish_t mine;

    if (status != TUTTI_OK)
        return status;
    memset(&mine, 0, sizeof(mine));
    mine.kind = CREATE;
    check_list(comm, ranks, nranks, &mine);
    if (ret_comm == NULL)
        refuse(&mine, "ret_comm is NULL");
    if (mine.status == TUTTI_OK) {
        mine.nranks = (uint32_t)nranks;
        mine.hash = tutti__hash(ranks, (size_t)nranks * sizeof(*ranks));
    }
    return make(comm, &mine, ranks, ret_comm);
}
