/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of an open gate: gate.c (the loop), gate_guests.c (the connections) and
   gate_judge.c (the decisions). See gate.h. */
#ifndef TUTTI__BOOT_GATE_HOST_H
#define TUTTI__BOOT_GATE_HOST_H

#include "base/constants.h"
#include "boot/gate_wire.h"
#include "boot/waiting.h"
#include "boot/pass.h"

/* What a guest sends next. */
typedef enum {
    TUTTI__GATE_SENDS_HELLO, /* only at a gate with a pass (pass.h) */
    TUTTI__GATE_SENDS_KNOCK,
    TUTTI__GATE_SENDS_CONFIRM /* the guest has its answer */
} tutti__gate_stage_t;

typedef struct {
    int fd; /* -1: a free place */
    tutti__gate_stage_t stage;
    size_t have; /* bytes received of the message of this stage */
    uint32_t confirm;
    tutti__gate_token_t token; /* the tokens of this connection */
    tutti__gate_greeting_t greeting;
    tutti__gate_hello_t hello;
    tutti__gate_knock_t knock;
} tutti__gate_guest_t;

typedef struct {
    const tutti__gate_t *gate;
    int door, stop;
    uint32_t rank, size; /* as in `gate`. If `gate` has no size: 0 until the first knock, then the
                            values of this knock */
    int **ret_fds;       /* if `gate` has no size: where to store `fds` */
    uint64_t begin_ns;   /* when the wait for ranks began */
    uint64_t deadline;
    uint64_t timeout_ms;   /* for a deadline that is counted from the first guest's knock */
    tutti_status_t failed; /* TUTTI_OK, or the error for all ranks that connect, with `text` */
    char text[TUTTI__ERROR_BYTES];
    int *fds;
    uint32_t awaited;
    uint32_t trials;     /* calls of tutti__net_files_settle since the last accepted connection */
    int refuses;         /* 1: refuse all guests until `stop` is readable (tutti__gate_refuse) */
    uint32_t nstrangers; /* connections refused so far; the first is logged as a warning */
    uint32_t next;       /* the next stranger's place */
    tutti__gate_guest_t stranger[TUTTI__GATE_STRANGERS];
    tutti__gate_guest_t *guest; /* [nguests] */
    uint32_t nguests, capacity;
    /* The list for poll(): the listening socket, `stop`, strangers, guests, ranks. about[i] is the
       index of the stranger, guest or rank of polls[i]. Entries from 2 on are open descriptors,
       because poll() refuses a list that is longer than the limit of descriptors. */
    struct pollfd *polls;
    uint32_t *about;
    uint32_t npolls, polls_capacity, listed_strangers;
    uint64_t suspect_due; /* a guest has ended before it confirmed: if the guest's rank does not
                             knock again before this time, the rank counts as dead; 0: no such
                             guest */
    uint32_t suspect;     /* the rank of that guest */
    uint64_t ask_due;     /* when to call the checks of net.h next */
    tutti__waiting_t waiting;
} tutti__gate_host_t;

/* ---- gate_guests.c ---- */

/* Close a guest's connection, if it has one. */
void tutti__gate_close(tutti__gate_guest_t *guest);
/* Close all strangers' connections. Returns their number. */
uint32_t tutti__gate_drop_strangers(tutti__gate_host_t *host);
/* Accept at most TUTTI__GATE_STRANGERS connections, so that deadlines are still checked. */
tutti_status_t tutti__gate_welcome(tutti__gate_host_t *host, uint32_t *ret_accepted);
/* Read the messages that have arrived from a stranger. */
tutti_status_t tutti__gate_hear_stranger(tutti__gate_host_t *host, tutti__gate_guest_t *guest);
/* Read guest i's last message. If the message is complete, or the connection has ended, guest i is
   removed from the list, and the guest with the highest index gets index i. */
void tutti__gate_hear_guest(tutti__gate_host_t *host, uint32_t i);

/* ---- gate_judge.c ---- */

/* Let the gate fail: all ranks that connect from now on get this status and the thread's last
   error. */
void tutti__gate_fail(tutti__gate_host_t *host, tutti_status_t status);
/* Let the gate fail, because `rank` was admitted, or has shown the token, and has ended. */
void tutti__gate_lose(tutti__gate_host_t *host, uint32_t rank);
/* Stop waiting for a rank that will not connect, or has received an error. */
void tutti__gate_stop_awaiting(tutti__gate_host_t *host, uint32_t rank);

/* Does the guest belong to another job? If so, the gate does not answer it. */
int tutti__gate_is_stranger(const tutti__gate_t *gate, const tutti__gate_guest_t *guest);
/* For a gate with a pass. Check the guest's knock, which must be complete, and set guest->token.
   INVALID_ARGUMENT: the guest belongs to another job, or does not have the secret. */
tutti_status_t tutti__gate_check_pass(const tutti__gate_t *gate, tutti__gate_guest_t *guest);
/* Is the knock consistent with the meeting? If the gate has no size, use the first knock's size. */
tutti_status_t tutti__gate_judge(tutti__gate_host_t *host, const tutti__gate_knock_t *knock);
/* Send an answer with the status. If the status is not TUTTI_OK, also send the thread's last error.
   Returns 0 if the guest has ended. */
int tutti__gate_answer(const tutti__gate_guest_t *guest, tutti_status_t status);
/* Returns TUTTI_ERR_TIMEOUT; the text names the ranks that have not connected. */
tutti_status_t tutti__gate_missing(const tutti__gate_host_t *host);
/* Log a warning that names the ranks that have not connected. */
void tutti__gate_warn(const tutti__gate_host_t *host, double waited_s);

#endif
