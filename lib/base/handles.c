/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See handles.h. The free slots are a lock-free stack. Its head holds the first slot's index, and
 * the count of all slots taken so far. While a thread reads the successor of the first slot, others
 * may take this slot and return it. In this case the count has changed, and the thread tries again.
 */
#include "base/handles.h"

#include "base/status.h"

#include <stdlib.h>

#define KIND_SHIFT TUTTI__HANDLES_KIND_SHIFT
#define SLOTS (TUTTI__HANDLES_CHUNK * TUTTI__HANDLES_CHUNKS) /* slot 0 is never taken */

_Static_assert((uint64_t)SLOTS << TUTTI__HANDLES_SHIFT <= TUTTI__HANDLES_GENERATION,
               "an index has 28 bits");

static inline uint32_t index_of(uint64_t handle)
{
    return (uint32_t)handle >> TUTTI__HANDLES_SHIFT;
}

/* Returns NULL if the index is too large, or if the slot's chunk does not exist yet. */
static inline const tutti__slot_t *slot_of(const tutti__handles_t *table, uint32_t index)
{
    const tutti__slot_t *chunk = table->first;

    /* Acquire: pairs with the exchange in have_chunk. */
    if (TUTTI__UNLIKELY(index >= SLOTS))
        return NULL;
    if (TUTTI__UNLIKELY(index >= TUTTI__HANDLES_CHUNK))
        chunk =
            atomic_load_explicit(&table->more[index / TUTTI__HANDLES_CHUNK], memory_order_acquire);
    return chunk == NULL ? NULL : &chunk[index % TUTTI__HANDLES_CHUNK];
}

/* The slot of an index; the slot's chunk exists. */
static inline tutti__slot_t *slot_at(tutti__handles_t *table, uint32_t index)
{
    return (tutti__slot_t *)(uintptr_t)slot_of(table, index);
}

tutti__slot_t *tutti__handle_slot_more(tutti__handles_t *table, uint32_t index)
{
    return slot_at(table, index);
}

const tutti__slot_t *tutti__handle_find_more(const tutti__handles_t *table, const void *handle)
{
    uint64_t value = (uintptr_t)handle;
    const tutti__slot_t *slot = slot_of(table, index_of(value));

    if (slot == NULL || atomic_load_explicit(&slot->handle, memory_order_acquire) != value)
        return NULL;
    return slot;
}

/* ---- taking a slot: returns its index, or 0 ---- */

static uint32_t take_free(tutti__handles_t *table)
{
    /* Acquire: pairs with the release in tutti__handle_end. */
    uint64_t head = atomic_load_explicit(&table->free, memory_order_acquire);

    while ((uint32_t)head != 0 &&
           !tutti__handle_take(table, slot_at(table, (uint32_t)head), &head)) {
    }
    return (uint32_t)head;
}

/* Allocate a chunk if it does not exist. Returns 0 if there is no memory. */
static int have_chunk(tutti__handles_t *table, uint32_t chunk)
{
    tutti__slot_t *slots, *none = NULL;

    if (chunk == 0 || atomic_load(&table->more[chunk]) != NULL)
        return 1;
    slots = calloc(TUTTI__HANDLES_CHUNK, sizeof(*slots));
    if (slots == NULL)
        return 0;
    /* Another thread may have added the chunk first. Release: pairs with the acquire in slot_of. */
    if (!atomic_compare_exchange_strong(&table->more[chunk], &none, slots))
        free(slots);
    return 1;
}

/* Take a slot that was never taken before. Returns 0 if there is no such slot, or no memory. */
static uint32_t take_new(tutti__handles_t *table)
{
    uint32_t used = atomic_load(&table->used);

    do {
        if (used + 1 >= SLOTS || !have_chunk(table, (used + 1) / TUTTI__HANDLES_CHUNK))
            return 0;
    } while (!atomic_compare_exchange_weak(&table->used, &used, used + 1));
    return used + 1;
}

/* ---- handles ---- */

tutti_status_t tutti__handle_make_more(tutti__handles_t *table, void *object, void **ret_handle)
{
    uint32_t index = take_free(table);
    tutti__slot_t *slot;
    uint64_t handle;

    if (index != 0) {
        slot = slot_at(table, index);
        handle = ~atomic_load_explicit(&slot->handle, memory_order_relaxed);
    } else {
        index = take_new(table);
        if (index == 0)
            return tutti__fail(TUTTI_ERR_NO_MEMORY, "a handle for one more %s", table->what);
        slot = slot_at(table, index);
        handle = (uint64_t)table->kind << KIND_SHIFT | (uint64_t)index << TUTTI__HANDLES_SHIFT;
    }
    atomic_store_explicit(&slot->object, (uintptr_t)object, memory_order_relaxed);
    /* Release: pairs with the acquire in tutti__handle_find. */
    atomic_store_explicit(&slot->handle, handle, memory_order_release);
    *ret_handle = (void *)(uintptr_t)handle;
    return TUTTI_OK;
}

void tutti__handle_end(tutti__handles_t *table, const void *handle)
{
    uint64_t value = (uintptr_t)handle, head;
    uint32_t index = index_of(value);
    tutti__slot_t *slot;

    if (handle == NULL)
        return;
    tutti__handle_retire(table, handle);
    slot = slot_at(table, index);
    head = atomic_load_explicit(&table->free, memory_order_relaxed);
    do {
        atomic_store_explicit(&slot->object, (uint32_t)head, memory_order_relaxed);
        /* Release: pairs with the acquires in take_free and tutti__handle_make. */
    } while (!atomic_compare_exchange_weak_explicit(&table->free, &head,
                                                    (head & ~(uint64_t)UINT32_MAX) | index,
                                                    memory_order_release, memory_order_relaxed));
}

/* ---- error texts ---- */

/* Returns 1 if this value was ever a valid handle of the table. Generations of a slot ascend, so
   the value is compared with the slot's handle or, if the slot is free, with its next handle. If
   the generation has wrapped around, the answer may be wrong; only the error text depends on it. */
static int was_given(const tutti__handles_t *table, uint64_t value)
{
    uint32_t index = index_of(value);
    uint64_t now;

    if (value >> KIND_SHIFT != (uint64_t)table->kind ||
        (uint32_t)value != index << TUTTI__HANDLES_SHIFT || index == 0 ||
        index > atomic_load(&table->used))
        return 0;
    now = atomic_load(&slot_of(table, index)->handle);
    return now >> KIND_SHIFT == (uint64_t)table->kind ? value <= now : value < ~now;
}

tutti_status_t tutti__handle_wrong(const tutti__handles_t *table, const void *handle,
                                   const char *name)
{
    uint64_t value = (uintptr_t)handle, kind = value >> KIND_SHIFT;

    if (was_given(table, value))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%s is a %s that %s", name, table->what,
                           table->ended);
    if (kind != (uint64_t)table->kind &&
        (kind == TUTTI__HANDLE_COMM || kind == TUTTI__HANDLE_REQUEST))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%s is a %s, not a %s", name,
                           kind == TUTTI__HANDLE_COMM ? "communicator" : "request", table->what);
    return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%s, %p, is no %s of Tutti", name, handle,
                       table->what);
}
