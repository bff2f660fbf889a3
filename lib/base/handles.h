/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handles: checked numbers that a program gets instead of pointers to the library's objects.
 *
 * A handle is a number in the form of a pointer: a kind, a generation and an index. The index
 * selects a slot of the kind's table. The slot holds the slot's only valid handle. So a look-up
 * checks a handle without reading the object, which may have been freed. A freed communicator, a
 * request after its wait, or any other pointer causes an error instead of a crash.
 *
 *      63     56 55          32 31            4 3  0
 *      |  kind  |  generation  |     index     |  0  |     no pointer of a program has such bits
 *
 * The low 16 bits are the offset of the slot in its chunk, in bytes. So a look-up in the first
 * chunk takes 8 instructions on x86-64. No handle has index 0, so NULL is not a handle.
 *
 * Each new handle of a slot has a new generation, so an ended handle becomes valid again only after
 * 2^24 objects in its slot. Slots are never freed or moved: the first slots are part of the table,
 * the other slots are allocated in chunks. So any thread looks up a handle without a lock.
 *
 * If the memory of an object is reused for the next object, the slot may stay with this memory:
 * tutti__handle_retire makes the handle invalid, and tutti__handle_renew makes the slot's next
 * handle. Neither function needs a locked instruction.
 *
 * A look-up is safe while other handles end. If a program ends a handle while another thread is
 * inside a call on the same handle, the program is wrong, and this is not detected.
 */
#ifndef TUTTI__BASE_HANDLES_H
#define TUTTI__BASE_HANDLES_H

#include "base/compiler.h"

#include <tutti/tutti.h>

#include <stdatomic.h>

/* The slots of a chunk, and the largest number of chunks. The first chunk is part of the table. */
#define TUTTI__HANDLES_CHUNK 4096u
#define TUTTI__HANDLES_CHUNKS 4096u
#define TUTTI__HANDLES_SHIFT 4                        /* the index's lowest bit in a handle */
#define TUTTI__HANDLES_GENERATION ((uint64_t)1 << 32) /* the generation's lowest bit in a handle */
#define TUTTI__HANDLES_KIND_SHIFT 56                  /* the kind's lowest bit in a handle */
/* Added to `free` each time a slot is taken. */
#define TUTTI__HANDLES_TAKEN ((uint64_t)1 << 32)

_Static_assert(sizeof(void *) == 8, "a handle has 64 bits");

typedef enum {
    TUTTI__HANDLE_COMM = 0xc1,
    TUTTI__HANDLE_REQUEST = 0xc2
} tutti__handle_kind_t;

typedef struct {
    /* The valid handle. If the slot is free, or its handle is retired: the complement of the slot's
       next handle. The index bits of the complement belong to another slot, so the complement
       equals no handle of this slot. If the slot was never taken: 0. */
    _Atomic uint64_t handle;
    _Atomic uintptr_t object; /* in a free slot: the next free slot's index; 0: none */
} tutti__slot_t;

_Static_assert(sizeof(tutti__slot_t) == 1 << TUTTI__HANDLES_SHIFT, "an offset is no index");

/* A static variable, initialised with TUTTI__HANDLES_INIT. */
typedef struct {
    tutti__slot_t first[TUTTI__HANDLES_CHUNK];
    tutti__handle_kind_t kind;
    const char *what;  /* "communicator" */
    const char *ended; /* "was freed": the end of a handle, for error texts */
    _Atomic uint64_t
        free; /* low half: first free slot's index, or 0; high half: count of slots taken */
    _Atomic uint32_t used; /* slots that were ever taken: 1 to `used` */
    _Atomic(tutti__slot_t *) more[TUTTI__HANDLES_CHUNKS]; /* chunks from 1 on */
} tutti__handles_t;

/* Slot 0 is never taken. The slot holds a value of index 1, so a look-up of NULL finds no slot. */
#define TUTTI__HANDLES_INIT(kind_, what_, ended_)                                                  \
    {                                                                                              \
        .first = { { .handle = 1 << TUTTI__HANDLES_SHIFT } }, .kind = (kind_), .what = (what_),    \
        .ended = (ended_)                                                                          \
    }

/* Make a handle invalid, and free its slot. NULL does nothing. The handle may already be
   retired. Any thread. */
void tutti__handle_end(tutti__handles_t *table, const void *handle);

/* Report why a handle was not found, and return INVALID_ARGUMENT. name: the argument's name. */
tutti_status_t tutti__handle_wrong(const tutti__handles_t *table, const void *handle,
                                   const char *name);

/* Slow paths. The first two functions are for slots beyond the first chunk. The third function is
   used if the first free slot is not in the first chunk, or if another thread takes this slot. */
const tutti__slot_t *tutti__handle_find_more(const tutti__handles_t *table, const void *handle);
tutti__slot_t *tutti__handle_slot_more(tutti__handles_t *table, uint32_t index);
tutti_status_t tutti__handle_make_more(tutti__handles_t *table, void *object, void **ret_handle);

/* Returns the slot of a valid handle, or NULL if the handle is invalid. Any thread. */
static inline const tutti__slot_t *tutti__handle_find(const tutti__handles_t *table,
                                                      const void *handle)
{
    uint64_t value = (uintptr_t)handle;
    const tutti__slot_t *slot =
        &table->first[(value >> TUTTI__HANDLES_SHIFT) % TUTTI__HANDLES_CHUNK];

    /* Acquire: pairs with the releases in tutti__handle_make and tutti__handle_renew. */
    if (TUTTI__LIKELY(atomic_load_explicit(&slot->handle, memory_order_acquire) == value))
        return slot;
    return tutti__handle_find_more(table, handle);
}

/* The object in the slot of a valid handle. */
static inline void *tutti__handle_object(const tutti__slot_t *slot)
{
    return (void *)atomic_load_explicit(&slot->object, memory_order_relaxed);
}

/* Take this slot if it is still the first free slot; otherwise set *head to the current head. If
   another thread takes the slot meanwhile, slot->object may be a pointer to that thread's object
   instead of an index. In this case the count in the head has also changed: the exchange fails. */
static inline int tutti__handle_take(tutti__handles_t *table, const tutti__slot_t *slot,
                                     uint64_t *head)
{
    uint64_t next = (uint32_t)atomic_load_explicit(&slot->object, memory_order_relaxed);

    next |= (*head + TUTTI__HANDLES_TAKEN) & ~(uint64_t)UINT32_MAX;
    return atomic_compare_exchange_weak_explicit(&table->free, head, next, memory_order_acquire,
                                                 memory_order_acquire);
}

/* Make a handle for an object. TUTTI_ERR_NO_MEMORY: no slot is free, or no memory. Any thread. */
static inline tutti_status_t tutti__handle_make(tutti__handles_t *table, void *object,
                                                void **ret_handle)
{
    /* Acquire: pairs with the release in tutti__handle_end. */
    uint64_t head = atomic_load_explicit(&table->free, memory_order_acquire), handle;
    uint32_t index = (uint32_t)head;
    tutti__slot_t *slot;

    if (TUTTI__UNLIKELY(index - 1 >= TUTTI__HANDLES_CHUNK - 1))
        return tutti__handle_make_more(table, object, ret_handle);
    slot = &table->first[index];
    if (TUTTI__UNLIKELY(!tutti__handle_take(table, slot, &head)))
        return tutti__handle_make_more(table, object, ret_handle);
    handle = ~atomic_load_explicit(&slot->handle, memory_order_relaxed);
    atomic_store_explicit(&slot->object, (uintptr_t)object, memory_order_relaxed);
    /* Release: pairs with the acquire in tutti__handle_find. */
    atomic_store_explicit(&slot->handle, handle, memory_order_release);
    *ret_handle = (void *)(uintptr_t)handle;
    return TUTTI_OK;
}

/* ---- a slot that stays with the memory of its object ---- */

/* The slot's next handle: the generation increases by 1, and wraps around within its 24 bits. */
static inline uint64_t tutti__handle_next(uint64_t value)
{
    const uint64_t below = ((uint64_t)1 << TUTTI__HANDLES_KIND_SHIFT) - 1; /* all but the kind */

    return ((value + TUTTI__HANDLES_GENERATION) & below) | (value & ~below);
}

/* The slot of a handle, even if the handle is not valid any more. */
static inline tutti__slot_t *tutti__handle_slot(tutti__handles_t *table, uint64_t value)
{
    uint32_t index = (uint32_t)value >> TUTTI__HANDLES_SHIFT;

    return TUTTI__LIKELY(index < TUTTI__HANDLES_CHUNK) ? &table->first[index]
                                                       : tutti__handle_slot_more(table, index);
}

/* Make a handle invalid; its object keeps the slot. NULL does nothing. A handle may be retired
   again until the slot's next handle is made. Any thread. */
static inline void tutti__handle_retire(tutti__handles_t *table, const void *handle)
{
    uint64_t value = (uintptr_t)handle;

    if (handle != NULL)
        atomic_store_explicit(&tutti__handle_slot(table, value)->handle, ~tutti__handle_next(value),
                              memory_order_relaxed);
}

/* Make the next handle of a slot whose last handle, `handle`, is retired. The slot keeps its
   pointer to the object's memory. */
static inline void *tutti__handle_renew(tutti__handles_t *table, const void *handle)
{
    uint64_t value = tutti__handle_next((uintptr_t)handle);

    /* Release: pairs with the acquire in tutti__handle_find. */
    atomic_store_explicit(&tutti__handle_slot(table, value)->handle, value, memory_order_release);
    return (void *)(uintptr_t)value;
}

#endif
