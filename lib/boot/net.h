/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sockets with deadlines, for first contact and the side channel.
 *
 * All sockets here are close-on-exec and non-blocking. Functions that wait call poll() until their
 * deadline, which is a time of tutti__now_ns(). `rank` is the rank at the other end, for error
 * texts. Any thread may call these functions. Each thread has its own checks and its own failure
 * callback (see below). Only tutti__net_files_left and tutti__net_files_settle take a lock.
 */
#ifndef TUTTI__BOOT_NET_H
#define TUTTI__BOOT_NET_H

#include "base/status.h"

#include <poll.h>

/* Passed instead of a rank: the process that made the unique id. */
#define TUTTI__NET_MAKER UINT32_MAX

/* Longest abstract name of a Unix socket. */
#define TUTTI__NET_NAME_BYTES 100

/* The TCP addresses of a listening process. Plain data, sent between ranks as bytes. */
#define TUTTI__NET_ADDRS 12
typedef struct {
    uint16_t port;        /* host byte order */
    uint16_t family;      /* 4, 6 */
    unsigned char ip[16]; /* network byte order */
} tutti__net_addr_t;

typedef struct {
    uint32_t count;
    tutti__net_addr_t addr[TUTTI__NET_ADDRS];
} tutti__net_addrs_t;

/* Returns the deadline of a wait of timeout_ms that starts now. */
uint64_t tutti__net_deadline(uint64_t timeout_ms);
/* Returns timeout_ms in nanoseconds, limited so that adding a time does not overflow. */
uint64_t tutti__net_span(uint64_t timeout_ms);
/* Returns the milliseconds until the deadline, for poll(): rounded up; 0 if the deadline has
   passed. */
int tutti__net_left_ms(uint64_t deadline);
void tutti__net_sleep_ms(unsigned ms);

/*
 * Set a check for this thread: a function that each of the thread's waits calls every 100 ms. If
 * the check returns another status than TUTTI_OK, the wait ends with this status. For example, a
 * check ends a wait if a rank of this job has died during a meeting. NULL: no check.
 */
typedef tutti_status_t tutti__net_check_t(void *arg);
void tutti__net_watch(tutti__net_check_t *check, void *arg);
/* Set the thread's second check, called after the first: `still` of the meeting (tutti__meet_t). */
void tutti__net_watch_meeting(tutti__net_check_t *check, void *arg);
/* Call both checks. */
tutti_status_t tutti__net_still(void);

/*
 * Set the function that is called when this thread finds an error during set-up. The function is
 * called before the thread's next collective step, because other ranks may wait for a connection
 * that this thread will not make. NULL: no function.
 */
typedef void tutti__net_failed_t(void *arg, tutti_status_t status);
void tutti__net_watch_failures(tutti__net_failed_t *failed, void *arg);
/* Call the function of tutti__net_watch_failures, for the thread's last error. Returns 0 if no
   function is set. */
int tutti__net_failed(tutti_status_t status);

/* poll() until the deadline. TUTTI_OK with *ret_ready 0: the deadline has passed. */
tutti_status_t tutti__net_poll(struct pollfd *fds, uint32_t nfds, uint64_t deadline,
                               int *ret_ready);

/*
 * Check that this process can open `count` more files at this moment; if not, return
 * TUTTI_ERR_NO_MEMORY. If the soft limit of descriptors is too low, raise it as far as needed, at
 * most to the hard limit.
 */
tutti_status_t tutti__net_files_left(uint32_t count);

/* Wait while another thread holds the descriptors that tutti__net_files_left opens as a trial. */
void tutti__net_files_settle(void);

tutti_status_t tutti__net_random(void *ret_bytes, size_t bytes);

/* Write a text with all ranks r for which listed[r] is set: "rank 3", "ranks 1, 2 and 5", "ranks 0,
   1, 2, ... and 17 more". */
void tutti__net_list_ranks(const unsigned char *listed, uint32_t size, char *ret_text,
                           size_t text_bytes);

/*
 * Abstract Unix sockets. The name of such a socket is in no file system. The name belongs to a
 * network namespace, and vanishes with the last descriptor of the socket. If `patient` is 1,
 * _connect waits until a process listens.
 */
tutti_status_t tutti__net_unix_listen(const void *name, size_t name_bytes, int *ret_fd);
tutti_status_t tutti__net_unix_connect(const void *name, size_t name_bytes, int patient,
                                       uint64_t deadline, int *ret_fd);
/* Check the user at the other end of a Unix socket. TUTTI_ERR_TRANSPORT: it is another user. */
tutti_status_t tutti__net_same_user(int fd);

/* Send or receive all bytes. TUTTI_ERR_TIMEOUT: the deadline has passed. TUTTI_ERR_PEER_LOST: the
   other end has closed the connection. */
tutti_status_t tutti__net_send(int fd, uint32_t rank, const void *data, size_t bytes,
                               uint64_t deadline);
tutti_status_t tutti__net_recv(int fd, uint32_t rank, void *ret_data, size_t bytes,
                               uint64_t deadline);
/* Does this errno of a connection mean that the process or the host at the other end is gone? When
   the kernel gives up a connection, errno may also be the reason why the host is not reachable. */
int tutti__net_is_lost(int error);
/* Wait until poll() reports one of `events`, an error or a hang-up. */
tutti_status_t tutti__net_wait(int fd, uint32_t rank, short events, uint64_t deadline);

/*
 * Get the addresses of this machine's network interfaces that are up, IPv4 addresses first. If
 * `interface` is not "", only this interface counts. Otherwise, loopback 1: only the loopback
 * interfaces; 0: only the other interfaces. Ports are 0. UNSUPPORTED if there is no address.
 */
tutti_status_t tutti__net_addrs(const char *interface, int loopback, tutti__net_addrs_t *ret_addrs);
/* Listen on a free port for these addresses, and write the port into them. */
tutti_status_t tutti__net_tcp_listen(tutti__net_addrs_t *addrs, int *ret_fd);
/* Listen at this address and port; an address of zeros: all addresses of the family. TUTTI__AGAIN:
   another process uses the port; UNSUPPORTED: this machine does not have the address. */
tutti_status_t tutti__net_tcp_listen_at(const tutti__net_addr_t *addr, int *ret_fd);
/* Look up the addresses of a host's name; the ports are 0. TUTTI_ERR_TRANSPORT: there is no
   address. The function may wait for a name server, even beyond the caller's deadline. */
tutti_status_t tutti__net_resolve(const char *name, tutti__net_addrs_t *ret_addrs);
int tutti__net_is_loopback(const tutti__net_addr_t *addr);
/* Is the name an address in digits? */
int tutti__net_is_literal(const char *name);
/* Connect. TUTTI_ERR_TRANSPORT: no process listens at the address. */
tutti_status_t tutti__net_tcp_connect(const tutti__net_addr_t *addr, uint64_t deadline,
                                      int *ret_fd);
/* Set the options of a connection: send without delay, and detect within 5 seconds that the other
   host has vanished, even on an idle connection. */
tutti_status_t tutti__net_tcp_options(int fd);
/* Call this at intervals of a second or less, with the same *patient, 0 at first. If the peer's
   process reads nothing, but the peer's kernel still answers, disable the limit TCP_USER_TIMEOUT,
   and set *patient. Enable the limit when sent bytes are in flight again, or after four probes
   without an answer. The kernel sends probes at longer and longer intervals. So if the peer's host
   is lost while *patient is set, the loss is detected late. */
void tutti__net_tcp_check(int fd, int *patient);
void tutti__net_addr_text(const tutti__net_addr_t *addr, char *ret_text, size_t text_bytes);

#endif
