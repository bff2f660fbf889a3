/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that all ranks of a host can read and write, for collectives without a copy.
 */
#ifndef TUTTI_MEM_H
#ifndef TUTTI_H
#include <tutti/tutti.h> /* includes this file, in the right order */
#else
#define TUTTI_MEM_H

/*
 * Allocate memory for zero-copy collectives.
 *
 * comm     the communicator; all its ranks call together
 * bytes    may differ between ranks; 0 gives NULL
 * ret_ptr  page-aligned, filled with zero; freed by tutti_mem_free, or at the end of `comm`
 *          (tutti_comm_free, tutti_finalize)
 *
 * Collective over `comm`: all ranks call it, in the same order among direct calls. Any part of the
 * memory may be the sendbuf or recvbuf of any collective. If all ranks of a host pass such memory
 * for both buffers, the reduction reads and writes the buffers directly. After a call that failed,
 * no other rank accesses this rank's buffers. There is one exception: a rank whose work on the
 * buffers takes longer than half a second plus 1 ns per byte, for instance because it was stopped.
 *
 * TUTTI_ERR_NO_MEMORY: one machine has too little memory, or a limit is too low; all ranks get this
 * error. The call reserves the pages, so a later access does not fail for lack of memory.
 * Since 0.1.
 */
TUTTI_API tutti_status_t tutti_mem_alloc(tutti_comm_t *comm, size_t bytes, void **ret_ptr);

/*
 * Free memory from tutti_mem_alloc.
 *
 * comm  as passed to tutti_mem_alloc
 * ptr   from tutti_mem_alloc, or NULL. No rank may use it in a pending collective; a barrier before
 *       this call ensures this
 *
 * TUTTI_ERR_INVALID_ARGUMENT: `ptr` is not from tutti_mem_alloc. Local. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_mem_free(tutti_comm_t *comm, void *ptr);

/*
 * Allocate memory that collectives need not copy, as tutti_mem_alloc does, but without the other
 * ranks. This serves allocators, and buffers whose lifetime the ranks do not coordinate.
 *
 * comm     the communicator whose collectives need not copy the memory
 * bytes    0 gives NULL
 * ret_ptr  page-aligned, filled with zero; tutti_mem_free_local frees it. It remains valid after
 *          tutti_comm_free and tutti_finalize, as ordinary memory of this process
 *
 * Local: no other rank takes part. Any thread. Each call reserves pages, which takes some 0.25 ms
 * per MiB. So keep a buffer that is needed often. A forked child cannot access the memory.
 *
 * TUTTI_ERR_NO_MEMORY: the machine has too little memory, or a limit is too low. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_mem_alloc_local(tutti_comm_t *comm, size_t bytes, void **ret_ptr);

/*
 * Free memory from tutti_mem_alloc_local.
 *
 * ptr  from tutti_mem_alloc_local, or NULL. No pending call of this rank may use it. In a forked
 *      child, the call does not change memory of the parent
 *
 * TUTTI_ERR_INVALID_ARGUMENT: `ptr` is not from tutti_mem_alloc_local, or was freed before. Local.
 * Any thread, also after tutti_finalize. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_mem_free_local(void *ptr);

/*
 * Register memory of the program, so that collectives need not copy it. The memory is then used
 * like memory from tutti_mem_alloc_local. This serves programs that cannot change their allocator.
 *
 * comm   the communicator whose collectives need not copy the memory
 * ptr    the beginning of a page
 * bytes  whole pages. 0: nothing is registered, and there is nothing to unregister. The memory must
 *        be private and anonymous: from mmap, or from aligned_alloc if the block is large. It keeps
 *        its contents. The program must not unmap or free it before tutti_mem_unregister
 *
 * The call copies the contents to shared pages, and maps these pages in place of the old ones. No
 * other thread may access the memory during the call. Properties of the old pages are lost, such as
 * mlock or a NUMA policy. A child that is forked while the memory is registered cannot access it. A
 * rank can have at most 64 ranges registered with a communicator. An allgather from a separate
 * sendbuf and a reduce_scatter to a separate recvbuf still copy registered memory.
 *
 * Local: no other rank takes part. Any thread. The memory remains valid after tutti_comm_free and
 * tutti_finalize; tutti_mem_unregister is still needed before the program frees it.
 *
 * TUTTI_ERR_UNSUPPORTED: the reason is in tutti_last_error, for instance parts of pages, memory of
 * a file, a stack, the heap (brk), memory that is pinned for a device (cudaHostRegister), or too
 * many ranges. The memory is unchanged.
 * TUTTI_ERR_NO_MEMORY: as tutti_mem_alloc_local. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_mem_register(tutti_comm_t *comm, void *ptr, size_t bytes);

/*
 * Make registered memory private again. The memory keeps its contents.
 *
 * ptr  as passed to tutti_mem_register, or NULL. No pending call of this rank may use the memory,
 *      and no other thread may access it during the call. In a forked child, which cannot access
 *      the memory, the call has no effect on it
 *
 * TUTTI_ERR_INVALID_ARGUMENT: `ptr` is not registered. TUTTI_ERR_NO_MEMORY: `ptr` stays registered.
 * Local. Any thread, also after tutti_finalize. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_mem_unregister(void *ptr);

#endif
#endif
