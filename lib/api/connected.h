/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators from tutti_comm_connect: their end, and the unique ids that they need. */
#ifndef TUTTI__API_CONNECTED_H
#define TUTTI__API_CONNECTED_H

#include "api/comm_state.h"

/* For tutti_comm_free: free a communicator from tutti_comm_connect, and its groups. */
void tutti__connect_free(tutti__comm_t *comm);

/* For tutti_finalize: end the unique ids of this process. If connected communicators exist or are
   being made, the ids end when the last of these communicators is freed. */
void tutti__connect_end_ids(void);
/* For tutti_init and tutti_unique_id_create: the ids stay valid at least until the next
   tutti_finalize, even if the last of these communicators is freed before. */
void tutti__connect_keep_ids(void);

#endif
