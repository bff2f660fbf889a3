/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that the other ranks of the host can read and write: collectives need not copy it.
 */
#ifndef TUTTI_MEM_H
#ifndef TUTTI_H
#include <tutti/tutti.h> /* includes this file, in its place */
#else
#define TUTTI_MEM_H

/*
 * Allocate memory for zero-copy collectives.
 *
 * comm     the communicator whose ranks call it together
 * bytes    may differ between ranks; 0 gives NULL
 * ret_ptr  page-aligned, filled with zero; free with tutti_mem_free, or leave it to tutti_finalize
 *
 * Collective over `comm`: call it on all ranks, in the same order among direct calls. Any part of
 * it may be passed to any collective, as sendbuf and recvbuf; where all ranks of a host do so for
 * both, the reduction reads and writes the buffers directly.
 *
 * TUTTI_ERR_NO_MEMORY: on all ranks, if the machine or a limit does not have the memory, which is
 * reserved at once. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_mem_alloc(tutti_comm_t *comm, size_t bytes, void **ret_ptr);

/*
 * Free memory from tutti_mem_alloc.
 *
 * comm  as given to tutti_mem_alloc
 * ptr   as returned, or NULL. No rank may still use it in a collective: a barrier before this call
 *       ensures it
 *
 * TUTTI_ERR_INVALID_ARGUMENT: ptr is not from tutti_mem_alloc. Local. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_mem_free(tutti_comm_t *comm, void *ptr);

#endif
#endif
