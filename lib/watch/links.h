/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control messages between neighbours in the tree of boot.h. Inside a host messages use byte rings
 * in shared memory, between hosts the side channel. Both keep the order of messages on a link.
 *
 * The rings of a link are in the child's arena. The watch's own messages, such as goodbyes, use the
 * side channel (exception: by_side in links.c), because an idle rank polls only the side channel.
 * Where the order matters, the receiver reads the ring before it handles such a message.
 *
 * A ring has one writer and one reader. A frame is a head and a body, rounded up to 8 bytes; frames
 * wrap around. If the ring has no space for a frame, the frame waits in a backlog, and later
 * flushes send it. So sending never blocks. Sending fails only if there is no memory; this failure
 * ends the communicator. Callers own the links, unless a comment says otherwise.
 */
#ifndef TUTTI__WATCH_LINKS_H
#define TUTTI__WATCH_LINKS_H

#include "watch/watch.h"

/* The longest body of a message. */
#define TUTTI__LINK_BYTES 1536

/* Kinds below this number are for the receiver; all other kinds are for the watch. */
#define TUTTI__LINK_KINDS 0x100u

/* The receiver of all messages but the watch's own. body: aligned to 8; valid during the call. */
typedef struct {
    void (*message)(void *owner, uint32_t link, uint32_t kind, const void *body, size_t bytes);
    void *owner;
} tutti__receiver_t;

/* Set the receiver. Call it before the first poll. */
void tutti__links_listen(tutti__watch_t *watch, tutti__receiver_t receiver);

/* The tree does not change after open. The next four functions: any thread. */
uint32_t tutti__links_count(const tutti__watch_t *watch);
/* The link to the parent, or -1 at rank 0. */
int tutti__links_parent(const tutti__watch_t *watch);
/* The rank at the other end. *ret_local 1: that rank is on this host. */
uint32_t tutti__links_rank(const tutti__watch_t *watch, uint32_t link, int *ret_local);
/* Does a link lead to another host? If so, poll the side channel also during other work. */
int tutti__links_remote(const tutti__watch_t *watch);

/* Queue a message; tutti__links_flush publishes the message. urgent 1: wake the neighbour even if
   the neighbour has no pending request. On a lost link the message is discarded. */
void tutti__links_send(tutti__watch_t *watch, uint32_t link, uint32_t kind, const void *body,
                       size_t bytes, int urgent);
void tutti__links_flush(tutti__watch_t *watch);
/* Flush until all backlogs are empty, but not beyond limit_ns, a time of tutti__now_ns(). */
void tutti__links_flush_all(tutti__watch_t *watch, uint64_t limit_ns);
/* Receive all messages. Returns 1 if a message has arrived through a ring. side 1: also read the
   sockets of the side channel. */
int tutti__links_poll(tutti__watch_t *watch, int side);

#endif
