/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every algorithm is proved for every number of ranks from 1 to 256; the test programs share them.
 *
 * The table of algorithms drives it, so a new row is proved without a change here; what a row says
 * of its algorithm (`ordered`, `fixed_association`) is proved too. Each proof is of one (ranks,
 * places, sub, radix, root, in place or not, credits, trips). What is tried:
 *
 *      ranks     1 to 256
 *      places    one host, a host for each rank, two hosts, two random ones; and those in `splits`
 *      groups    inside hosts: of up to 10 local ranks, or none
 *      radixes   the algorithm's own, 2, 3, 4, 5, 8, and the number of ranks
 *      credits   1, 2, 4
 *      trips     1, 2, c, c + 1, 2c + 1
 *      roots     all up to ALL_ROOTS ranks, above that the first two, the middle and the last
 *
 * An algorithm between all ranks does not care much who sits where. Above ALL_PLACES ranks it is
 * tried on hosts of one rank if the number of ranks is even, else on a random placing; the
 * hierarchical ones on two hosts or on a random placing, those of one host on one host.
 *
 * Above 64 ranks (16 with sanitizers, and in the quick form, which takes each 17th number of ranks
 * there) each number of ranks has one root, one radix besides the algorithm's own, one credit, and
 * one trip in place, two trips out of place, or the other way round; these take turns. More credits
 * only take waiting away, and a third trip meets what the second did.
 * Where schedules move more than MANY_BLOCKS (cubes of the ranks, as in the alltoall's ring), one
 * trip has to do.
 */
#ifndef TESTS_UNIT_COLL_PROVINGS_H
#define TESTS_UNIT_COLL_PROVINGS_H

#include "unit/coll/shapes.h"

#define PROVINGS_MOST 256

/* To be called first. How many ranks are few: all is tried with them. */
uint32_t provings_begin(void);
/* Are all numbers of ranks proved, or in the quick form some? */
int provings_whole(void);

/* Both fail the cmocka test that runs where something is not proved. */
void provings_sizes(uint32_t from, uint32_t upto);
/* Of one shape, which is freed. is_main: the one to be taken where one random shape has to do. */
void provings_shape(shape_t *shape, int is_main);
/* One line of what was done. */
void provings_report(void);

#endif
