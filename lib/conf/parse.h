/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Conversion of settings' texts to values. Pure, and independent of the locale: "0.5" is a half.
 *
 * All functions except tutti__parse_distance return 1 if the whole text is valid and in range.
 * Otherwise they return 0, and the result is unchanged.
 */
#ifndef TUTTI__CONF_PARSE_H
#define TUTTI__CONF_PARSE_H

#include <stddef.h>
#include <stdint.h>

/* Digits only. */
int tutti__parse_count(const char *text, uint64_t *ret_count);

/* Digits and at most one unit: K, M, G or T (powers of 1024), also written as KiB or kb, and so
   on. */
int tutti__parse_bytes(const char *text, uint64_t *ret_bytes);

/* Seconds, with any number of decimals, and with or without an `s` at the end. The result is in
   milliseconds, rounded up. A time between 0 and 0.001 s is not valid. */
int tutti__parse_seconds(const char *text, uint64_t *ret_ms);

/* 1, true, yes, on; 0, false, no, off; upper and lower case are equal. */
int tutti__parse_boolean(const char *text, int *ret_on);

/* The index, from 0, of the text in a list such as "one|two|three". Upper and lower case are
   equal. */
int tutti__parse_choice(const char *text, const char *choices, uint64_t *ret_index);

/* The first host of Slurm's list of nodes: "rack1n03" of "rack1n[03-06,9],rack2n1". Host names have
   letters, digits, '.', '-' and '_'. */
int tutti__parse_first_host(const char *list, char *ret_host, size_t capacity);

/* Levenshtein distance: the number of letters to change, insert or delete. If a text has more than
   63 letters: the length of the longer text. */
size_t tutti__parse_distance(const char *a, const char *b);

#endif
