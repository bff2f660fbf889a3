/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handles: what a program holds instead of a pointer to an object of the library.
 *
 * A handle is a number in the form of a pointer: a kind, a generation and an index. The index leads
 * to a slot of the kind's table, and the slot holds the one handle that is valid there now. So a
 * handle is checked without reading the object, which may have been freed. A freed communicator, a
 * request that was waited for, or any other pointer is an error and not a crash.
 *
 *      63     56 55          32 31                    0
 *      |  kind  |  generation  |       index + 1       |     no pointer of a program has such bits
 *
 * A slot gets a new generation each time it is given out, so a handle that has ended becomes valid
 * again after 2^24 objects in the same slot. Slots are never freed or moved: the first are part of
 * the table, more come in chunks. So any thread looks a handle up without a lock.
 *
 * A look-up is safe while other handles end. A program that ends a handle while another
 * thread is inside a call on that same handle is in error, and not protected.
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
    /* The valid handle. In a free slot: the complement of the slot's next handle. It has the index
       of another slot, so it equals no handle that leads here. In a slot never used: 0. */
    _Atomic uint64_t handle;
    _Atomic uintptr_t object; /* of a free slot: the next free one, as its index + 1; 0: none */
} tutti__slot_t;

/* Static; all other fields begin as 0. */
typedef struct {
    tutti__slot_t first[TUTTI__HANDLES_CHUNK];
    tutti__handle_kind_t kind;
    const char *what;      /* "communicator" */
    const char *ended;     /* "was freed": what has happened to an ended handle */
    _Atomic uint64_t free; /* below: index + 1 of the first free slot; above: slots taken so far */
    _Atomic uint32_t used; /* slots that were ever given out */
    _Atomic(tutti__slot_t *) more[TUTTI__HANDLES_CHUNKS]; /* from 1 on */
} tutti__handles_t;

/* End a handle: from here on it is not valid. NULL is fine. Any thread. */
void tutti__handle_end(tutti__handles_t *table, const void *handle);

/* Report why a handle was not found, and return INVALID_ARGUMENT. name: the argument's. */
tutti_status_t tutti__handle_wrong(const tutti__handles_t *table, const void *handle,
                                   const char *name);

/* tutti__handle_find beyond the first chunk; tutti__handle_make if that has no free slot. */
int tutti__handle_find_more(const tutti__handles_t *table, const void *handle, void **ret_object);
tutti_status_t tutti__handle_make_more(tutti__handles_t *table, void *object, void **ret_handle);

/* 1: the handle is valid, and this is its object. Any thread. */
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

/* Take this slot, if it is still the first free one; else *head becomes the present state. If
   another thread has taken the slot meanwhile, the successor read here may be an object; the count
   has then changed, and the exchange fails. */
static inline int tutti__handle_take(tutti__handles_t *table, const tutti__slot_t *slot,
                                     uint64_t *head)
{
    uint64_t next = (uint32_t)atomic_load_explicit(&slot->object, memory_order_relaxed);

    next |= (*head + TUTTI__HANDLES_TAKEN) & ~(uint64_t)UINT32_MAX;
    return atomic_compare_exchange_weak_explicit(&table->free, head, next, memory_order_acquire,
                                                 memory_order_acquire);
}

/* Make a handle of an object. NO_MEMORY: no room for so many. Any thread. */
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
