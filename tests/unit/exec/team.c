/* SPDX-License-Identifier: BSD-3-Clause */
/* p ranks in one thread. See team.h. */
#include "unit/exec/team.h"

#include "node/shm/shm.h"
#include "unit/exec/lag.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

void team_open(team_t *team, uint32_t n, const uint32_t *host_of, size_t slot_bytes,
               uint32_t credits, int is_lagging)
{
    memset(team, 0, sizeof(*team));
    world_open(&team->world, n, host_of);
    for (uint32_t r = 0; r < n; r++) {
        team->node[r] = world_node(&team->world, r);
        team->xport[r] = world_xport(&team->world, r, slot_bytes, credits);
        if (is_lagging)
            team->lag[r] = lag_open(team->xport[r], r, is_lagging);
        for (uint32_t peer = 0; peer < n; peer++)
            team->table[r][peer] = is_lagging ? team->lag[r] : team->xport[r];
        team->env[r] = (tutti__exec_env_t){ .rank = r,
                                            .size = n,
                                            .xport = team->table[r],
                                            .node = team->node[r],
                                            .host_of = team->world.host_of,
                                            .slot_bytes = slot_bytes };
        /* A rank has no channel to itself. */
        team->table[r][r] = NULL;
    }
}

void team_close(team_t *team)
{
    for (uint32_t r = 0; r < team->world.n; r++) {
        team->node[r]->ops->close(team->node[r]);
        if (team->lag[r] != NULL)
            team->lag[r]->ops->close(team->lag[r]);
        team->xport[r]->ops->close(team->xport[r]);
    }
    world_close(&team->world);
}

void crew_open(crew_t *crew, team_t *team, uint32_t lane)
{
    memset(crew, 0, sizeof(*crew));
    crew->team = team;
    crew->lane = lane;
    for (uint32_t r = 0; r < team->world.n; r++)
        tutti__run_init(&crew->member[r].run, &team->env[r], lane);
}

void crew_close(crew_t *crew)
{
    for (uint32_t r = 0; r < crew->team->world.n; r++)
        tutti__run_fini(&crew->member[r].run);
}

void crew_set(crew_t *crew, tutti__sched_t *const *scheds, const tutti__exec_call_t *calls)
{
    for (uint32_t r = 0; r < crew->team->world.n; r++) {
        member_t *m = &crew->member[r];

        m->sched = scheds[r];
        m->call = calls[r];
        m->state = MEMBER_LATE;
        m->status = TUTTI__AGAIN;
    }
}

static int is_finished(const member_t *m)
{
    return m->state == MEMBER_DONE || m->state == MEMBER_FAILED;
}

/* ---- steps ---- */

/* All values that change when a rank makes progress. They are compared as bytes, so the structure
   is zeroed first. */
typedef struct {
    struct {
        uint32_t pc, loop;
        size_t trip;
        int started;
    } stream[TUTTI__SCHED_STREAMS];
    tutti__shm_phase_t phase;
    uint32_t in, red, out, seen, seq;
} trace_t;

static void trace(const crew_t *crew, uint32_t rank, trace_t *ret_trace)
{
    const tutti__run_t *run = &crew->member[rank].run;
    const tutti__shm_t *shm = (const tutti__shm_t *)crew->team->node[rank];
    const tutti__shm_lane_t *lane = &shm->lane[crew->lane];

    memset(ret_trace, 0, sizeof(*ret_trace));
    for (uint32_t s = 0; s < TUTTI__SCHED_STREAMS; s++) {
        ret_trace->stream[s].pc = run->stream[s].pc;
        ret_trace->stream[s].loop = run->stream[s].loop;
        ret_trace->stream[s].trip = run->stream[s].trip;
        ret_trace->stream[s].started = run->stream[s].started;
    }
    ret_trace->phase = lane->phase;
    ret_trace->in = lane->in;
    ret_trace->red = lane->red;
    ret_trace->out = lane->out;
    ret_trace->seen = lane->seen;
    ret_trace->seq = lane->seq;
}

static void end_member(crew_t *crew, member_t *m)
{
    m->state = m->status == TUTTI_OK ? MEMBER_DONE : MEMBER_FAILED;
    if (m->state == MEMBER_FAILED)
        snprintf(m->error, sizeof(m->error), "%s", tutti_last_error());
    for (uint32_t r = 0; crew->meets && r < crew->team->world.n; r++)
        if (crew->member[r].state == MEMBER_LATE)
            fail_msg("done although rank %u has not begun", r);
}

static void begin_counting(member_t *m)
{
    for (uint32_t i = 0; i < m->run.nends; i++)
        if (lag_is_end(&m->run.ends[i]))
            lag_begin(m->run.ends[i].chan);
}

/* The run's report contains a number of complete messages. This must be the number of messages that
   were received or sent. */
static void check_awaited(const member_t *m, uint32_t rank)
{
    uint32_t at = tutti__run_blocked_at(&m->run, m->hint.peer);
    tutti__run_wait_t wait;
    const tutti__end_t *end;
    size_t begun = 0;

    if (!tutti__run_awaits(&m->run, m->hint.peer, &wait))
        return;
    assert_int_equal(wait.step, at);
    end = &m->run.ends[m->sched->ops[at].chan];
    for (uint32_t s = 0; s < m->sched->nstreams; s++)
        begun |= !wait.is_recv && m->run.stream[s].pc == at &&
                 (m->run.stream[s].started || end->sent_bytes > 0);
    if (wait.complete >= wait.messages || wait.bytes == 0 ||
        (lag_is_end(end) && lag_count(end->chan) != wait.complete + begun))
        fail_msg("rank %u: %zu of %zu messages are complete, the next has %zu bytes", rank,
                 wait.complete, wait.messages, wait.bytes);
}

static int may_sleep(const member_t *m)
{
    return m->state == MEMBER_RUNS && m->hint.word != NULL &&
           tutti__load_relaxed(m->hint.word) == m->hint.value;
}

/* One step of a rank: did it make progress? */
static int step(crew_t *crew, uint32_t rank)
{
    member_t *m = &crew->member[rank];
    int begins = m->state == MEMBER_LATE, asleep = may_sleep(m), moved;
    uint64_t ticks = lag_ticks;
    trace_t before, after;

    if (begins) {
        m->state = MEMBER_RUNS;
        m->status = tutti__run_start(&m->run, m->sched, &m->call);
        if (m->status != TUTTI_OK) {
            end_member(crew, m);
            return 1;
        }
        begin_counting(m);
    }
    trace(crew, rank, &before);
    m->status = tutti__run_step(&m->run, &m->hint);
    trace(crew, rank, &after);
    moved = m->status != TUTTI__AGAIN || memcmp(&before, &after, sizeof(before)) != 0;
    if (m->status != TUTTI__AGAIN)
        end_member(crew, m);
    else if (m->hint.peer == (int32_t)rank || m->hint.peer >= (int32_t)crew->team->world.n)
        fail_msg("rank %u is stuck at rank %d", rank, m->hint.peer);
    else
        check_awaited(m, rank);
    /* Chunks of a node operation wait for up to three words, and the wait hint has only the last
       one. See ORDER_ASLEEP. */
    if (asleep && moved && before.phase != SHM_CHUNKS)
        fail_msg("rank %u waited for a word, which has not changed, and went on", rank);
    return begins || moved || lag_ticks != ticks;
}

/* ---- orders ---- */

static uint32_t draw(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % n;
}

/* One of the members in `set`, which is not empty. */
static uint32_t choose(order_t order, uint32_t set, uint32_t n, uint32_t *seed)
{
    uint32_t r;

    if (order == ORDER_LOWEST)
        return (uint32_t)__builtin_ctz(set);
    if (order == ORDER_HIGHEST)
        return 31 - (uint32_t)__builtin_clz(set);
    do {
        r = draw(seed, n);
    } while (!(set >> r & 1));
    return r;
}

int crew_drive(crew_t *crew, order_t order, uint32_t seed, uint64_t steps)
{
    uint32_t n = crew->team->world.n, victim = 1u << draw(&seed, n), waiting = 0;

    for (uint64_t i = 0; steps == 0 || i < steps; i++) {
        uint32_t open = 0, asleep = 0, ready, r;

        for (r = 0; r < n; r++) {
            open |= (uint32_t)!is_finished(&crew->member[r]) << r;
            asleep |= (uint32_t)may_sleep(&crew->member[r]) << r;
        }
        ready = open & ~waiting & (order == ORDER_ASLEEP ? ~asleep : open);
        if (open == 0)
            return 1;
        if (ready == 0)
            return 0;
        if (order == ORDER_STARVED && ready != victim)
            ready &= ~victim;
        r = choose(order, order == ORDER_RANDOM ? open : ready, n, &seed);
        waiting = step(crew, r) ? 0 : waiting | 1u << r;
    }
    return 0;
}

static void say_stuck(const crew_t *crew, char *text, size_t bytes)
{
    size_t used = 0;

    for (uint32_t r = 0; r < crew->team->world.n && used < bytes; r++) {
        const member_t *m = &crew->member[r];

        if (m->state == MEMBER_FAILED)
            used += (size_t)snprintf(text + used, bytes - used, "; rank %u: %s", r, m->error);
        else if (m->state == MEMBER_RUNS)
            used += (size_t)snprintf(text + used, bytes - used,
                                     "; rank %u at operation %u waits for %d", r,
                                     m->run.stream[0].pc, m->hint.peer);
    }
}

void crew_finish(crew_t *crew, order_t order, uint32_t seed, const char *what)
{
    int ended = crew_drive(crew, order, seed, 0);
    char text[1024] = "";

    for (uint32_t r = 0; r < crew->team->world.n; r++)
        ended &= crew->member[r].state == MEMBER_DONE;
    say_stuck(crew, text, sizeof(text));
    if (!ended)
        fail_msg("%s; order %d, seed %u%s", what, (int)order, seed, text);
    for (uint32_t r = 0; r < crew->team->world.n; r++)
        if (crew->team->lag[r] != NULL && lag_missing(crew->team->lag[r]) != 0)
            fail_msg("%s: rank %u still expects %zu messages", what, r,
                     lag_missing(crew->team->lag[r]));
}

void crew_cancel(crew_t *crew)
{
    for (uint32_t r = 0; r < crew->team->world.n; r++) {
        if (crew->member[r].state == MEMBER_RUNS || crew->member[r].state == MEMBER_FAILED)
            tutti__run_cancel(&crew->member[r].run);
        crew->member[r].state = MEMBER_DONE;
    }
}
