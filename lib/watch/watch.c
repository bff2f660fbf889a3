/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening and closing the watch, and the end of a communicator. See watch.h. */
#include "watch/watch_inside.h"

#include "base/constants.h"
#include "base/log.h"
#include "base/time.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening and closing ---- */

static tutti_status_t open_record(tutti__watcher_t *w, const char *dump_path)
{
    const tutti__topo_t *topo = tutti__boot_topo(w->boot);
    int is_group;
    tutti__record_facts_t facts = {
        .rank = w->rank,
        .size = w->size,
        .world_rank = tutti__boot_world_rank(w->boot, w->rank, &is_group),
        .first = tutti__boot_world_rank(w->boot, 0, &is_group),
        .id = tutti__boot_id(w->boot),
        .is_world = !w->is_part,
        .host = topo->host_name[topo->host_of[w->rank]],
        .dump_path = dump_path,
        .is_leader = topo->by_host[topo->host_first[topo->host_of[w->rank]]] == w->rank,
    };

    return tutti__record_open(&facts, &w->base.record);
}

tutti_status_t tutti__watch_open(tutti__boot_t *boot, const tutti__machine_t *machine,
                                 const tutti__conf_shared_t *conf, int is_part,
                                 tutti__watch_t **ret_watch)
{
    const tutti__topo_t *topo = tutti__boot_topo(boot);
    tutti__watcher_t *w = calloc(1, sizeof(*w));
    tutti_status_t status = TUTTI_OK;

    if (w != NULL) {
        *w = (tutti__watcher_t){ .boot = boot,
                                 .machine = machine,
                                 .conf = conf,
                                 .rank = topo->rank,
                                 .size = topo->size,
                                 .is_part = is_part,
                                 .from = -1,
                                 .left = calloc(topo->size, sizeof(*w->left)),
                                 .cancelled = calloc(topo->size, sizeof(*w->cancelled)) };
        tutti__mutex_init(&w->lock, TUTTI__LOCK_WATCH);
    }
    if (w == NULL || w->left == NULL || w->cancelled == NULL)
        status = tutti__fail(TUTTI_ERR_NO_MEMORY, "watch over %u ranks", topo->size);
    if (status == TUTTI_OK)
        status = open_record(w, conf->dump);
    status = tutti__boot_agree(boot, status);
    if (status == TUTTI_OK)
        status = tutti__links_open(w);
    status = tutti__boot_agree(boot, status);
    if (status != TUTTI_OK) {
        tutti__watch_close(w == NULL ? NULL : &w->base);
        return status;
    }
    *ret_watch = &w->base;
    return TUTTI_OK;
}

void tutti__watch_close(tutti__watch_t *watch)
{
    tutti__watcher_t *w = tutti__watcher(watch);

    if (w == NULL)
        return;
    tutti__links_close(w);
    tutti__record_close(w->base.record);
    tutti__mutex_destroy(&w->lock);
    free(w->left);
    free(w->cancelled);
    free(w);
}

/* ---- the end ---- */

tutti_status_t tutti__watch_state(const tutti__watch_t *watch, const char **ret_text)
{
    /* The acquire pairs with the release in set_end, after which the text does not change. */
    tutti_status_t ended = (tutti_status_t)tutti__load_acquire(&watch->ended);

    *ret_text = ended == TUTTI_OK ? "" : tutti__watcher_read(watch)->text;
    return ended;
}

tutti_status_t tutti__watch_alive(const tutti__watch_t *watch)
{
    const char *text;
    tutti_status_t status = tutti__watch_state(watch, &text);

    return TUTTI__LIKELY(status == TUTTI_OK) ? TUTTI_OK : tutti__fail(status, "%s", text);
}

/* Set the reason of the end, if no reason is set. Returns 1 if this call has set the reason. */
static int set_end(tutti__watcher_t *w, int from, tutti_status_t status, const char *text)
{
    int first;

    assert(status != TUTTI_OK && from < (int)w->nlinks);
    tutti__mutex_lock(&w->lock);
    first = !tutti__watch_has_ended(&w->base);
    if (first) {
        snprintf(w->text, sizeof(w->text), "%s", text);
        w->from = from;
        /* Write the dump before `ended` is set: a thread that reads `ended` ends the pending
           requests, and the dump must still contain these requests. */
        tutti__record_end(w->base.record, status, text);
        /* A thread that reads `ended` may end the process, so first publish the reason. */
        if (status != TUTTI_ERR_SHUTDOWN)
            tutti__orphan_publish(w, status, text);
        tutti__store_release(&w->base.ended, (uint32_t)status);
    }
    tutti__mutex_unlock(&w->lock);
    return first;
}

void tutti__watch_end_from(tutti__watcher_t *w, int from, tutti_status_t status, const char *text)
{
    if (!set_end(w, from, status, text))
        return;
    /* Messages in the tree report every reason. All ranks of the machine also read departures in
       the status page; only ranks whose parent has left read the other reasons there. */
    if (status == TUTTI_ERR_SHUTDOWN)
        tutti__watch_set_page(w, TUTTI__PAGE_ENDED);
    /* SHUTDOWN: a rank has left early, as its program asked. This is logged only at debug, because
       the failing calls return this reason. */
    TUTTI__LOG(status == TUTTI_ERR_SHUTDOWN ? TUTTI__LOG_DEBUG : TUTTI__LOG_ERROR, "%s", text);
    tutti__record_advise(w->base.record, status);
    tutti__machine_ring_always(w->machine, w->machine->me);
}

tutti_status_t tutti__watch_end(tutti__watch_t *watch, tutti_status_t status, const char *text)
{
    char left[160], copy[TUTTI__ERROR_BYTES];

    if (status == TUTTI_ERR_SHUTDOWN &&
        tutti__watch_left_text(watch, TUTTI__NO_RANK, left, sizeof(left)))
        text = left;
    snprintf(copy, sizeof(copy), "%s", text); /* `text` may be tutti_last_error() */
    tutti__watch_end_from(tutti__watcher(watch), -1, status, copy);
    return tutti__watch_alive(watch);
}

void tutti__watch_close_calls(tutti__watch_t *watch)
{
    tutti__watcher_t *w = tutti__watcher(watch);

    w->told = 1; /* no report to the neighbours; set_end publishes this store */
    if (set_end(w, -1, TUTTI_ERR_SHUTDOWN, tutti__watch_closed_text(watch)))
        tutti__machine_ring_always(w->machine, w->machine->me);
}

int tutti__watch_tell(tutti__watch_t *watch)
{
    tutti__watcher_t *w = tutti__watcher(watch);
    tutti__dead_msg_t msg = { tutti__load_acquire(&watch->ended), 0 };
    char body[sizeof(msg) + TUTTI__ERROR_BYTES];

    if (msg.status == TUTTI_OK || w->told)
        return 0;
    w->told = 1;
    msg.text_bytes = (uint32_t)strlen(w->text);
    memcpy(body, &msg, sizeof(msg));
    memcpy(body + sizeof(msg), w->text, msg.text_bytes);
    for (uint32_t i = 0; i < w->nlinks; i++)
        if ((int)i != w->from)
            tutti__links_send(watch, i, TUTTI__WATCH_DEAD, body, sizeof(msg) + msg.text_bytes, 0);
    tutti__links_flush(watch);
    return 1;
}

/* ---- a failure of a transport ---- */

void tutti__watch_fail(tutti__watch_t *watch, tutti_status_t status, const char *text)
{
    tutti__watcher_t *w = tutti__watcher(watch);

    if (status != TUTTI_ERR_TRANSPORT) {
        (void)tutti__watch_end(watch, status, text);
        return;
    }
    tutti__mutex_lock(&w->lock);
    if (atomic_load(&w->failed_ns) == 0) {
        snprintf(w->failed_text, sizeof(w->failed_text), "%s", text);
        atomic_store(&w->failed_ns, tutti__now_ns());
    }
    tutti__mutex_unlock(&w->lock);
}

int tutti__watch_has_failed(const tutti__watch_t *watch)
{
    return atomic_load(&tutti__watcher_read(watch)->failed_ns) != 0;
}

void tutti__watch_end_unexplained(tutti__watch_t *watch)
{
    const tutti__watcher_t *w = tutti__watcher_read(watch);
    char halted[160], text[TUTTI__ERROR_BYTES];

    assert(tutti__watch_has_failed(watch));
    if (tutti__now_ns() - atomic_load(&w->failed_ns) < TUTTI__NEWS_MS * 1000000u)
        return;
    /* Name a stopped rank: it may be the rank that should have forwarded the report. */
    if (tutti__watch_halted(watch, halted, sizeof(halted)))
        snprintf(text, sizeof(text), "%.340s; %s", w->failed_text, halted);
    else
        snprintf(text, sizeof(text), "%s", w->failed_text);
    (void)tutti__watch_end(watch, TUTTI_ERR_TRANSPORT, text);
}

/* ---- messages ---- */

void tutti__watch_lost_rank(tutti__watcher_t *w, int link, uint32_t rank)
{
    const tutti__topo_t *topo = tutti__boot_topo(w->boot);
    char text[TUTTI__ERROR_BYTES];

    if (atomic_load(&w->left[rank]))
        return;
    snprintf(text, sizeof(text), "%s was lost: its process ended or its host, %s, is gone",
             tutti__boot_rank_name(w->boot, rank), topo->host_name[topo->host_of[rank]]);
    tutti__watch_end_from(w, link, TUTTI_ERR_PEER_LOST, text);
}

void tutti__watch_lost(tutti__watcher_t *w, uint32_t link)
{
    if (!w->link[link].bye)
        tutti__watch_lost_rank(w, (int)link, w->link[link].rank);
}

static void receive_dead(tutti__watcher_t *w, uint32_t link, const void *body, size_t bytes)
{
    const tutti__dead_msg_t *msg = body;
    char text[TUTTI__ERROR_BYTES];

    if (bytes < sizeof(*msg) || bytes != sizeof(*msg) + msg->text_bytes || msg->status == TUTTI_OK)
        return;
    snprintf(text, sizeof(text), "%.*s", (int)msg->text_bytes, (const char *)body + sizeof(*msg));
    tutti__watch_end_from(w, (int)link, (tutti_status_t)msg->status, text);
}

/* Pass the request for dumps to all neighbours except link `from`. */
static void pass_wish(tutti__watcher_t *w, int from)
{
    for (uint32_t i = 0; i < w->nlinks; i++)
        if ((int)i != from)
            tutti__links_send(&w->base, i, TUTTI__WATCH_DUMP, NULL, 0, 1);
    tutti__links_flush(&w->base);
}

void tutti__watch_ask(tutti__watch_t *watch)
{
    if (tutti__record_wants_others(watch->record))
        pass_wish(tutti__watcher(watch), -1);
}

void tutti__watch_receive(tutti__watcher_t *w, uint32_t link, uint32_t kind, const void *body,
                          size_t bytes)
{
    tutti__cancel_msg_t cancel;
    tutti__bye_msg_t bye;

    if (kind == TUTTI__WATCH_DEAD) {
        receive_dead(w, link, body, bytes);
    } else if (kind == TUTTI__WATCH_BYE && bytes == sizeof(bye)) {
        memcpy(&bye, body, sizeof(bye));
        tutti__watch_bye(w, (int)link, &bye);
    } else if (kind == TUTTI__WATCH_DUMP && bytes == 0) {
        if (tutti__record_wish(w->base.record))
            pass_wish(w, (int)link);
    } else if (kind == TUTTI__WATCH_CANCEL && bytes == sizeof(cancel)) {
        memcpy(&cancel, body, sizeof(cancel));
        tutti__watch_receive_cancel(w, (int)link, &cancel);
    } else {
        tutti__watch_end_from(w, -1, TUTTI_ERR_ABI, "a control message of an unknown kind");
    }
}
