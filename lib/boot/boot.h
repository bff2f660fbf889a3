/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * First contact, and the side channel.
 *
 * 1. A way to meet (tutti__meet_t) knows rank and size and can gather small blobs: `self` (a world
 *    of one), `local` (ranks started by one parent meet at a Unix socket: tests, by fork or
 *    threads), `mpi` (the module).
 * 2. tutti__boot_open() exchanges version, facts, addresses and a random token over it, and builds
 *    the side channel: a tree of stream sockets.
 *
 *        rank 0 ----TCP---- leader of host 1 ---- leader of host 2 ...   (star around rank 0)
 *          | Unix               | Unix
 *        local ranks          local ranks                                (star around the leader)
 *
 *    It carries control messages between hosts, aborts and news of deaths, so it works when the
 *    data path is stuck. It is silent when idle. A closed connection or a pidfd that fires is a
 *    lost peer.
 *
 * tutti__boot_open, _allgather, _agree, _read_file and _share_fds block (with the deadline), are
 * collective and belong to the thread that makes the communicator. The tutti__side_* functions
 * never block and belong to whoever owns the engine's token.
 */
#ifndef TUTTI__BOOT_BOOT_H
#define TUTTI__BOOT_BOOT_H

#include "conf/conf.h"
#include "topo/topo.h"

#include <tutti/tutti.h>

/* A way to meet. `close` may be called at any time after open. */
typedef struct {
    const char *name;
    void *ctx;
    uint32_t rank, size;
    /* Deadline of the whole set-up, a time of tutti__now_ns(); 0: conf's timeout counts from
       tutti__boot_open on. */
    uint64_t deadline;
    /* Every rank gives `bytes` bytes, everyone gets all of them in rank order. Collective. */
    tutti_status_t (*allgather)(void *ctx, const void *mine, size_t bytes, void *ret_all,
                                uint64_t timeout_ms);
    /* Between two allgathers: an error if this rank can see that another one has ended. Never
       waits. May be NULL. */
    tutti_status_t (*still)(void *ctx);
    /* There will be no allgather any more: let go of what serves nothing else. May be NULL. */
    void (*settle)(void *ctx);
    void (*close)(void *ctx);
    const uint32_t *world_rank; /* [size] of a group: its ranks in the world, until the communicator
                                   ends; NULL: this is the world */
} tutti__meet_t;

/* A world of one. */
void tutti__meet_self(tutti__meet_t *ret_meet);

/* `size` ranks on one machine meet at the abstract Unix socket `name`; rank 0 listens and serves.
   Any order of arrival; waits until the deadline. */
tutti_status_t tutti__meet_local(const char *name, uint32_t rank, uint32_t size,
                                 uint64_t timeout_ms, tutti__meet_t *ret_meet);

typedef struct tutti__boot tutti__boot_t;

/* Collective. Takes over `meet` (closed by tutti__boot_close, and when this fails). conf->shared is
   replaced by rank 0's. */
tutti_status_t tutti__boot_open(const tutti__meet_t *meet, tutti__conf_t *conf,
                                tutti__boot_t **ret_boot);
/* Local; peers see the link close, after the last message that was sent. NULL is fine. A child made
   by fork() lets go of the sockets by itself and may close what it inherited, or not. */
void tutti__boot_close(tutti__boot_t *boot);

/* Set-up is over: keep the side channel only, which is what the rest of this header needs. No
   collective of boot may come after it, on any rank. */
void tutti__boot_settle(tutti__boot_t *boot);

const tutti__topo_t *tutti__boot_topo(const tutti__boot_t *boot);
/* Deadline of the whole set-up, a time of tutti__now_ns(). */
uint64_t tutti__boot_deadline(const tutti__boot_t *boot);
tutti_status_t tutti__boot_allgather(tutti__boot_t *boot, const void *mine, size_t bytes,
                                     void *ret_all);
/* All ranks continue with the worst of their statuses: so that a failure of one during set-up is a
   failure of all, with a text that names the first rank that failed. */
tutti_status_t tutti__boot_agree(tutti__boot_t *boot, tutti_status_t mine);

/* Rank 0 reads a file that TUTTI_ALGORITHM names (at most 16 MiB), all get its text, to be freed.
   Collective. If rank 0 cannot, TUTTI_ERR_INVALID_ARGUMENT on all. */
tutti_status_t tutti__boot_read_file(tutti__boot_t *boot, const char *path, char **ret_text);

/*
 * Pass file descriptors between all ranks of my machine (SCM_RIGHTS over a Unix socket).
 *
 * fds      nfds of this rank; stay the caller's
 * ret_fds  [machine ranks x nfds], in the order of ascending global rank; new descriptors
 *          (close-on-exec) that the caller closes; those of this rank itself are dup'ed too
 * Collective over the machine. ret_pids [machine ranks]: process ids as this process sees them.
 */
tutti_status_t tutti__boot_share_fds(tutti__boot_t *boot, const int *fds, uint32_t nfds,
                                     int *ret_fds, int *ret_pids);

/*
 * The side channel: links to neighbours in the tree. Link 0 is the parent (rank 0 has none: its
 * links are all children; tutti__side_parent says -1).
 */
uint32_t tutti__side_links(const tutti__boot_t *boot);
int tutti__side_parent(const tutti__boot_t *boot);                   /* link, or -1 */
uint32_t tutti__side_rank(const tutti__boot_t *boot, uint32_t link); /* rank at the other end */
int tutti__side_is_local(const tutti__boot_t *boot, uint32_t link);  /* on my host */

/* Queue a message; sends what the socket takes now, keeps the rest for tutti__side_poll.
   A lost link swallows it silently (the loss is reported by poll). Body: up to 16 MiB. NO_MEMORY if
   a peer that does not read has left 256 MiB waiting. */
tutti_status_t tutti__side_send(tutti__boot_t *boot, uint32_t link, uint32_t kind, const void *body,
                                size_t bytes);

/* Called by poll for each whole message, and once when a rank is found dead or gone. */
typedef struct {
    void *arg;
    /* body lives during the call only, aligned to 8. */
    void (*message)(void *arg, uint32_t link, uint32_t kind, const void *body, size_t bytes);
    /* A link closed (link >= 0), or a local rank's process ended (link -1). `rank`: who. Once per
       rank, after the last message that came from it. A rank that is no neighbour (link -1) is
       reported 100 ms late, so that its own or its leader's news may come first. */
    void (*lost)(void *arg, int link, uint32_t rank);
} tutti__side_events_t;

/* Read and write what is possible now. Cheap when nothing is there: one epoll_wait of 0 ms. */
tutti_status_t tutti__side_poll(tutti__boot_t *boot, const tutti__side_events_t *events);

/* A rank as messages name it: "rank 3", or "rank 1 of the group (world rank 3)". boot: of the
   communicator that the rank belongs to; NULL: of the world. The text stays until this thread's
   fourth call after this one. Any thread. */
const char *tutti__boot_rank_name(const tutti__boot_t *boot, uint32_t rank);
/* The rank's number in the world; *ret_is_group: 1 if it may differ from `rank`. */
uint32_t tutti__boot_world_rank(const tutti__boot_t *boot, uint32_t rank, int *ret_is_group);

/* An epoll descriptor that becomes readable when tutti__side_poll has something to do. The engine
   adds it to its own. */
int tutti__side_fd(const tutti__boot_t *boot);

#endif
