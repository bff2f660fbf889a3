/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starting and ending the library; who am I among the ranks.
 */
#ifndef TUTTI_COMM_H
#define TUTTI_COMM_H

#ifndef TUTTI_H
#error "include <tutti/tutti.h>, not its parts"
#endif

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
} tutti_options_t;

#define TUTTI_OPTIONS_INIT { sizeof(tutti_options_t), TUTTI_API_VERSION, 0, NULL }

/*
 * Start the library: find the other ranks, connect, start the background thread.
 *
 * options  NULL, or how to start; read during the call only
 *
 * Collective: every rank of the job calls it, and it returns when all are connected. Under mpirun
 * the ranks are those of MPI_COMM_WORLD (or of options->mpi_comm); a process that no launcher
 * started is a world of one, and MPI is not touched. MPI is initialised if the caller has not done
 * so, and then finalized when the process exits. May be called again after tutti_finalize. Not
 * thread-safe against itself and tutti_finalize.
 *
 * TUTTI_ERR_INVALID_ARGUMENT  already initialised; or a TUTTI_* variable makes no sense
 * TUTTI_ERR_ABI               options or a peer come from a version that does not fit
 * TUTTI_ERR_UNSUPPORTED       started by a launcher whose MPI has no Tutti module; or an algorithm
 *                             forced by TUTTI_ALGORITHM that cannot serve this set of ranks
 * TUTTI_ERR_TIMEOUT           a rank did not come within TUTTI_TIMEOUT. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_init(const tutti_options_t *options);

/*
 * End the library. Does not wait for other ranks.
 *
 * Requests still pending on this rank end with TUTTI_ERR_SHUTDOWN and stay valid for tutti_wait,
 * which frees them; peers that wait for this rank get TUTTI_ERR_SHUTDOWN too. Memory from
 * tutti_mem_alloc is freed and tutti_world() becomes NULL. Without tutti_init: no effect, TUTTI_OK.
 * No other thread may be inside a Tutti call except tutti_wait and tutti_test. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_finalize(void);

/*
 * Give up: end all pending and later calls on all ranks with TUTTI_ERR_PEER_LOST.
 *
 * comm    the communicator to end
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
 * Belongs to the library; do not free. Any thread. Since 0.1.
 */
TUTTI_API tutti_comm_t *tutti_world(void);

/*
 * Where this process stands. Numbers count from 0.
 *
 * rank, size              among all ranks of `comm`
 * local_rank, local_size  among the ranks of this host
 * host_rank, host_count   this host among all hosts, in the order of their lowest ranks
 *
 * Answer -1 if comm is NULL. Any thread. Since 0.1.
 */
TUTTI_API int tutti_rank(const tutti_comm_t *comm);
TUTTI_API int tutti_size(const tutti_comm_t *comm);
TUTTI_API int tutti_local_rank(const tutti_comm_t *comm);
TUTTI_API int tutti_local_size(const tutti_comm_t *comm);
TUTTI_API int tutti_host_rank(const tutti_comm_t *comm);
TUTTI_API int tutti_host_count(const tutti_comm_t *comm);

#endif
