/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the files of first contact and of the side channel; not for other rooms.
 */
#ifndef TUTTI__BOOT_BOOT_INSIDE_H
#define TUTTI__BOOT_BOOT_INSIDE_H

#include "boot/boot.h"
#include "boot/gate.h"
#include "boot/net.h"
#include "boot/side_frame.h"

#include <sys/types.h>

/* A message, or the rest of a message, that waits for space in the socket. */
typedef struct tutti__side_wait {
    struct tutti__side_wait *next;
    size_t bytes, sent;
    char data[];
} tutti__side_wait_t;

/* A neighbour in the tree. */
typedef struct {
    int fd; /* -1: lost */
    uint32_t rank;
    int local;   /* on this host */
    int patient; /* see tutti__net_tcp_check */
    int deaf;    /* sending failed: discard messages until recv() finds the stream's end */
    tutti__frame_in_t in;
    tutti__side_wait_t *first, **last;
    size_t waiting_bytes;
} tutti__side_link_t;

/* A process of another rank on this machine. */
typedef struct {
    int pidfd;     /* -1: the process has ended */
    uint32_t link; /* the link to the rank, or TUTTI__NO_LINK */
    uint32_t rank;
} tutti__side_watch_t;

#define TUTTI__NO_LINK UINT32_MAX

typedef struct {
    const tutti__boot_t *boot; /* the tutti__boot_t that contains this */
    int epfd;
    int parent; /* 0 or -1 */
    uint32_t nlinks, nwatches;
    tutti__side_link_t *links;
    tutti__side_watch_t *watches;
    char *piece;         /* buffer of one recv() */
    uint64_t checked_ns; /* the last tutti__side_check */
} tutti__side_t;

/* A rank's record of another rank. */
typedef struct {
    int pid;                /* in this process's pid namespace; -1: not visible there. Valid only if
                               the rank is on this machine; see side.c */
    unsigned char door[16]; /* the name of its Unix socket */
} tutti__boot_peer_t;

struct tutti__boot {
    tutti__boot_t *next; /* the next boot in fork.c's list */
    tutti__meet_t meet;
    tutti__topo_t *topo;
    tutti__boot_peer_t *peers; /* [size] */
    tutti__gate_token_t token;
    uint64_t id; /* see tutti__boot_id */
    uint64_t timeout_ms;
    uint64_t deadline; /* of the whole set-up */
    pid_t owner;       /* the process that opened this boot; a forked child has another pid */
    int door; /* this rank's Unix socket, or -1. After tutti__boot_open only the machine's lowest
                 rank has it open; after tutti__boot_settle no rank has it open */
    uint32_t shares; /* calls of tutti__boot_share_fds */
    int meeting;     /* set-up is in progress, and boot->meet reports no deaths; see peers.c */
    tutti__side_t side;
};

/* The lowest rank of `rank`'s host. */
uint32_t tutti__boot_leader(const tutti__boot_t *boot, uint32_t rank);

/* Deadline of one step of connecting: the deadline of set-up, or an earlier time. */
uint64_t tutti__boot_step_deadline(const tutti__boot_t *boot);

/* TUTTI_ERR_PEER_LOST: a rank of this machine has died. boot: a tutti__boot_t; see peers.c. */
tutti_status_t tutti__boot_peers_still(void *boot);
/* Has the process ended? 0 if its pid is not known (pid <= 0). */
int tutti__boot_has_ended(int pid);
/* TUTTI_OK if dead[r] is 0 for all ranks r; otherwise TUTTI_ERR_PEER_LOST, and the text names the
   ranks with dead[r] 1. */
tutti_status_t tutti__boot_report_dead(const unsigned char *dead, uint32_t size);
/* After a failed connection: wait for the end of a process of this machine, for a short time. If a
   process ends, the kernel closes its sockets first, and reports the end later. */
void tutti__boot_await_death(tutti__boot_t *boot);

/* Connect the tree; collective. Fills in boot->side.links and boot->side.parent. */
tutti_status_t tutti__boot_connect(tutti__boot_t *boot, const tutti__conf_t *conf);

/* Send rank 0's text of `bytes` bytes to all ranks; collective. bytes: equal on all ranks. text: on
   rank 0 the text, on the other ranks the buffer that receives it. If a rank had no memory for the
   buffer and passes NULL, all ranks fail. */
tutti_status_t tutti__boot_send_text(tutti__boot_t *boot, char *text, size_t bytes);

/* If this process forks between _remember and _forget, the child closes boot's sockets. */
void tutti__boot_remember(tutti__boot_t *boot);
void tutti__boot_forget(tutti__boot_t *boot);
/* Close the Unix socket, if it is open. If a fork is in progress, wait for its end first. */
void tutti__boot_shut_door(tutti__boot_t *boot);

/* tutti__side_begin makes the tables; call it before the first link is added. tutti__side_start
   makes the watches and the epoll descriptor; call it after the last link was added. */
tutti_status_t tutti__side_begin(tutti__boot_t *boot);
tutti_status_t tutti__side_start(tutti__boot_t *boot);
void tutti__side_end(tutti__boot_t *boot);
/* Only close all descriptors. Async-signal-safe. */
void tutti__side_let_go(tutti__side_t *side);

/* The source of an epoll event of the side channel. The upper half of the event's data is this
   number, the lower half is the index of the link or watch. */
typedef enum {
    TUTTI__ABOUT_LINK,
    TUTTI__ABOUT_WATCH
} tutti__side_about_t;

/* Send as much of the waiting messages as the socket has space for. */
void tutti__side_flush(tutti__side_t *side, tutti__side_link_t *link);
/* Discard the waiting messages. */
void tutti__side_drop(tutti__side_link_t *link);

#endif
