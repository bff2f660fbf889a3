/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starting and ending the library; who am I among the ranks.
 */
#ifndef TUTTI_COMM_H
#ifndef TUTTI_H
#include <tutti/tutti.h> /* includes this file, in its place */
#else
#define TUTTI_COMM_H

/*
 * What ranks without a launcher have in common: where to meet, and a secret that lets them in. One
 * process makes it; the program carries it to the ranks by its own means, as with NCCL's. Plain
 * bytes, which may be copied, stored and sent; to be kept as secret as a password.
 */
typedef struct {
    char bytes[128];
} tutti_unique_id_t;

/*
 * Make an id. One process calls it: any of the ranks, or one that is no rank, such as the program
 * that starts them. It serves the meeting from a thread of its own, so it must not end or call
 * tutti_finalize before all ranks have come; how long it waits for the last one, once the first has
 * come, is its TUTTI_TIMEOUT. A child of fork() does not go on serving.
 *
 * An id is for one tutti_init on all ranks; a second use of it is an error there. Each takes a
 * thread and a socket until this process calls tutti_finalize, or ends.
 *
 * ret_id  to be carried to all ranks
 *
 * TUTTI_INTERFACE chooses the network interface. Any thread, but not during tutti_finalize.
 * Since 0.1.
 */
TUTTI_API tutti_status_t tutti_unique_id_create(tutti_unique_id_t *ret_id);

/*
 * A key-value store of the caller's (etcd, Redis, a shared folder, a launcher's), by which ranks
 * find each other. Initialise with zero, then set all fields. Called during tutti_init only, on its
 * thread: rank 0 sets one key, the others get it. Whoever can read the store can join the job.
 *
 * set  keep `bytes` bytes, below 1024, under `key`, all at once; 0 if done
 * get  wait until `key` is there, at most timeout_ms; copy it to `value`, which has room for
 *      `room` bytes, and set *ret_bytes; 0 if done, else a number that the error then shows
 */
typedef struct {
    size_t size;        /* sizeof(tutti_store_t) */
    void *context;      /* handed to the functions */
    const char *prefix; /* of all keys: different for each job, and each tutti_init */
    int (*set)(void *context, const char *key, const void *value, size_t bytes);
    int (*get)(void *context, const char *key, void *value, size_t room, size_t *ret_bytes,
               int timeout_ms);
} tutti_store_t;

/*
 * How to start. Initialise with TUTTI_OPTIONS_INIT, then set fields; a field of 0 means its
 * default. Later versions add fields at the end; `size` tells the library how many there are.
 */
typedef struct {
    size_t size;          /* sizeof(tutti_options_t) */
    uint32_t api_version; /* TUTTI_API_VERSION of the header the caller was built with */
    uint32_t reserved;    /* 0 */
    const void *mpi_comm; /* address of the caller's MPI_Comm, duplicated during tutti_init; NULL:
                             MPI_COMM_WORLD under an MPI launcher, else no MPI */
    const tutti_unique_id_t *unique_id; /* or NULL: meet by this id, without MPI; needs rank and
                                           nranks */
    const tutti_store_t *store;         /* or NULL: meet by this store, without MPI; the same */
    int rank, nranks;                   /* of this process, for unique_id and store; else 0 */
} tutti_options_t;

#define TUTTI_OPTIONS_INIT                                                                         \
    {                                                                                              \
        sizeof(tutti_options_t), TUTTI_API_VERSION, 0, NULL, NULL, NULL, 0, 0                      \
    }

/*
 * Start the library: find the other ranks, connect, start the background thread.
 *
 * options  NULL, or how to start; read during the call only
 *
 * Collective: every rank of the job calls it, and it returns when all are connected. Under mpirun
 * the ranks are those of MPI_COMM_WORLD (or of options->mpi_comm); a process that no launcher
 * started is a world of one, and MPI is not touched. MPI is initialised if the caller has not done
 * so, and then finalized when the process exits. With unique_id or store the ranks are those that
 * the callers say, whatever started them. May be called again after tutti_finalize. Not thread-safe
 * against itself and tutti_finalize.
 *
 * TUTTI_ERR_INVALID_ARGUMENT  already initialised; a TUTTI_* variable makes no sense; or a unique
 *                             id is damaged or was used before, or two processes are one rank
 * TUTTI_ERR_ABI               options or a peer come from a version that does not fit
 * TUTTI_ERR_UNSUPPORTED       started by a launcher whose MPI has no Tutti module; or variables
 *                             such as RANK and WORLD_SIZE name other ranks, but no way to meet
 *                             them; or an algorithm forced by TUTTI_ALGORITHM that cannot serve
 *                             this set of ranks
 * TUTTI_ERR_TIMEOUT           a rank did not come within TUTTI_TIMEOUT; MPI_Init itself waits
 *                             longer, with a warning each TUTTI_STALL_WARNING
 * TUTTI_ERR_TRANSPORT         nobody listens any more where a unique id or a store leads
 * TUTTI_ERR_SYSTEM            a function of the store failed. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_init(const tutti_options_t *options);

/*
 * End the library. Does not wait for other ranks.
 *
 * Requests still pending on this rank end with TUTTI_ERR_SHUTDOWN and stay valid for tutti_wait,
 * which frees them; peers that wait for this rank get TUTTI_ERR_SHUTDOWN too. Memory from
 * tutti_mem_alloc and communicators that are left are freed, unique ids of this process end, and
 * tutti_world() becomes NULL. Without tutti_init there are only ids to end. No other thread may be
 * inside a Tutti call, except those that take requests and no communicator: tutti_test, tutti_wait,
 * tutti_wait_all, tutti_wait_any, tutti_start, tutti_request_recvcounts, tutti_request_receive.
 *
 * TUTTI_ERR_INVALID_ARGUMENT: inside a callback, where nothing is ended. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_finalize(void);

/*
 * Give up: end all pending and later calls on all ranks of `comm` with TUTTI_ERR_PEER_LOST.
 *
 * comm    the communicator to end; others live on
 * reason  what went wrong, shown in every rank's tutti_last_error(); NULL: no reason given;
 *         copied, cut at 200 bytes
 *
 * For a rank that cannot go on (bad data, out of disk) while others wait for it. Returns at once
 * and leaves the process alive; tutti_finalize still works. Any thread. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_abort(tutti_comm_t *comm, const char *reason);

/*
 * The communicator of all ranks; NULL before tutti_init and after tutti_finalize.
 *
 * Belongs to the library; do not free. Not valid after tutti_finalize, nor after a new tutti_init,
 * which makes another one. Any thread. Since 0.1.
 */
TUTTI_API tutti_comm_t *tutti_world(void);

/*
 * Make communicators of parts of `comm`: ranks that give the same color get one together.
 *
 * comm      the communicator to split; it stays
 * color     >= 0; TUTTI_COLOR_NONE: this rank is in none of them
 * key       orders the ranks of the new communicator; equal keys keep the order of `comm`
 * ret_comm  to be freed with tutti_comm_free; NULL for TUTTI_COLOR_NONE
 *
 * Collective over `comm`, as a direct call. The new communicator is independent: other threads may
 * use it at the same time, it may be split and freed whatever becomes of `comm`, and a failure of
 * one does not end the other unless a rank they share is lost. It has rank 0's settings of the
 * world, a thread and some ten files (tests: 12 with 4 ranks on a host) on each rank. In messages
 * ranks are numbered as in the communicator that they are about.
 *
 * Fails on all ranks of a color together. What makes no sense on one rank is
 * TUTTI_ERR_INVALID_ARGUMENT on all of `comm`, which goes on.
 * TUTTI_ERR_NO_MEMORY: also where a rank cannot open as many files. Since 0.1.
 */
#define TUTTI_COLOR_NONE (-1)
TUTTI_API tutti_status_t tutti_comm_split(tutti_comm_t *comm, int color, int key,
                                          tutti_comm_t **ret_comm);

/*
 * Make a communicator of some ranks of `comm`: new rank i is ranks[i].
 *
 * comm      the communicator whose ranks they are; it stays
 * ranks     [nranks] different from each other; the same list on all ranks
 * nranks    how many there are
 * ret_comm  to be freed with tutti_comm_free; NULL on ranks that are not in the list
 *
 * Collective over `comm`, members or not; otherwise as tutti_comm_split.
 * TUTTI_ERR_MISMATCH: a rank gave another list. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_comm_create(tutti_comm_t *comm, const int *ranks, int nranks,
                                           tutti_comm_t **ret_comm);

/*
 * Free a communicator from tutti_comm_split or tutti_comm_create.
 *
 * comm  the communicator; NULL is fine
 *
 * As tutti_finalize does it for the world: local, waits for nobody, pending requests end with
 * TUTTI_ERR_SHUTDOWN, its memory from tutti_mem_alloc is freed. Other communicators go on.
 * tutti_finalize frees what is left. No other thread may be inside a call on it, with the
 * exceptions of tutti_finalize. Any thread.
 *
 * TUTTI_ERR_INVALID_ARGUMENT: comm is tutti_world(), or was freed already; or the caller is a
 * callback, of whichever communicator. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_comm_free(tutti_comm_t *comm);

/*
 * Is a communicator usable? Found out without a call that needs other ranks.
 *
 * comm        the communicator
 * ret_state   TUTTI_OK: usable; else it has ended, and this is the status of every call on it
 * ret_text    [text_bytes] why it has ended, as tutti_last_error() would report it; "" if usable;
 *             cut to fit, with its end. NULL: not wanted
 * text_bytes  room in ret_text; 0: not wanted
 *
 * This is what the rank has been told so far, and an end is final. The library's thread receives
 * the loss of a rank within moments, even if no call is pending. A peer that has called
 * tutti_finalize or tutti_comm_free does not end the communicator by itself: see "Errors" in
 * tutti.h. Local; never blocks. Any thread, also while another thread is inside a call on `comm`.
 *
 * TUTTI_ERR_INVALID_ARGUMENT: ret_state is NULL; or comm is no communicator, such as one that was
 * freed. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_comm_state(const tutti_comm_t *comm, tutti_status_t *ret_state,
                                          char *ret_text, size_t text_bytes);

/*
 * Where this process stands among the ranks. Numbers count from 0.
 *
 * comm  the communicator whose ranks are meant
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
