/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators from tutti_comm_connect: their end, and the unique ids that they need. */
#ifndef TUTTI__API_CONNECTED_H
#define TUTTI__API_CONNECTED_H

#include "api/comm_state.h"

/* tutti_comm_free of such a communicator. Its groups are freed with it. */
void tutti__connect_free(tutti__comm_t *comm);

/* tutti_finalize: end the unique ids of this process. If the process has such communicators, or is
   making one, the ids end when the last of these communicators is freed. */
void tutti__connect_end_ids(void);
/* For tutti_init and tutti_unique_id_create: the ids stay valid at least until the next
   tutti_finalize, even if the last of these communicators is freed before. */
void tutti__connect_keep_ids(void);

#endif
