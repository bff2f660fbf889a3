/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A second check of schedules: execute them with numbers, and compare the result.
 *
 * The interpreter shares only the language of schedules with the checker. In the interpreter,
 * blocks have lengths and elements, unwritten memory has garbage, and streams continue in
 * adversarial orders. The checker proves for all orders; the interpreter tries a few. So the
 * interpreter can prove that a schedule is wrong, but cannot prove that a schedule is correct.
 */
#ifndef TESTS_UNIT_COLL_INTERPRET_H
#define TESTS_UNIT_COLL_INTERPRET_H

#include "unit/coll/shapes.h"

/* The number of orders; a barrier has one more for each rank, in which that rank comes last. */
#define INTERPRET_ORDERS 3

/*
 * Does this call end with the right result, without changes to other parts of IN and OUT, and with
 * no message left? NULL if so; otherwise the error, static. Schedules may be broken in any way,
 * except nonexistent loops and channel numbers.
 *
 * credits  slots of a channel; 0: a SEND is complete when its receiver is at its operation
 * ordered  operands matter: the operation does not commute
 */
const char *interpret(const set_t *set, int ordered, uint32_t credits, uint32_t trips,
                      uint32_t order);

/* Call interpret for these credits and trips, in all orders. `ordered` is set if the algorithm
   claims to keep the order of operands. */
const char *interpret_all(const set_t *set, const uint32_t (*runs)[2], size_t nruns);

#endif
