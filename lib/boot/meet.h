/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Meetings at a place: the address at which rank 0 listens, and the token that admits a rank.
 *
 * Rank 0 opens a place. The other ranks receive the place over an existing communicator (groups),
 * through the caller's store, or from the process that made a unique id. All these meetings are
 * stars (star.h), over TCP, or over a Unix socket if all ranks are on one machine.
 *
 * If ranks meet by the variables of env:// or of a launcher, they take the address from these
 * variables, and prove that they belong to the same job: meet_job.c. If the launcher has a process
 * manager (PMIx or PMI-2), rank 0 sends the place through it: meet_pm.c.
 *
 *      groups ---------------+
 *      store: set, get ------+
 *      PMIx, PMI-2 ----------+--> place --> rank 0 hosts, the others join
 *      unique id: its maker -+
 *
 * Runs on the calling thread, except the servers of unique ids (id_server.c).
 */
#ifndef TUTTI__BOOT_MEET_H
#define TUTTI__BOOT_MEET_H

#include "boot/boot.h"
#include "boot/gate.h"

/* Plain data, sent between ranks as bytes. */
typedef struct {
    uint32_t layout; /* TUTTI__BOOT_LAYOUT; 0: no place */
    uint32_t over_tcp;
    unsigned char name[16];   /* the Unix socket's name */
    tutti__net_addrs_t addrs; /* the TCP addresses */
    tutti__gate_token_t token;
} tutti__venue_t;

/* Begin to listen. on_machine 1: all ranks are on this machine. ret_door: the listening socket. */
tutti_status_t tutti__venue_open(const char *interface, int on_machine, tutti__venue_t *ret_place,
                                 int *ret_door);

/* Rank 0: wait until all ranks have connected. Closes `door`, even on an error. deadline: the
   deadline of the whole set-up. */
tutti_status_t tutti__venue_host(const tutti__venue_t *place, int door, uint32_t size,
                                 uint64_t deadline, tutti__meet_t *ret_meet);
/* Other ranks: connect to rank 0 and wait until all ranks have connected. */
tutti_status_t tutti__venue_join(const tutti__venue_t *place, uint32_t rank, uint32_t size,
                                 uint64_t deadline, tutti__meet_t *ret_meet);

/*
 * A unique id as bytes:
 *
 *     magic 4 | layout 2 | IPv4 addresses 1 | IPv6 addresses 1 | port 2 | token 32 | addresses ...
 *     ... zeros | checksum 4
 *
 * in network byte order. The id has as many addresses as fit into 80 bytes, IPv4 addresses first.
 */
typedef struct {
    tutti__net_addrs_t addrs;
    tutti__gate_token_t token;
} tutti__id_t;

void tutti__id_encode(const tutti__id_t *id, tutti_unique_id_t *ret_id);
/* TUTTI_ERR_INVALID_ARGUMENT: the bytes are damaged, or are no id. TUTTI_ERR_ABI: another version
   has made the id. */
tutti_status_t tutti__id_decode(const tutti_unique_id_t *bytes, tutti__id_t *ret_id);

/* Make an id, and serve its meeting from a thread of this process until tutti__id_end_all. */
tutti_status_t tutti__id_create(const tutti__conf_t *conf, tutti_unique_id_t *ret_id);
/* End the threads that serve ids. After this call no rank can meet by an id of this process. Only
   one thread at a time may call this function. */
void tutti__id_end_all(void);

/* Meet by an id, or by a store. The functions check the content of the id and of the store. */
tutti_status_t tutti__meet_id(const tutti_unique_id_t *bytes, const tutti__conf_t *conf,
                              uint32_t rank, uint32_t size, tutti__meet_t *ret_meet);
tutti_status_t tutti__meet_store(const tutti_store_t *store, const tutti__conf_t *conf,
                                 uint32_t rank, uint32_t size, tutti__meet_t *ret_meet);
/* Check that the caller's structure is complete. */
tutti_status_t tutti__store_check(const tutti_store_t *store);
/* Meet by the variables of env:// or of a launcher. job->missing must be "". */
tutti_status_t tutti__meet_job(const tutti__conf_t *conf, const tutti__conf_job_t *job,
                               tutti__meet_t *ret_meet);
/* Meet through the launcher's process manager. kind: not TUTTI__CONF_NO_PM. job: NULL, or a job
   whose size must equal the process manager's size. TUTTI_ERR_UNSUPPORTED: the process manager
   cannot be used, and no other rank waits for this rank. */
tutti_status_t tutti__meet_pm(const tutti__conf_t *conf, tutti__conf_pm_t kind,
                              const tutti__conf_job_t *job, tutti__meet_t *ret_meet);

#endif
