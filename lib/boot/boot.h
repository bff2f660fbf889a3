/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * First contact, and the side channel.
 *
 * 1. A way to meet (tutti__meet_t) provides rank, size and an allgather of small blocks:
 *
 *        self    a world of one
 *        local   ranks of one machine meet at a Unix socket; for tests, whose ranks are forked
 *                processes or threads
 *        tcp     env://, unique ids, stores
 *        mpi     MPI, through a module (module.h)
 *
 * 2. tutti__boot_open() exchanges version, metadata, addresses and a random token through this
 *    allgather. Then it builds the side channel, a tree of stream sockets.
 *
 *        rank 0 ----TCP---- leader of host 1 ---- leader of host 2 ...   (star around rank 0)
 *          | Unix               | Unix
 *        local ranks          local ranks                                (star around the leader)
 *
 *    The side channel carries control messages between hosts, aborts and reports of deaths. It
 *    works even if the data path is stuck, and sends nothing when idle. A closed connection or a
 *    readable pidfd means a lost peer.
 *
 * tutti__boot_open, _allgather, _agree, _read_file and _share_fds are collective, and block until
 * the deadline at most. They are called only on the thread that makes the communicator. The
 * tutti__side_* functions never block. Only the owner of the engine's token calls them.
 */
#ifndef TUTTI__BOOT_BOOT_H
#define TUTTI__BOOT_BOOT_H

#include "boot/marks.h"
#include "conf/conf.h"
#include "topo/topo.h"

#include <tutti/tutti.h>

/* A way to meet. Once the structure is filled in, `close` may be called at any time. */
typedef struct {
    const char *name;
    void *ctx;
    uint32_t rank, size;
    /* Deadline of the whole set-up, a time of tutti__now_ns(). 0: conf's timeout, counted from
       tutti__boot_open. */
    uint64_t deadline;
    /* Each rank passes `bytes` bytes; all ranks receive the bytes of all ranks, in the order of
       ranks. Collective. */
    tutti_status_t (*allgather)(void *ctx, const void *mine, size_t bytes, void *ret_all,
                                uint64_t timeout_ms);
    /* Called between two allgathers. Returns an error if this rank detects the end of another rank.
       Never waits. May be NULL. */
    tutti_status_t (*still)(void *ctx);
    /* No further allgather will be called: release the resources that only allgather needs. May be
       NULL. */
    void (*settle)(void *ctx);
    void (*close)(void *ctx);
    /* The ranks' marks (marks.h), or NULL. tutti__boot_open closes them. If `still` is NULL,
       tutti__boot_open detects deaths by the marks until the first exchange is complete. */
    tutti__marks_t *marks;
    const uint32_t *world_rank; /* [size] for a group: the world ranks of its members; valid as long
                                   as the communicator. NULL: this is the world */
    const char *comm_name; /* for a communicator from tutti_comm_connect and its groups: the name in
                              messages; valid as long as the communicator. NULL: the world */
} tutti__meet_t;

void tutti__meet_self(tutti__meet_t *ret_meet);

/* `size` ranks of one machine meet at the abstract Unix socket `name`. Rank 0 listens. Ranks may
   arrive in any order; each waits until the deadline. */
tutti_status_t tutti__meet_local(const char *name, uint32_t rank, uint32_t size,
                                 uint64_t timeout_ms, tutti__meet_t *ret_meet);

typedef struct tutti__boot tutti__boot_t;

/* Collective. Takes over `meet`: tutti__boot_close closes it. If this function fails, it closes
   `meet` itself. On success conf->shared has rank 0's values. */
tutti_status_t tutti__boot_open(const tutti__meet_t *meet, tutti__conf_t *conf,
                                tutti__boot_t **ret_boot);
/* Local. Peers detect the closed link only after they have received the last message. boot may be
   NULL. A child made by fork() closes the inherited sockets by itself, and need not call this
   function. */
void tutti__boot_close(tutti__boot_t *boot);

/* Set-up is over: release everything that only set-up needs. The side channel, the topology and the
   names of ranks remain. After this call no rank may call a collective function of boot. */
void tutti__boot_settle(tutti__boot_t *boot);

const tutti__topo_t *tutti__boot_topo(const tutti__boot_t *boot);

/* For each connection to a neighbour on another host, TCP keeps the shortest round trip. Returns
   the longest of these round trips; 0: unknown, or there is no such neighbour. */
uint64_t tutti__boot_rtt_ns(const tutti__boot_t *boot);

/* A random number that rank 0 has chosen. It is equal on all ranks, and other communicators have
   other numbers. It is not secret. */
uint64_t tutti__boot_id(const tutti__boot_t *boot);
/* Deadline of the whole set-up, a time of tutti__now_ns(). */
uint64_t tutti__boot_deadline(const tutti__boot_t *boot);
tutti_status_t tutti__boot_allgather(tutti__boot_t *boot, const void *mine, size_t bytes,
                                     void *ret_all);
/* If a rank has failed during set-up, all ranks fail: they return the status of the lowest rank
   that has failed, and the text names this rank. */
tutti_status_t tutti__boot_agree(tutti__boot_t *boot, tutti_status_t mine);

/* Rank 0 reads a file that TUTTI_ALGORITHM names (at most 16 MiB); all ranks receive the text, and
   the caller frees it. Collective. TUTTI_ERR_INVALID_ARGUMENT on all ranks: rank 0 cannot read the
   file. */
tutti_status_t tutti__boot_read_file(tutti__boot_t *boot, const char *path, char **ret_text);

/*
 * Pass file descriptors between all ranks of this machine (SCM_RIGHTS over a Unix socket).
 *
 * fds       nfds of this rank; the caller keeps them
 * ret_fds   [machine ranks x nfds], in the order of ascending global rank; new descriptors
 *           (close-on-exec) that the caller closes; this rank's descriptors are duplicates of fds
 * ret_pids  [machine ranks] process ids in the pid namespace of this process
 *
 * Collective over the machine.
 */
tutti_status_t tutti__boot_share_fds(tutti__boot_t *boot, const int *fds, uint32_t nfds,
                                     int *ret_fds, int *ret_pids);

/*
 * The side channel: links to the neighbours in the tree. Link 0 leads to the parent. Rank 0 has no
 * parent (tutti__side_parent returns -1), so all its links lead to children.
 */
uint32_t tutti__side_links(const tutti__boot_t *boot);
int tutti__side_parent(const tutti__boot_t *boot);                   /* link, or -1 */
uint32_t tutti__side_rank(const tutti__boot_t *boot, uint32_t link); /* rank at the other end */
int tutti__side_is_local(const tutti__boot_t *boot, uint32_t link);  /* on this host */

/* Queue a message: send the part for which the socket has space, and keep the rest for
   tutti__side_poll. If the link is lost, the message is discarded without an error, because
   tutti__side_poll reports the loss. Body: up to 16 MiB. TUTTI_ERR_NO_MEMORY: there is no memory
   for the rest, or more than 256 MiB would wait for the peer. */
tutti_status_t tutti__side_send(tutti__boot_t *boot, uint32_t link, uint32_t kind, const void *body,
                                size_t bytes);

/* tutti__side_poll calls these for each whole message, and once for each link that is lost. */
typedef struct {
    void *arg;
    /* body: valid during the call only; aligned to 8 bytes. */
    void (*message)(void *arg, uint32_t link, uint32_t kind, const void *body, size_t bytes);
    /* The rank at the other end has closed the link, or the rank's process has ended. Called after
       the rank's last message. */
    void (*lost)(void *arg, uint32_t link);
    /* A process that tutti__side_watch watches has ended. */
    void (*ended)(void *arg, uint32_t rank);
} tutti__side_events_t;

/* Watch the process of a rank that is not a neighbour. If the kernel cannot watch it, or the rank
   is on another machine, the call does nothing. TUTTI_ERR_PEER_LOST: the process has ended. Call it
   at most once for each rank. */
tutti_status_t tutti__side_watch(tutti__boot_t *boot, uint32_t rank);

/* While requests are pending, call this several times a second. A rank on another host that does
   not read its messages is not lost: see tutti__net_tcp_check. */
void tutti__side_check(tutti__boot_t *boot, uint64_t now);

/* Read and write as much as possible without waiting. If nothing is pending, this costs one
   epoll_wait of 0 ms. */
tutti_status_t tutti__side_poll(tutti__boot_t *boot, const tutti__side_events_t *events);

/* A rank's name for messages: "rank 3", or "rank 1 of the group (world rank 3)"; for a communicator
   from tutti_comm_connect "rank 3 of communicator 'PREFIX'". boot: the rank's communicator; NULL:
   the world. The text is valid until this thread's fourth further call. Any thread. */
const char *tutti__boot_rank_name(const tutti__boot_t *boot, uint32_t rank);
/* For a rank of a group: its rank in the world, or in the communicator from tutti_comm_connect to
   which the group belongs. For other communicators: `rank`. *ret_is_group: 0: no group; 1: a group
   of the world; 2: a group of a communicator from tutti_comm_connect. */
uint32_t tutti__boot_world_rank(const tutti__boot_t *boot, uint32_t rank, int *ret_is_group);

/* An epoll descriptor that is readable when tutti__side_poll has something to do. The engine adds
   it to its own epoll descriptor. */
int tutti__side_fd(const tutti__boot_t *boot);

#endif
