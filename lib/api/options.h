/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of tutti_init and tutti_comm_connect: reading and checking. */
#ifndef TUTTI__API_OPTIONS_H
#define TUTTI__API_OPTIONS_H

#include "conf/conf.h"

/* Copy the caller's structure, which may be of any version. If `user` is NULL, return the
   defaults. */
tutti_status_t tutti__options_read(const tutti_options_t *user, tutti_options_t *ret_options);

/* Are unique_id, store, mpi_comm, rank and nranks consistent? */
tutti_status_t tutti__options_check_ranks(const tutti_options_t *options);

/* Is there a unique id or a store? */
static inline int tutti__options_have_place(const tutti_options_t *options)
{
    return options->unique_id != NULL || options->store != NULL;
}

/* Apply the options that replace settings of the environment. */
void tutti__options_apply(const tutti_options_t *options, tutti__conf_t *conf);

#endif
