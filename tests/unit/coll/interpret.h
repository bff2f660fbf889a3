/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A second opinion on schedules: run them with numbers, and look at the result.
 *
 * It shares nothing with the checker but the language: blocks have lengths and elements, memory
 * that nobody wrote holds rubbish, and streams go on in an order that is as bad as can be thought
 * of. Where the checker proves for all orders, this one tries a few; so it can say that a schedule
 * is wrong, never that it is right.
 */
#ifndef TESTS_UNIT_COLL_INTERPRET_H
#define TESTS_UNIT_COLL_INTERPRET_H

#include "unit/coll/shapes.h"

/* Orders to be tried; a barrier has one more for each rank, in which that rank comes last. */
#define INTERPRET_ORDERS 3

/*
 * Does this call end with the right result, whatever of IN and OUT is not its own untouched, and no
 * message left over? NULL for yes, or what is wrong; static. Schedules may be broken in any way,
 * but for loops and channel numbers that do not exist.
 *
 * ordered  operands matter: the operation does not commute
 */
const char *interpret(const set_t *set, int ordered, uint32_t credits, uint32_t trips,
                      uint32_t order);

/* The same for some credits and trips, in all orders; ordered if the algorithm says that it is. */
const char *interpret_all(const set_t *set, const uint32_t (*runs)[2], size_t nruns);

#endif
