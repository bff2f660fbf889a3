/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of first contact and of the side channel share. Of no use to other rooms.
 */
#ifndef TUTTI__BOOT_INSIDE_H
#define TUTTI__BOOT_INSIDE_H

#include "boot/boot.h"
#include "boot/gate.h"
#include "boot/net.h"
#include "boot/side_frame.h"

#include <sys/types.h>

/* A message, or the rest of one, that waits for room in the socket. */
typedef struct tutti__side_wait {
    struct tutti__side_wait *next;
    size_t bytes, sent;
    char data[];
} tutti__side_wait_t;

/* One neighbour in the tree. */
typedef struct {
    int fd; /* -1: lost */
    uint32_t rank;
    int local; /* on my host */
    int deaf;  /* sending failed: what is sent is swallowed until reading finds the end */
    tutti__frame_in_t in;
    tutti__side_wait_t *first, **last;
    size_t waiting_bytes;
} tutti__side_link_t;

/* A process on my machine whose end is news. */
typedef struct {
    int pidfd; /* -1: ended */
    uint32_t rank;
    int link;        /* -1: no neighbour */
    uint64_t due_ns; /* an end that will be reported then; 0: none */
} tutti__side_watch_t;

typedef struct {
    const tutti__boot_t *boot; /* the owner */
    int epfd;
    int timer;
    int parent; /* 0 or -1 */
    uint32_t nlinks, nwatches;
    tutti__side_link_t *links;
    tutti__side_watch_t *watches;
    unsigned char *gone; /* [size] the rank was reported lost */
    char *piece;         /* what one recv() may bring */
} tutti__side_t;

/* What a rank knows of another one. */
typedef struct {
    int pid;                /* as this process sees it; -1: not in my pid namespace */
    unsigned char door[16]; /* the name of its Unix socket */
} tutti__boot_peer_t;

struct tutti__boot {
    tutti__boot_t *next; /* of those that are open */
    tutti__meet_t meet;
    tutti__topo_t *topo;
    tutti__boot_peer_t *peers; /* [size] */
    tutti__gate_token_t token;
    uint64_t timeout_ms;
    uint64_t deadline; /* of the whole set-up */
    pid_t owner;       /* the process that opened it, not one it forked */
    int door; /* my Unix socket, or -1: after opening only the machine's lowest rank has one, once
                    settled nobody */
    uint32_t shares; /* how often descriptors were passed */
    tutti__side_t side;
};

/* The lowest rank of `rank`'s host. */
uint32_t tutti__boot_leader(const tutti__boot_t *boot, uint32_t rank);

/* The end of one step of connecting: that of set-up, or sooner. */
uint64_t tutti__boot_step_deadline(const tutti__boot_t *boot);

/* Connect the tree; collective. Fills boot->side.links, parent. */
tutti_status_t tutti__boot_connect(tutti__boot_t *boot, const tutti__conf_t *conf);

/* In forked children of this process, let go of boot's sockets, from now on or no longer. */
void tutti__boot_remember(tutti__boot_t *boot);
void tutti__boot_forget(tutti__boot_t *boot);
/* Close the door, if it is open; not while a fork copies it. */
void tutti__boot_shut_door(tutti__boot_t *boot);

/* Before the first link: links and tables. After the last one: watches and the epoll descriptor. */
tutti_status_t tutti__side_begin(tutti__boot_t *boot);
tutti_status_t tutti__side_start(tutti__boot_t *boot);
void tutti__side_end(tutti__boot_t *boot);
/* Close all descriptors, nothing else. Async-signal-safe. */
void tutti__side_let_go(tutti__side_t *side);

/* What an epoll event of the side channel is about: in the upper half of its number, an index in
   the lower one. */
typedef enum {
    TUTTI__ABOUT_LINK,
    TUTTI__ABOUT_WATCH,
    TUTTI__ABOUT_TIMER
} tutti__side_about_t;

/* Send of what waits as much as the socket takes. */
void tutti__side_flush(tutti__side_t *side, tutti__side_link_t *link);
/* Forget what waits. */
void tutti__side_drop(tutti__side_link_t *link);

#endif
