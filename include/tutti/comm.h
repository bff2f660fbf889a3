/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starting and ending the library; communicators and ranks.
 */
#ifndef TUTTI_COMM_H
#ifndef TUTTI_H
#include <tutti/tutti.h> /* includes this file, in its place */
#else
#define TUTTI_COMM_H

/*
 * The meeting point of ranks without a launcher. It holds an address and a secret.
 *
 * One process makes the id, and the program passes it to the ranks by its own means, as with NCCL's
 * unique id. An id is plain bytes, which may be copied, stored and sent. Keep it as secret as a
 * password.
 */
typedef struct {
    char bytes[128];
} tutti_unique_id_t;

/*
 * Make a unique id for tutti_init or tutti_comm_connect. One process calls it: a rank, or a process
 * that is not a rank, such as the program that starts the ranks.
 *
 * ret_id  pass it to all ranks
 *
 * A thread of this process serves the meeting of the ranks. So the process must not end or call
 * tutti_finalize before all ranks have connected. After the first rank has connected, the thread
 * waits for the others for at most this process's TUTTI_TIMEOUT. A child of fork() does not serve
 * the meeting.
 *
 * An id is valid for one tutti_init or tutti_comm_connect on all ranks; a second call with the id
 * fails. Each id takes a thread and a socket until this process calls tutti_finalize, or ends. If
 * the process has communicators from tutti_comm_connect, or is making one, tutti_finalize leaves
 * the ids valid until the last of these communicators is freed. If the process calls tutti_init or
 * makes another id before that, the ids stay valid until the next tutti_finalize.
 *
 * TUTTI_INTERFACE chooses the network interface. Any thread, but not during tutti_finalize.
 * Since 0.1.
 */
TUTTI_API tutti_status_t tutti_unique_id_create(tutti_unique_id_t *ret_id);

/*
 * A key-value store of the caller's, by which ranks find each other.
 *
 * It may be etcd, Redis, a shared folder or a launcher's store. Initialise the structure with zero,
 * and set all fields. Only tutti_init and tutti_comm_connect call the functions, on the calling
 * thread: rank 0 sets one key, and the others get it. If the ranks do not all connect, rank 0 sets
 * this key once more, to the reason; `set` may refuse this. If several threads connect with one
 * store at the same time, they may call its functions at the same time. Every process that can read
 * the store can join the job.
 *
 * set  store `bytes` bytes, fewer than 1024, under `key` in one atomic step; returns 0 on success
 * get  wait at most timeout_ms until `key` exists; copy its value to `value`, which has
 *      `capacity` bytes, and set *ret_bytes; returns 0 on success, or a number that the error
 *      message shows
 */
typedef struct {
    size_t size;        /* sizeof(tutti_store_t) */
    void *context;      /* passed to both functions */
    const char *prefix; /* the beginning of all keys. The caller chooses a different prefix for each
                           job, for each tutti_init, and for each tutti_comm_connect. The library
                           does not remove keys, so a prefix that was used before leads to an
                           address where no process listens any more */
    int (*set)(void *context, const char *key, const void *value, size_t bytes);
    int (*get)(void *context, const char *key, void *value, size_t capacity, size_t *ret_bytes,
               int timeout_ms);
} tutti_store_t;

/*
 * Options of tutti_init and tutti_comm_connect. Initialise with TUTTI_OPTIONS_INIT, then set
 * fields; 0 is a field's default. Later versions add fields at the end; `size` tells the library
 * which fields exist.
 */
typedef struct {
    size_t size;          /* sizeof(tutti_options_t) */
    uint32_t api_version; /* TUTTI_API_VERSION of the header the caller was built with */
    uint32_t reserved;    /* 0 */
    const void *mpi_comm; /* address of the caller's MPI_Comm, duplicated during tutti_init. NULL:
                             MPI_COMM_WORLD under an MPI launcher; without a launcher, MPI is not
                             used */
    const tutti_unique_id_t *unique_id; /* NULL, or meet by this id, without MPI; needs rank and
                                           nranks */
    const tutti_store_t *store;         /* NULL, or meet by this store, without MPI; needs rank and
                                           nranks */
    int rank, nranks; /* for unique_id and store: this process's rank, and the number of ranks;
                         otherwise 0 */
    int timeout_ms;   /* milliseconds, instead of TUTTI_TIMEOUT, for this communicator and its
                         groups: the deadline of the meeting, of direct calls, and of waits with the
                         library's own deadline. 0: TUTTI_TIMEOUT. After the meeting, all
                         ranks use rank 0's value. It does not limit MPI_Init */
    int reserved_end; /* 0 */
} tutti_options_t;

#define TUTTI_OPTIONS_INIT                                                                         \
    {                                                                                              \
        sizeof(tutti_options_t), TUTTI_API_VERSION, 0, NULL, NULL, NULL, 0, 0, 0, 0                \
    }

/*
 * Start the library: find the other ranks, connect, start the background thread.
 *
 * options  NULL for defaults; read during the call only
 *
 * Collective: every rank of the job calls it, and it returns when all are connected. Under mpirun
 * the ranks are those of MPI_COMM_WORLD, or of options->mpi_comm. If the caller has not initialised
 * MPI, Tutti does so, and finalizes it when the process exits. With unique_id or store, the ranks
 * are those that the options name, with or without a launcher. Otherwise they are those of RANK,
 * WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as under torchrun, or of a launcher's variables. A
 * process without any of these is a world of one rank, and does not use MPI. May be called again
 * after tutti_finalize, and before or after tutti_comm_connect. No other thread may be in
 * tutti_init or tutti_finalize at the same time.
 *
 * TUTTI_ERR_INVALID_ARGUMENT  already initialised; a TUTTI_* variable has an invalid value; a
 *                             unique id is damaged or was used before; or two processes have the
 *                             same rank, belong to different jobs, or have different job secrets
 * TUTTI_ERR_ABI               the version of the options or of a peer is incompatible
 * TUTTI_ERR_UNSUPPORTED       the launcher's MPI has no Tutti module; or variables such as RANK and
 *                             WORLD_SIZE show that there are other ranks, but the ranks cannot
 *                             meet; or an algorithm forced by TUTTI_ALGORITHM cannot serve this set
 *                             of ranks
 * TUTTI_ERR_TIMEOUT           a rank did not connect within TUTTI_TIMEOUT or options->timeout_ms;
 *                             MPI_Init itself waits longer, with a warning each TUTTI_STALL_WARNING
 * TUTTI_ERR_TRANSPORT         no process listens at the address of the unique id or store
 * TUTTI_ERR_SYSTEM            a function of the store failed. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_init(const tutti_options_t *options);

/*
 * End the world: the communicator of tutti_init, and its groups. Does not wait for other ranks.
 *
 * Requests still pending on this rank end with TUTTI_ERR_SHUTDOWN and stay valid for tutti_wait,
 * which frees them; peers that wait for this rank get TUTTI_ERR_SHUTDOWN as well. Between hosts,
 * data of this rank's last call may still be on their way: a peer waits 0.3 s for them, and then
 * gets TUTTI_ERR_SHUTDOWN. A tutti_barrier before this call avoids this error. The memory from
 * tutti_mem_alloc and the communicators are freed, the unique ids of this process become invalid,
 * and tutti_world() becomes NULL. A trace stops as by tutti_trace_stop, which may wait. If there is
 * no world, the call only makes the ids invalid and stops the trace. No other thread may be inside
 * a Tutti call, except calls that take requests and no communicator:
 * tutti_test, tutti_wait, tutti_wait_all, tutti_wait_any, tutti_start, tutti_start_all,
 * tutti_request_recvcounts, tutti_request_receive, tutti_request_set_buffers, tutti_request_free.
 *
 * Communicators from tutti_comm_connect and their groups are not affected: they live until
 * tutti_comm_free, and other threads may use them meanwhile. While there are any, the unique ids
 * stay valid as well. So if one library in a process uses tutti_init and another library uses
 * tutti_comm_connect, neither ends the other's communicators.
 *
 * TUTTI_ERR_INVALID_ARGUMENT: called inside a callback; nothing was ended. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_finalize(void);

/*
 * End a communicator on all its ranks. Pending and later calls return TUTTI_ERR_PEER_LOST.
 *
 * comm    the communicator to end; other communicators continue
 * reason  shown in every rank's tutti_last_error(); may be NULL; copied, cut at 200 bytes
 *
 * This call is for a rank that cannot continue (bad data, disk full) while others wait for it. It
 * returns at once and leaves the process alive; tutti_finalize still works. Any thread. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_abort(tutti_comm_t *comm, const char *reason);

/*
 * The communicator of all ranks; NULL before tutti_init and after tutti_finalize.
 *
 * It belongs to the library; do not free it. tutti_finalize makes it invalid, and the next
 * tutti_init makes another one. Any thread. Since 0.1.
 */
TUTTI_API tutti_comm_t *tutti_world(void);

/*
 * Make a communicator of ranks that meet by a unique id or a store: no parent and no world.
 *
 * options   unique_id or store, rank and nranks; mpi_comm must be NULL. Read during the call only
 * ret_comm  free it with tutti_comm_free
 *
 * This function is for libraries inside a program, such as a backend of a framework. A process may
 * have any number of such communicators, and any of them may have ranks in common. It may make them
 * before, after and without tutti_init. tutti_world() does not change, and tutti_finalize does not
 * end them. The store's prefix is the communicator's name in messages ("rank 1 of communicator
 * 'PREFIX'"). The log shows this process's rank in the world, or without a world its rank in the
 * first communicator.
 *
 * Collective over the nranks ranks; no other process takes part. Any thread may call it; several
 * threads may call it at the same time for different communicators. It delays no other call. It
 * returns when all ranks are connected. With nranks 1 and a store it waits for nothing, and sets no
 * key.
 *
 * The communicator never uses MPI: between hosts it needs the module for UCX. Its settings are
 * those of the environment of its rank 0; TUTTI_BOOT does not apply. In all other respects it is
 * like a communicator from tutti_comm_split. It may be split, and its groups end with it. On each
 * rank it has a thread (none with nranks 1 and no device) and some open files: with 4 ranks on a
 * host, 14 on its rank 0 and 10 on each other rank.
 *
 * Its device is the calling thread's current device, unless TUTTI_DEVICE_ID is set. So make the
 * device current before the call. If calls on device memory are in flight on two such communicators
 * at the same time, all ranks must make these calls in the same order, as NCCL requires; the
 * library orders only the calls of one communicator and its groups.
 *
 * After fork(), the child may call it, for ranks of its own.
 *
 * The errors are those of tutti_init, and their text begins with the communicator's name.
 * TUTTI_ERR_INVALID_ARGUMENT: also if unique_id and store are both NULL, or in a callback.
 * Since 0.1.
 */
TUTTI_API tutti_status_t tutti_comm_connect(const tutti_options_t *options,
                                            tutti_comm_t **ret_comm);

/*
 * Split a communicator: ranks that pass the same color get a new communicator.
 *
 * comm      the communicator to split; it stays valid
 * color     >= 0; TUTTI_COLOR_NONE: this rank gets no communicator
 * key       orders the ranks of the new communicator; equal keys keep the order of `comm`
 * ret_comm  free it with tutti_comm_free; NULL for TUTTI_COLOR_NONE
 *
 * Collective over `comm`, as a direct call. The new communicator is independent of `comm`. Other
 * threads may use it at the same time. It may be split, and may be freed before or after `comm`. A
 * failure of one does not end the other, unless a common rank is lost. On each rank the new
 * communicator has a thread (none with one rank and no device) and as many open files as a
 * communicator from tutti_comm_connect. Its settings are those of `comm`. Messages number the ranks
 * as in the communicator of the failed call.
 *
 * If the call fails on a rank, it fails on all ranks of its color. An invalid argument on one rank
 * is TUTTI_ERR_INVALID_ARGUMENT on all ranks of `comm`, which stays usable.
 * TUTTI_ERR_NO_MEMORY: also if a rank cannot open the files. Since 0.1.
 */
#define TUTTI_COLOR_NONE (-1)
TUTTI_API tutti_status_t tutti_comm_split(tutti_comm_t *comm, int color, int key,
                                          tutti_comm_t **ret_comm);

/*
 * Make a communicator of some ranks of `comm`: new rank i is ranks[i].
 *
 * comm      the communicator whose ranks are listed; it stays valid
 * ranks     [nranks] different from each other; the same list on all ranks
 * nranks    number of entries in `ranks`
 * ret_comm  free it with tutti_comm_free; NULL on ranks that are not in the list
 *
 * Collective over `comm`: ranks outside the list call it as well. Otherwise as tutti_comm_split.
 * TUTTI_ERR_MISMATCH: a rank passed another list. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_comm_create(tutti_comm_t *comm, const int *ranks, int nranks,
                                           tutti_comm_t **ret_comm);

/*
 * Free a communicator from tutti_comm_split, tutti_comm_create or tutti_comm_connect.
 *
 * comm  the communicator; NULL does nothing
 *
 * Local, like tutti_finalize: the call waits for no other rank, pending requests end with
 * TUTTI_ERR_SHUTDOWN, and the communicator's memory from tutti_mem_alloc is freed. Other
 * communicators continue, except the groups of a communicator from tutti_comm_connect: they end
 * with it. tutti_finalize frees all remaining groups of the world. No other thread may be inside a
 * call on `comm`, or on a group that ends with it, with the exceptions listed at tutti_finalize.
 * Any thread.
 *
 * TUTTI_ERR_INVALID_ARGUMENT: `comm` is tutti_world(), or was freed before; or the caller is a
 * callback, of this or another communicator. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_comm_free(tutti_comm_t *comm);

/*
 * Report whether a communicator is usable, without a call that needs other ranks.
 *
 * comm        the communicator
 * ret_state   TUTTI_OK: usable; otherwise it has ended, and every call on it returns this status
 * ret_text    [text_bytes] why it has ended, as tutti_last_error() would report it; "" if usable.
 *             A longer text is cut, and ends with a zero byte as well. NULL: not wanted
 * text_bytes  size of ret_text; 0: not wanted
 *
 * The state is what this rank has been told so far. A communicator that has ended does not become
 * usable again. The library's thread detects the loss of a rank within moments, even if no call is
 * pending. A peer that has called tutti_finalize or tutti_comm_free does not end the communicator
 * by itself: see "Errors" in tutti.h. Local; never blocks. Any thread, also while another thread is
 * inside a call on `comm`.
 *
 * TUTTI_ERR_INVALID_ARGUMENT: ret_state is NULL; or comm is no communicator, such as one that was
 * freed. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_comm_state(const tutti_comm_t *comm, tutti_status_t *ret_state,
                                          char *ret_text, size_t text_bytes);

/*
 * This process's rank, and the number of ranks and hosts. Ranks count from 0.
 *
 * comm  the communicator
 *
 * tutti_rank, tutti_size              among all ranks of `comm`
 * tutti_local_rank, tutti_local_size  among the ranks of this host
 * tutti_host_rank, tutti_host_count   this host among all hosts, in the order of their lowest ranks
 *
 * Returns the number; -1 if comm is NULL, was freed, or is no communicator. Any thread. Since 0.1.
 */
TUTTI_API int tutti_rank(const tutti_comm_t *comm);
TUTTI_API int tutti_size(const tutti_comm_t *comm);
TUTTI_API int tutti_local_rank(const tutti_comm_t *comm);
TUTTI_API int tutti_local_size(const tutti_comm_t *comm);
TUTTI_API int tutti_host_rank(const tutti_comm_t *comm);
TUTTI_API int tutti_host_count(const tutti_comm_t *comm);

#endif
#endif
