/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * User-defined operations: a table of the operations that tutti_op_create has made.
 *
 * A slot's state changes FREE -> BUSY -> READY when an operation is made, and back to FREE when the
 * operation is dropped. The thread that sets BUSY owns the slot until READY. A look-up, which every
 * reducing call does, only reads the state, so it takes no lock. The lowest free number is given
 * first, so ranks that make the same operations in the same order get the same numbers.
 */
#include "reduce/reduce.h"

#include "base/names.h"
#include "reduce/fold_pairs.h"

#include <stdatomic.h>

enum {
    FREE,
    BUSY,
    READY
};

struct tutti__user_op {
    _Atomic int state;
    int commutes;
    tutti_op_function_t function;
    void *context;
};

static tutti__user_op_t ops[TUTTI__USER_OPS];

static tutti__user_op_t *slot_of(tutti_op_t op)
{
    unsigned index = (unsigned)op - TUTTI__USER_OP_FIRST;

    return index < TUTTI__USER_OPS ? &ops[index] : NULL;
}

tutti_op_t tutti__user_op_make(tutti_op_function_t function, void *context, int commutative)
{
    for (unsigned i = 0; i < TUTTI__USER_OPS; i++) {
        int expected = FREE;

        if (!atomic_compare_exchange_strong(&ops[i].state, &expected, BUSY))
            continue;
        ops[i].commutes = commutative != 0;
        ops[i].function = function;
        ops[i].context = context;
        /* Release: pairs with the acquire in tutti__user_op_find. */
        atomic_store_explicit(&ops[i].state, READY, memory_order_release);
        return (tutti_op_t)(TUTTI__USER_OP_FIRST + i);
    }
    return (tutti_op_t)0;
}

int tutti__user_op_drop(tutti_op_t op)
{
    tutti__user_op_t *slot = slot_of(op);
    int expected = READY;

    return slot != NULL && atomic_compare_exchange_strong(&slot->state, &expected, FREE);
}

const tutti__user_op_t *tutti__user_op_find(tutti_op_t op)
{
    tutti__user_op_t *slot = slot_of(op);

    if (slot == NULL || atomic_load_explicit(&slot->state, memory_order_acquire) != READY)
        return NULL;
    return slot;
}

int tutti__user_op_commutes(const tutti__user_op_t *user)
{
    return user->commutes;
}

void tutti__user_op_fold(const tutti__user_op_t *user, void *dst, const void *const *srcs,
                         size_t nsrcs, size_t count, tutti_dtype_t dtype)
{
    tutti__fold_pairs(user->function, user->context, dst, srcs, nsrcs, count, dtype,
                      tutti_dtype_bytes(dtype));
}
