/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every algorithm is proved for every number of ranks from 1 to 256; several test programs
 * share the work.
 *
 * The proofs follow the table of algorithms, so a new row is proved without a change here. The
 * properties in a row (`ordered`, `fixed_association`) are proved as well. Each proof is for one
 * (ranks, places, sub, radix, root, in place or not, credits, trips). The cases:
 *
 *      ranks     1 to 256
 *      places    one host, a host for each rank, two hosts, two random ones, and those in `splits`
 *      groups    inside hosts: of up to 10 local ranks, or none
 *      radixes   the algorithm's own, 2, 3, 4, 5, 8, and the number of ranks
 *      credits   none, 1, 2, 4
 *      trips     1, 2, c, c + 1, 2c + 1; without credits 1, 3
 *      roots     all up to ALL_ROOTS ranks, above that the first two, the middle and the last
 *
 * For an algorithm between all ranks the placement matters little. Above ALL_PLACES ranks, such an
 * algorithm is tried on hosts of one rank if the number of ranks is even, otherwise on a random
 * placement. Hierarchical algorithms are tried on two hosts or on a random placement, algorithms
 * for one host on one host.
 *
 * Above 64 ranks, each number of ranks has one root, at most two radixes besides the algorithm's
 * own, and credits 1 and none. With sanitizers and in the quick form the limit is 16 ranks instead
 * of 64, and above it only each 17th number of ranks is proved. In the quick form, above 64 ranks,
 * credits are 1. Above the limit, numbers of ranks alternate between one trip in place with two
 * trips out of place, and the reverse. More credits only remove waits, and a third trip meets the
 * same conditions as the second. If schedules move more than MANY_BLOCKS (cubes of the ranks, as in
 * the alltoall's ring), only one trip is tried.
 */
#ifndef TESTS_UNIT_COLL_PROVINGS_H
#define TESTS_UNIT_COLL_PROVINGS_H

#include "unit/coll/shapes.h"

#define PROVINGS_MOST 256

/* Call this function before the others. Returns the number of ranks up to which all cases are
   tried. */
uint32_t provings_begin(void);
/* Are all numbers of ranks proved (1), or some of them, in the quick form (0)? */
int provings_whole(void);
/* 1 in the quick form. With sanitizers, neither form proves all numbers of ranks. */
int provings_quick(void);

/* If something cannot be proved, provings_sizes and provings_shape fail the running cmocka test. */
void provings_sizes(uint32_t from, uint32_t upto);
/* Prove all algorithms for one shape, and free the shape. is_main: if only one random shape is
   tried, it is this shape. */
void provings_shape(shape_t *shape, int is_main);
/* Print one line with the counts. */
void provings_report(void);

#endif
