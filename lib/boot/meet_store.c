/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Meeting through the caller's key-value store: rank 0 writes its place under one key; the other
 * ranks read the place and join. See meet.h.
 *
 * If rank 0 cannot listen, it writes the reason instead of its place, so no rank waits for rank 0.
 * If the meeting fails before all ranks have connected, rank 0 replaces its place by the reason. A
 * late rank that cannot connect reads the key again. In a store that keeps the first value of a
 * key, a late rank does not find the reason; this is the only effect.
 */
#include "boot/meet.h"

#include "base/constants.h"
#include "base/grown.h"
#include "base/log.h"
#include "base/time.h"
#include "boot/waiting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char key_name[] = "/tutti/place";

typedef struct {
    uint32_t layout;
    int32_t status;
    char text[248];
    tutti__venue_t place;
} entry_t;

/* The structure's size in each version. A released size never changes. See base/grown.h. */
enum {
    STORE_V0 = 40
};
TUTTI__GROWN_VERSION(tutti_store_t, get, STORE_V0);
TUTTI__GROWN_TODAY(tutti_store_t, STORE_V0);

static const size_t store_sizes[] = { STORE_V0 };
static const tutti__grown_t store_grown =
    TUTTI__GROWN("store", "sizeof(tutti_store_t)", store_sizes);

/* Copy the caller's structure, and check that it is complete. */
static tutti_status_t read_store(const tutti_store_t *user, tutti_store_t *store)
{
    tutti_status_t status = tutti__grown_read(&store_grown, user, store);

    if (status != TUTTI_OK)
        return status;
    if (store->prefix == NULL || store->set == NULL || store->get == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "store->%s is NULL",
                           store->prefix == NULL ? "prefix"
                           : store->set == NULL  ? "set"
                                                 : "get");
    return TUTTI_OK;
}

tutti_status_t tutti__store_check(const tutti_store_t *user)
{
    tutti_store_t store;

    return read_store(user, &store);
}

static tutti_status_t host(const tutti_store_t *store, const char *key, const tutti__conf_t *conf,
                           uint32_t size, tutti__meet_t *ret_meet)
{
    uint64_t deadline = tutti__net_deadline(conf->shared.timeout_ms);
    tutti_status_t status;
    int door = -1, code;
    entry_t entry;

    memset(&entry, 0, sizeof(entry));
    entry.layout = TUTTI__BOOT_LAYOUT;
    status = tutti__venue_open(conf->interface, 0, &entry.place, &door);
    entry.status = (int32_t)status;
    if (status != TUTTI_OK)
        snprintf(entry.text, sizeof(entry.text), "rank 0: %.230s", tutti_last_error());
    code = store->set(store->context, key, &entry, sizeof(entry));
    if (status != TUTTI_OK)
        return tutti__fail(status, "%s", entry.text);
    if (code != 0) {
        close(door);
        return tutti__fail(TUTTI_ERR_SYSTEM, "the store's set of key %s answered %d", key, code);
    }
    status = tutti__venue_host(&entry.place, door, size, deadline, ret_meet);
    if (status != TUTTI_OK) {
        entry.status = (int32_t)status;
        snprintf(entry.text, sizeof(entry.text), "%.246s", tutti_last_error());
        (void)store->set(store->context, key, &entry, sizeof(entry));
        return tutti__fail(status, "%s", entry.text);
    }
    return TUTTI_OK;
}

/* Called when no process listens at rank 0's place: read the reason, if rank 0 has written it. */
static tutti_status_t read_reason(const tutti_store_t *store, const char *key)
{
    size_t bytes = 0;
    entry_t entry;

    for (uint64_t until = tutti__net_deadline(TUTTI__REASON_MS); tutti__net_left_ms(until) > 0;) {
        if (store->get(store->context, key, &entry, sizeof(entry), &bytes, 0) != 0 ||
            bytes != sizeof(entry) || entry.layout != TUTTI__BOOT_LAYOUT)
            return TUTTI_OK;
        if (entry.status != TUTTI_OK)
            return tutti__fail((tutti_status_t)entry.status, "%.*s", (int)sizeof(entry.text),
                               entry.text);
        tutti__net_sleep_ms(TUTTI__REASON_POLL_MS);
    }
    return TUTTI_OK;
}

/*
 * Wait for rank 0's entry. Returns the return value of the store's last get. The wait consists of
 * several gets, so that this function can warn between them.
 *
 * If a get fails in the second half of its time, this counts as a timeout, because a store may
 * measure time less precisely, or round times to seconds. If the store does not work, the next get
 * fails in the first half of its time.
 *
 * If a get has timed out before its warning interval has passed, the next interval begins at once.
 * The rest of the interval might be too short for the store, so that a get for this time would fail
 * early.
 */
static int await_entry(const tutti_store_t *store, const char *key, uint32_t rank,
                       uint64_t deadline, entry_t *ret_entry, size_t *ret_bytes)
{
    tutti__waiting_t waiting = { 0, 0 };
    int code, get_ms, is_late;
    double waited_s;
    uint64_t until;

    do {
        if (tutti__waiting_now(&waiting, &waited_s))
            TUTTI__LOG(TUTTI__LOG_WARN,
                       "rank %u has waited %.1f s for rank 0, which has not written the store's "
                       "key %s",
                       rank, waited_s, key);
        until = TUTTI__MIN(deadline, waiting.due);
        get_ms = tutti__net_left_ms(until);
        code = store->get(store->context, key, ret_entry, sizeof(*ret_entry), ret_bytes, get_ms);
        is_late = tutti__net_left_ms(until) <= get_ms / 2;
        if (is_late && until == waiting.due)
            waiting.due = tutti__now_ns();
    } while (code != 0 && is_late && tutti__net_left_ms(deadline) > 0);
    return code;
}

static tutti_status_t join(const tutti_store_t *store, const char *key, const tutti__conf_t *conf,
                           uint32_t rank, uint32_t size, tutti__meet_t *ret_meet)
{
    uint64_t deadline = tutti__net_deadline(conf->shared.timeout_ms);
    char text[TUTTI__ERROR_BYTES];
    tutti_status_t status, reason;
    size_t bytes = 0;
    entry_t entry;
    int code;

    code = await_entry(store, key, rank, deadline, &entry, &bytes);
    if (code != 0)
        return tutti__fail(tutti__net_left_ms(deadline) == 0 ? TUTTI_ERR_TIMEOUT : TUTTI_ERR_SYSTEM,
                           "the store's get of key %s answered %d: rank 0 has not written it, or "
                           "the store does not work",
                           key, code);
    if (bytes != sizeof(entry) || entry.layout != TUTTI__BOOT_LAYOUT)
        return tutti__fail(TUTTI_ERR_ABI,
                           "the store's key %s has %zu bytes that are not this library's: another "
                           "version, or a prefix used for something else",
                           key, bytes);
    if (entry.status != TUTTI_OK)
        return tutti__fail((tutti_status_t)entry.status, "%.*s", (int)sizeof(entry.text),
                           entry.text);
    status = tutti__venue_join(&entry.place, rank, size, deadline, ret_meet);
    if (status != TUTTI_ERR_TRANSPORT)
        return status;
    snprintf(text, sizeof(text), "%s", tutti_last_error());
    reason = read_reason(store, key);
    if (reason != TUTTI_OK)
        return reason;
    return tutti__fail(status,
                       "the store's key %s: %s; has rank 0 ended, or was the prefix used before?",
                       key, text);
}

tutti_status_t tutti__meet_store(const tutti_store_t *user, const tutti__conf_t *conf,
                                 uint32_t rank, uint32_t size, tutti__meet_t *ret_meet)
{
    tutti_store_t store;
    tutti_status_t status = read_store(user, &store);
    size_t bytes;
    char *key;

    if (status != TUTTI_OK)
        return status;
    bytes = strlen(store.prefix) + sizeof(key_name);
    key = malloc(bytes);
    if (key == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "key of %zu bytes", bytes);
    snprintf(key, bytes, "%s%s", store.prefix, key_name);
    status = rank == 0 ? host(&store, key, conf, size, ret_meet)
                       : join(&store, key, conf, rank, size, ret_meet);
    free(key);
    return status;
}
