/* SPDX-License-Identifier: BSD-3-Clause */
/* The state of the watch, for the files of this room. */
#ifndef TUTTI__WATCH_WATCH_INSIDE_H
#define TUTTI__WATCH_WATCH_INSIDE_H

#include "base/constants.h"
#include "base/lock.h"
#include "watch/links.h"

/* Kinds of messages, and their bodies. All messages are sent up and down the tree. */
enum {
    TUTTI__WATCH_BYE = TUTTI__LINK_KINDS, /* tutti__bye_msg_t */
    TUTTI__WATCH_DEAD,                    /* tutti__dead_msg_t */
    TUTTI__WATCH_CANCEL,                  /* tutti__cancel_msg_t */
    TUTTI__WATCH_DUMP                     /* no body: the receiver writes a dump */
};

typedef struct {
    uint32_t rank;   /* the rank that leaves */
    uint32_t awaits; /* 1: the rank leaves only after rank 0 has returned this message */
    uint64_t progress[TUTTI__PLAN_LANES]; /* see tutti__watch_leave */
} tutti__bye_msg_t;

typedef struct {
    uint32_t status;
    uint32_t text_bytes;
} tutti__dead_msg_t; /* text follows */

/* A group that could not be made. */
typedef struct {
    uint32_t first;  /* the group's first rank */
    uint32_t number; /* number of the call that makes groups */
} tutti__cancel_msg_t;

#define TUTTI__PIPE_BYTES 65536 /* a power of two; several of the largest messages fit */

typedef struct {
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES) tutti__word_t head; /* bytes ever written */
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES) tutti__word_t tail; /* bytes ever read */
    TUTTI__ALIGNED(TUTTI__FALSE_SHARING_BYTES) char bytes[TUTTI__PIPE_BYTES];
} tutti__pipe_t;

typedef struct {
    uint32_t rank;  /* the rank at the other end */
    int local;      /* 1: byte rings; 0: side channel */
    uint32_t index; /* if local: index of `rank` among the machine's ranks */
    tutti__pipe_t *in, *out;
    uint32_t head; /* bytes written to `out`; some of them may not be published yet */
    int urgent;    /* 1: wake the peer even if it has no pending request */
    int lost;
    int bye;       /* the peer has sent a goodbye */
    char *backlog; /* whole frames for which the ring has no space */
    size_t backlog_bytes, backlog_capacity, backlog_sent;
} tutti__link_t;

typedef struct {
    tutti__watch_t base;

    /* Set up once. */
    tutti__boot_t *boot;
    const tutti__machine_t *machine;
    const tutti__conf_shared_t *conf;
    uint32_t rank, size;
    int is_part;
    tutti__receiver_t receiver;
    uint32_t nlinks;
    int parent; /* index of the link to the parent; -1 at rank 0 */
    int remote; /* some links are sockets */

    /* Any thread. */
    atomic_int *left;      /* [size] ranks that have sent a goodbye */
    atomic_int first_left; /* 1 + the rank whose goodbye took effect first; 0: none yet */
    _Atomic uint64_t progress[TUTTI__PLAN_LANES]; /* the greatest values of ranks that have left */
    atomic_uint *cancelled;     /* [first rank] number of the last failed call that makes groups */
    _Atomic uint64_t failed_ns; /* when a transport, or NCCL, failed; 0: none has failed */
    tutti__mutex_t lock;        /* protects writing the next two texts. Each is set once: `text`
                                   before `ended`, failed_text before failed_ns */
    char text[TUTTI__ERROR_BYTES];
    char failed_text[TUTTI__ERROR_BYTES];
    int from; /* the link over which the reason arrived, or -1; set with `text` */

    /* Only the owner of the links. */
    tutti__link_t *link; /* [nlinks] */
    int told;            /* the end has been reported to the neighbours */
    int departures;      /* a rank has left since the last tutti__watch_departed */
    int is_orphan;       /* the parent has left */
} tutti__watcher_t;

static inline tutti__watcher_t *tutti__watcher(tutti__watch_t *watch)
{
    return (tutti__watcher_t *)(void *)watch;
}

static inline const tutti__watcher_t *tutti__watcher_read(const tutti__watch_t *watch)
{
    return (const tutti__watcher_t *)(const void *)watch;
}

/* links.c */
tutti_status_t tutti__links_open(tutti__watcher_t *w);
void tutti__links_close(tutti__watcher_t *w);
/* Receive all messages that a local neighbour has written to the ring. Returns 1 if there was a
   message. */
int tutti__links_read(tutti__watcher_t *w, uint32_t link);

/* watch.c: end the communicator for a reason that has arrived over link `from`; -1: a reason of
   this rank. */
void tutti__watch_end_from(tutti__watcher_t *w, int from, tutti_status_t status, const char *text);
/* watch.c: handle the loss of a link: the neighbour's connection has closed, or the neighbour's
   process has ended; see boot.h. */
void tutti__watch_lost(tutti__watcher_t *w, uint32_t link);
/* watch.c: end the communicator because a rank has died. link: as `from` above. */
void tutti__watch_lost_rank(tutti__watcher_t *w, int link, uint32_t rank);
/* watch.c: handle a message of the watch. */
void tutti__watch_receive(tutti__watcher_t *w, uint32_t link, uint32_t kind, const void *body,
                          size_t bytes);

/* depart.c: handle a goodbye, or the report of a cancelled group, that has arrived. */
void tutti__watch_bye(tutti__watcher_t *w, int link, const tutti__bye_msg_t *msg);
void tutti__watch_receive_cancel(tutti__watcher_t *w, int link, const tutti__cancel_msg_t *msg);
/* depart.c: if `end` is greater than the state in this rank's status page, write `end` there and
   wake the peers. Any thread. */
void tutti__watch_set_page(tutti__watcher_t *w, uint32_t end);

/* orphan.c: this rank's parent in the tree has left: begin to watch the ranks of this machine. */
void tutti__orphan_begin(tutti__watcher_t *w);
/* orphan.c: if the communicator has ended for a rank of this machine, end it here as well. */
void tutti__orphan_poll(tutti__watcher_t *w);
/* orphan.c: handle the end of the process of a rank that is no neighbour. */
void tutti__orphan_lost(tutti__watcher_t *w, uint32_t rank);
/* orphan.c: write the reason of the end into this rank's status page. Call it under `lock`. */
void tutti__orphan_publish(tutti__watcher_t *w, tutti_status_t status, const char *text);

#endif
