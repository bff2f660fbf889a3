/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Texts of settings to values. Pure; no locale: "0.5" is a half everywhere.
 *
 * All answer 1 if the whole text makes sense and is in range, else 0 and leave the result alone.
 */
#ifndef TUTTI__CONF_PARSE_H
#define TUTTI__CONF_PARSE_H

#include <stddef.h>
#include <stdint.h>

/* Digits only. */
int tutti__parse_count(const char *text, uint64_t *ret_count);

/* Digits and at most one of K, M, G, T (1024 each), also as KiB or kb, and so on. */
int tutti__parse_bytes(const char *text, uint64_t *ret_bytes);

/* Seconds with up to any number of decimals, to milliseconds, rounded up; at least one, or 0. */
int tutti__parse_seconds(const char *text, uint64_t *ret_ms);

/* 1, true, yes, on; 0, false, no, off; in any case. */
int tutti__parse_boolean(const char *text, int *ret_on);

/* Which of "one|two|three" it is, in any case; counts from 0. */
int tutti__parse_choice(const char *text, const char *choices, uint64_t *ret_index);

/* Letters to change, add or leave out to make one of the other, up to texts of 63 letters; longer
   ones are far apart. */
size_t tutti__parse_distance(const char *a, const char *b);

#endif
