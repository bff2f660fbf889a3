/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A store for ranks of one test, which are threads or forked processes: a table in memory that they
 * share. The table has no lock, so a rank that dies leaves nothing locked.
 */
#ifndef TUTTI_TESTS_STORE_H
#define TUTTI_TESTS_STORE_H

#include <tutti/tutti.h>

/* Make the table, or empty an existing table; called before the ranks start. */
void store_open(void);

/* A store with this prefix, which must stay valid as long as the store is used. */
tutti_store_t store_with(const char *prefix);

/* The functions of a store in this table. */
int store_set(void *context, const char *key, const void *value, size_t bytes);
int store_get(void *context, const char *key, void *value, size_t room, size_t *ret_bytes,
              int timeout_ms);

/* The number of values that were set. */
int store_count(void);

/* Options with which rank `rank` of `nranks` meets the others by `store`. */
tutti_options_t store_options(const tutti_store_t *store, int rank, int nranks);

#endif
