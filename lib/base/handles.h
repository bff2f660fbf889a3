/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handles: checked numbers that a program gets instead of pointers to the library's objects.
 *
 * A handle is a number in the form of a pointer: a kind, a generation and an index. The index
 * selects a slot of the kind's table, and the slot holds its only valid handle. So a look-up checks
 * a handle without reading the object, which may have been freed. A freed communicator, a request
 * after its wait, or any other pointer is an error and not a crash.
 *
 *      63     56 55          32 31                    0
 *      |  kind  |  generation  |       index + 1       |     no pointer of a program has such bits
 *
 * A slot gets a new generation each time it is taken, so an ended handle becomes valid again only
 * after 2^24 objects in its slot. Slots are never freed or moved: the first slots are part of the
 * table, the others come in chunks. So any thread looks up a handle without a lock.
 *
 * A look-up is safe while other handles end. If a program ends a handle while another thread is
 * inside a call on the same handle, the program is wrong, and this is not detected.
 */
#ifndef TUTTI__BASE_HANDLES_H
#define TUTTI__BASE_HANDLES_H

#include "base/compiler.h"

#include <tutti/tutti.h>

#include <stdatomic.h>

/* Slots in the table itself, and in each chunk. */
#define TUTTI__HANDLES_CHUNK 4096u
#define TUTTI__HANDLES_CHUNKS 4096u
/* Added to `free` for each slot that is taken. */
#define TUTTI__HANDLES_TAKEN ((uint64_t)1 << 32)

_Static_assert(sizeof(void *) == 8, "a handle has 64 bits");

typedef enum {
    TUTTI__HANDLE_COMM = 0xc1,
    TUTTI__HANDLE_REQUEST = 0xc2
} tutti__handle_kind_t;

typedef struct {
    /* The valid handle. In a free slot: the complement of the slot's next handle. The complement
       has the index of another slot, so no handle of this slot equals it. In an unused slot: 0. */
    _Atomic uint64_t handle;
    _Atomic uintptr_t object; /* of a free slot: the next free one, as its index + 1; 0: none */
} tutti__slot_t;

/* Static; all other fields begin as 0. */
typedef struct {
    tutti__slot_t first[TUTTI__HANDLES_CHUNK];
    tutti__handle_kind_t kind;
    const char *what;      /* "communicator" */
    const char *ended;     /* "was freed": the end of a handle, for error texts */
    _Atomic uint64_t free; /* low half: index + 1 of the first free slot; high half: slots taken */
    _Atomic uint32_t used; /* slots that were ever taken */
    _Atomic(tutti__slot_t *) more[TUTTI__HANDLES_CHUNKS]; /* from 1 on */
} tutti__handles_t;

/* Make a handle invalid. NULL does nothing. Any thread. */
void tutti__handle_end(tutti__handles_t *table, const void *handle);

/* Report why a handle was not found, and return INVALID_ARGUMENT. name: of the argument. */
tutti_status_t tutti__handle_wrong(const tutti__handles_t *table, const void *handle,
                                   const char *name);

/* The slow paths: tutti__handle_find beyond the first chunk; tutti__handle_make if the first chunk
   has no free slot. */
int tutti__handle_find_more(const tutti__handles_t *table, const void *handle, void **ret_object);
tutti_status_t tutti__handle_make_more(tutti__handles_t *table, void *object, void **ret_handle);

/* 1: the handle is valid, and *ret_object is its object; 0: invalid. Any thread. */
static inline int tutti__handle_find(const tutti__handles_t *table, const void *handle,
                                     void **ret_object)
{
    uint64_t value = (uintptr_t)handle;
    uint32_t index = (uint32_t)value - 1;
    const tutti__slot_t *slot;

    if (TUTTI__UNLIKELY(index >= TUTTI__HANDLES_CHUNK))
        return tutti__handle_find_more(table, handle, ret_object);
    slot = &table->first[index];
    /* Acquire: pairs with the release in tutti__handle_make. */
    if (TUTTI__UNLIKELY(atomic_load_explicit(&slot->handle, memory_order_acquire) != value))
        return 0;
    *ret_object = (void *)atomic_load_explicit(&slot->object, memory_order_relaxed);
    return 1;
}

/* Take this slot if it is still the first free slot; otherwise *head becomes the current head. If
   another thread takes the slot at the same time, the successor read here may be an object; but
   then the count has changed, and the exchange fails. */
static inline int tutti__handle_take(tutti__handles_t *table, const tutti__slot_t *slot,
                                     uint64_t *head)
{
    uint64_t next = (uint32_t)atomic_load_explicit(&slot->object, memory_order_relaxed);

    next |= (*head + TUTTI__HANDLES_TAKEN) & ~(uint64_t)UINT32_MAX;
    return atomic_compare_exchange_weak_explicit(&table->free, head, next, memory_order_acquire,
                                                 memory_order_acquire);
}

/* Make a handle for an object. NO_MEMORY: no slot is left, or no memory. Any thread. */
static inline tutti_status_t tutti__handle_make(tutti__handles_t *table, void *object,
                                                void **ret_handle)
{
    /* Acquire: pairs with the release in tutti__handle_end. */
    uint64_t head = atomic_load_explicit(&table->free, memory_order_acquire), handle;
    uint32_t index = (uint32_t)head - 1;
    tutti__slot_t *slot;

    if (TUTTI__UNLIKELY(index >= TUTTI__HANDLES_CHUNK))
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

#endif
