/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The checker's set-up: streams, cells with their initial values, channels, hosts.
 *
 * It also checks all conditions between ranks that must hold before a run: all ranks have the same
 * blocks, and each channel has two ends and one consuming stream.
 */
#include "sched/check_run.h"

#include <stdlib.h>
#include <string.h>

/* Allocate zeroed memory, at least a byte. On failure set the run's status. */
static void *allocate(tutti__check_run_t *run, size_t n, size_t bytes)
{
    void *p = calloc(n + (n == 0), bytes);

    if (p == NULL && run->status == TUTTI_OK) {
        run->status = TUTTI_ERR_NO_MEMORY;
        snprintf(run->why, run->why_bytes, "no memory for the check");
    }
    return p;
}

void tutti__check_clear(tutti__check_run_t *run)
{
    free(run->message_knows);
    free(run->knows);
    free(run->met);
    free(run->members);
    free(run->hosts);
    free(run->received);
    free(run->values);
    free(run->messages);
    free(run->chan_of);
    free(run->chan_first);
    free(run->chans);
    free(run->sending);
    free(run->accesses);
    free(run->places);
    free(run->cells);
    free(run->ready);
    free(run->marks);
    free(run->streams);
}

static int blocks_suit(tutti__check_run_t *run)
{
    tutti__expect_t expect = run->check->expect;

    if (tutti__check_has_parts(expect) && run->nblocks != run->check->size)
        return tutti__check_blame(run, NULL, "%u blocks for %u ranks", run->nblocks,
                                  run->check->size);
    if (run->sizes == TUTTI__BY_PAIR && expect != TUTTI__EXPECT_ALLTOALL &&
        expect != TUTTI__EXPECT_GATHER && expect != TUTTI__EXPECT_SCATTER)
        return tutti__check_blame(run, NULL, "sizes by pair, but there are no sizes of pairs");
    if (run->check->sizes != 0 && !(run->check->sizes >> run->sizes & 1))
        return tutti__check_blame(run, NULL, "the collective does not allow these sizes of blocks");
    return 1;
}

/* Do the schedules of rank r and rank 0 have the same scope and the same kind of memory, host or
   device? Do rank r's operations suit this scope and memory? */
static int places_agree(tutti__check_run_t *run, uint32_t r)
{
    const tutti__sched_t *first = run->check->scheds[0], *sched = run->check->scheds[r];
    int is_all = sched->scope == TUTTI__SCOPE_ALL;

    if (sched->on_device != first->on_device)
        return tutti__check_blame(
            run, NULL, "rank %u has a schedule for %s memory, but rank 0 has one for %s memory", r,
            sched->on_device ? "device" : "host", first->on_device ? "device" : "host");
    if (sched->on_device && !tutti__sched_suits_device(sched))
        return tutti__check_blame(
            run, NULL, "rank %u has a schedule for device memory, but operations for host memory",
            r);
    if (sched->scope != first->scope)
        return tutti__check_blame(run, NULL,
                                  "rank %u has node operations of scope %s, but rank 0 of scope %s",
                                  r, is_all ? "all" : "host", is_all ? "host" : "all");
    if (is_all && !sched->on_device)
        return tutti__check_blame(
            run, NULL, "rank %u has node operations of scope all, but a schedule for host memory",
            r);
    return 1;
}

/* Does each rank keep the rules, and do all ranks have the same blocks? */
static int heads_agree(tutti__check_run_t *run)
{
    const tutti__check_t *check = run->check;
    const tutti__sched_t *first = check->scheds[0];
    char why[400];

    for (uint32_t r = 0; r < check->size; r++) {
        const tutti__sched_t *sched = check->scheds[r];

        if (sched->size != check->size || sched->rank != r)
            return tutti__check_blame(run, NULL, "rank %u has the schedule of rank %u of %u", r,
                                      sched->rank, sched->size);
        if (!tutti__sched_is_valid(sched, why, sizeof(why)))
            return tutti__check_blame(run, NULL, "rank %u %s", r, why);
        if (sched->nblocks != first->nblocks || sched->max_nblk != first->max_nblk)
            return tutti__check_blame(
                run, NULL, "rank %u has %u blocks, %u per message, but rank 0 has %u and %u", r,
                sched->nblocks, sched->max_nblk, first->nblocks, first->max_nblk);
        if (sched->sizes != first->sizes)
            return tutti__check_blame(run, NULL,
                                      "rank %u assumes other sizes of blocks than rank 0", r);
        if (sched->stage_blocks != first->stage_blocks || sched->stage_trips != first->stage_trips)
            return tutti__check_blame(
                run, NULL, "rank %u has %u chunks of %u STAGE blocks, but rank 0 %u of %u", r,
                sched->stage_trips, sched->stage_blocks, first->stage_trips, first->stage_blocks);
        if (!places_agree(run, r))
            return 0;
        run->scratch_blocks = TUTTI__MAX(run->scratch_blocks, sched->scratch_blocks);
    }
    run->scope = first->scope;
    run->nblocks = first->nblocks;
    run->max_nblk = first->max_nblk;
    run->stage_trips = first->stage_trips;
    run->sizes = first->sizes;
    return blocks_suit(run);
}

/* The number of marks that a stream makes in the whole run. An operation with a shift makes as many
   marks as an operation without a shift, because its loop has more trips. */
static uint32_t count_marks(const tutti__sched_t *sched, uint32_t s, uint32_t trips)
{
    uint32_t n = 0, in_loop = 0;

    for (uint32_t i = sched->first[s]; i < sched->first[s + 1]; i++) {
        if (sched->ops[i].kind == TUTTI__LOOP || sched->ops[i].kind == TUTTI__END_LOOP)
            in_loop = !in_loop;
        else if (sched->ops[i].flags & TUTTI__MARK)
            n += in_loop ? trips : 1;
    }
    return n;
}

static int make_streams(tutti__check_run_t *run)
{
    const tutti__check_t *check = run->check;
    uint32_t n = check->size * TUTTI__SCHED_STREAMS;
    size_t nmarks = 0;

    run->streams = allocate(run, n, sizeof(*run->streams));
    run->ready = allocate(run, n, sizeof(*run->ready));
    if (run->status != TUTTI_OK)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        tutti__check_stream_t *stream = &run->streams[i];

        stream->rank = i / TUTTI__SCHED_STREAMS;
        stream->stream = i % TUTTI__SCHED_STREAMS;
        stream->sched = check->scheds[stream->rank];
        stream->pc = stream->sched->first[stream->stream];
        stream->end = stream->sched->first[stream->stream + 1];
        if (stream->sched->nstreams > 1)
            stream->all_marks = count_marks(stream->sched, stream->stream, check->trips);
        nmarks += stream->all_marks;
    }
    run->marks = allocate(run, nmarks, sizeof(*run->marks));
    if (run->status != TUTTI_OK)
        return 0;
    nmarks = 0;
    for (uint32_t i = 0; i < n; i++) {
        run->streams[i].marks = run->marks + nmarks;
        nmarks += run->streams[i].all_marks;
    }
    return 1;
}

int tutti__check_uses_stage(const tutti__check_t *check)
{
    for (uint32_t r = 0; r < check->size; r++) {
        const tutti__sched_t *sched = check->scheds[r];

        for (uint32_t i = 0; i < sched->nops; i++) {
            if (sched->ops[i].sbuf == TUTTI__STAGE || sched->ops[i].dbuf == TUTTI__STAGE)
                return 1;
        }
    }
    return 0;
}

static void fill_cells(tutti__check_run_t *run)
{
    const tutti__check_t *check = run->check;

    for (uint32_t r = 0; r < check->size; r++) {
        tutti__blocks_t given = run->places[r].given;

        for (uint32_t t = 0; t < check->trips; t++) {
            for (uint32_t b = given.from; b < given.upto; b++)
                run->cells[tutti__cell_index(run, r, TUTTI__OUT, b, t)] =
                    tutti__value_leaf(r, b, t);
        }
        for (uint32_t b = 0; b < run->scratch_blocks && check->expect == TUTTI__EXPECT_BARRIER; b++)
            run->cells[tutti__cell_index(run, r, TUTTI__SCRATCH, b, 0)] =
                tutti__value_leaf(r, b, 0);
    }
}

static int make_cells(tutti__check_run_t *run)
{
    const tutti__check_t *check = run->check;
    size_t buffer = (size_t)run->nblocks * check->trips;
    int has_stage = run->uses_stage && !run->stage_is_out;
    int has_streams = 0;

    for (uint32_t r = 0; r < check->size; r++)
        has_streams |= check->scheds[r]->nstreams > 1;
    run->stage_at = buffer;
    run->scratch_at = buffer;
    if (has_stage)
        run->scratch_at += run->stage_trips > 0 ? (size_t)run->nblocks * run->stage_trips : buffer;
    run->rank_cells = run->scratch_at + run->scratch_blocks;
    run->cells = allocate(run, run->rank_cells * check->size, sizeof(*run->cells));
    run->places = allocate(run, check->size, sizeof(*run->places));
    if (has_streams)
        run->accesses = allocate(run, run->rank_cells * check->size, sizeof(*run->accesses));
    if (check->credits == 0)
        run->sending = allocate(run, run->rank_cells * check->size, sizeof(*run->sending));
    if (run->status != TUTTI_OK)
        return 0;
    for (uint32_t r = 0; r < check->size; r++)
        run->places[r] = tutti__check_place(check, run->nblocks, r);
    fill_cells(run);
    return 1;
}

/* Make a channel for each sending end. The channels to rank r form a list: of[r] is its first
   channel, next[c] is the channel after channel c, NONE is the end. */
static void make_senders(tutti__check_run_t *run, uint32_t *of, uint32_t *next)
{
    const tutti__check_t *check = run->check;

    for (uint32_t r = 0; r < check->size; r++) {
        const tutti__sched_t *sched = check->scheds[r];

        for (uint32_t i = 0; i < sched->nchans; i++) {
            const tutti__sched_chan_t *end = &sched->chans[i];

            if (end->is_recv)
                continue;
            run->chans[run->nchans].from = r * TUTTI__SCHED_STREAMS + end->stream;
            run->chans[run->nchans].to = TUTTI__CHECK_NONE;
            run->chan_of[run->chan_first[r] + i] = run->nchans;
            next[run->nchans] = of[end->peer];
            of[end->peer] = run->nchans++;
        }
    }
}

/* Connect rank r's receiving ends to the channels to rank r, which form the list from channel
   `list` on. chan_from: [streams], all NONE. */
static int tie_receiver(tutti__check_run_t *run, uint32_t r, uint32_t list, const uint32_t *next,
                        uint32_t *chan_from)
{
    const tutti__sched_t *sched = run->check->scheds[r];
    uint32_t *chan_of = run->chan_of + run->chan_first[r];

    for (uint32_t chan = list; chan != TUTTI__CHECK_NONE; chan = next[chan])
        chan_from[run->chans[chan].from] = chan;
    for (uint32_t i = 0; i < sched->nchans; i++) {
        const tutti__sched_chan_t *end = &sched->chans[i];
        uint32_t *from = &chan_from[end->peer * TUTTI__SCHED_STREAMS + end->stream];

        if (end->is_recv) {
            chan_of[i] = *from;
            *from = TUTTI__CHECK_NONE;
        }
    }
    for (uint32_t chan = list; chan != TUTTI__CHECK_NONE; chan = next[chan]) {
        uint32_t from = run->chans[chan].from;

        if (chan_from[from] != TUTTI__CHECK_NONE)
            return tutti__check_blame(run, NULL,
                                      "rank %u stream %u sends to rank %u, which has no end for it",
                                      from / TUTTI__SCHED_STREAMS, from % TUTTI__SCHED_STREAMS, r);
    }
    return 1;
}

static int tie_ends(tutti__check_run_t *run, uint32_t nsends)
{
    uint32_t size = run->check->size, nstreams = size * TUTTI__SCHED_STREAMS;
    uint32_t *of = allocate(run, size, sizeof(*of));
    uint32_t *next = allocate(run, nsends, sizeof(*next));
    uint32_t *chan_from = allocate(run, nstreams, sizeof(*chan_from));
    int ok = run->status == TUTTI_OK;

    if (ok) {
        memset(of, 0xff, size * sizeof(*of));
        memset(chan_from, 0xff, nstreams * sizeof(*chan_from));
        make_senders(run, of, next);
    }
    for (uint32_t r = 0; r < size && ok; r++)
        ok = tie_receiver(run, r, of[r], next, chan_from);
    free(chan_from);
    free(next);
    free(of);
    return ok;
}

/* Record that a stream receives from this channel. A second consumer is an error. */
static int note_consumer(tutti__check_run_t *run, uint32_t chan, const tutti__sched_t *sched,
                         uint32_t s, const tutti__op_t *op)
{
    const tutti__sched_chan_t *end = &sched->chans[op->chan];
    uint32_t me = sched->rank * TUTTI__SCHED_STREAMS + s;

    if (chan == TUTTI__CHECK_NONE)
        return tutti__check_blame(
            run, NULL, "rank %u receives from rank %u stream %u, which has no end for it",
            sched->rank, end->peer, end->stream);
    if (run->chans[chan].to != TUTTI__CHECK_NONE && run->chans[chan].to != me)
        return tutti__check_blame(run, NULL, "rank %u receives from rank %u in streams %u and %u",
                                  sched->rank, end->peer,
                                  run->chans[chan].to % TUTTI__SCHED_STREAMS, s);
    run->chans[chan].to = me;
    return 1;
}

/* In rank r's operations, find each channel's receiving stream and longest message. */
static int look_at_uses(tutti__check_run_t *run, uint32_t r)
{
    const tutti__sched_t *sched = run->check->scheds[r];
    const uint32_t *chan_of = run->chan_of + run->chan_first[r];

    for (uint32_t s = 0; s < sched->nstreams; s++) {
        for (uint32_t i = sched->first[s]; i < sched->first[s + 1]; i++) {
            const tutti__op_t *op = &sched->ops[i];

            if (op->kind == TUTTI__SEND) {
                uint32_t *nblk = &run->chans[chan_of[op->chan]].nblk;

                *nblk = TUTTI__MAX(*nblk, op->nblk);
            } else if ((op->kind == TUTTI__RECV || op->kind == TUTTI__RECV_REDUCE) &&
                       !note_consumer(run, chan_of[op->chan], sched, s, op)) {
                return 0;
            }
        }
    }
    return 1;
}

static int make_slots(tutti__check_run_t *run)
{
    size_t messages, values = 0;

    run->most = TUTTI__MAX(run->check->credits, 1u);
    run->slots = run->most + (run->sending != NULL);
    messages = (size_t)run->nchans * run->slots;
    for (uint32_t i = 0; i < run->nchans; i++) {
        run->chans[i].first_value = values;
        values += (size_t)run->chans[i].nblk * run->slots;
    }
    run->messages = allocate(run, messages, sizeof(*run->messages));
    run->values = allocate(run, values, sizeof(*run->values));
    run->received = allocate(run, run->max_nblk, sizeof(*run->received));
    run->message_knows = allocate(run, messages * run->words, sizeof(*run->message_knows));
    return run->status == TUTTI_OK;
}

static int make_chans(tutti__check_run_t *run)
{
    const tutti__check_t *check = run->check;
    uint32_t nends = 0, nsends = 0;

    run->chan_first = allocate(run, check->size, sizeof(*run->chan_first));
    for (uint32_t r = 0; r < check->size && run->chan_first != NULL; r++) {
        run->chan_first[r] = nends;
        nends += check->scheds[r]->nchans;
        for (uint32_t i = 0; i < check->scheds[r]->nchans; i++)
            nsends += !check->scheds[r]->chans[i].is_recv;
    }
    run->chans = allocate(run, nsends, sizeof(*run->chans));
    run->chan_of = allocate(run, nends, sizeof(*run->chan_of));
    if (run->status != TUTTI_OK)
        return 0;
    for (uint32_t i = 0; i < nends; i++)
        run->chan_of[i] = TUTTI__CHECK_NONE;
    if (!tie_ends(run, nsends))
        return 0;
    for (uint32_t r = 0; r < check->size; r++) {
        if (!look_at_uses(run, r))
            return 0;
    }
    return make_slots(run);
}

/* For scope ALL: make one host of all ranks. */
static int make_one_host(tutti__check_run_t *run)
{
    uint32_t size = run->check->size;

    run->hosts = allocate(run, 1, sizeof(*run->hosts));
    run->members = allocate(run, size, sizeof(*run->members));
    if (run->status != TUTTI_OK)
        return 0;
    run->hosts[0].nranks = size;
    for (uint32_t r = 0; r < size; r++)
        run->members[r] = r;
    return 1;
}

static int make_hosts(tutti__check_run_t *run)
{
    const tutti__check_t *check = run->check;
    uint32_t first = 0;

    if (run->scope == TUTTI__SCOPE_ALL)
        return make_one_host(run);
    if (check->host_of == NULL)
        return 1;
    run->hosts = allocate(run, check->nhosts, sizeof(*run->hosts));
    run->members = allocate(run, check->size, sizeof(*run->members));
    if (run->status != TUTTI_OK)
        return 0;
    for (uint32_t r = 0; r < check->size; r++) {
        if (check->host_of[r] >= check->nhosts)
            return tutti__check_blame(run, NULL, "rank %u is on no host", r);
        run->hosts[check->host_of[r]].nranks++;
    }
    for (uint32_t h = 0; h < check->nhosts; h++) {
        run->hosts[h].first = first;
        first += run->hosts[h].nranks;
    }
    memset(run->members, 0xff, check->size * sizeof(*run->members));
    for (uint32_t r = 0; r < check->size; r++) {
        const tutti__check_host_t *host = &run->hosts[check->host_of[r]];
        uint32_t local = check->local_of[r];

        if (local >= host->nranks || run->members[host->first + local] != TUTTI__CHECK_NONE)
            return tutti__check_blame(run, NULL, "rank %u cannot be local rank %u", r, local);
        run->members[host->first + local] = r;
    }
    return 1;
}

/* Make the table `met`, at first empty. Only schedules of one host without messages need it: if
   there are messages, the ranks meet before the run. */
static int make_meetings(tutti__check_run_t *run)
{
    const tutti__check_t *check = run->check;
    int has_messages = check->scheds[0]->nchans > 0;

    if (check->compared != TUTTI__COMPARED_ON_HOST || check->size == 1)
        return 1;
    for (uint32_t r = 0; r < check->size; r++) {
        if ((check->scheds[r]->nchans > 0) != has_messages)
            return tutti__check_blame(run, NULL, "rank %u has %smessages, unlike rank 0", r,
                                      has_messages ? "no " : "");
    }
    if (has_messages)
        return 1;
    run->met = allocate(run, (size_t)check->size * run->nblocks, sizeof(*run->met));
    return run->met != NULL;
}

/* Make `knows`, for barriers and frames. At first a stream depends on its own rank's begin only. */
static int make_knowledge(tutti__check_run_t *run)
{
    size_t nstreams = (size_t)run->check->size * TUTTI__SCHED_STREAMS;

    if (run->check->expect != TUTTI__EXPECT_BARRIER &&
        run->check->compared != TUTTI__COMPARED_IN_FRAMES)
        return 1;
    run->words = (run->check->size + 63) / 64;
    run->knows = allocate(run, (nstreams + 1) * run->words, sizeof(*run->knows));
    if (run->knows == NULL)
        return 0;
    for (size_t i = 0; i < nstreams; i++) {
        size_t rank = i / TUTTI__SCHED_STREAMS;

        run->knows[i * run->words + rank / 64] |= (uint64_t)1 << rank % 64;
    }
    return 1;
}

int tutti__check_make(tutti__check_run_t *run)
{
    return heads_agree(run) && make_streams(run) && make_cells(run) && make_meetings(run) &&
           make_knowledge(run) && make_chans(run) && make_hosts(run);
}
