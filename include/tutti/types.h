/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Status codes, element types and reduction operations.
 *
 * All numbers here are part of the ABI: they are never reused and never change. 0 is a success, or
 * "not given", so that zeroed structures mean defaults.
 */
#ifndef TUTTI_TYPES_H
#ifndef TUTTI_H
#include <tutti/tutti.h> /* includes this file, in its place */
#else
#define TUTTI_TYPES_H

/*
 * What a call answers. The one list of numbers and texts: X(name, number, text).
 *
 * INVALID_ARGUMENT  the call makes no sense; nothing was done
 * MISMATCH          ranks came with different calls; where that was found before data moved, no
 *                   recvbuf was changed and the communicator stays usable (see tutti.h)
 * PEER_LOST         a rank died, or called tutti_abort; the communicator is dead
 * TIMEOUT           a deadline passed; from a wait with the caller's own the request lives on
 * SHUTDOWN          the library, or a peer's, was finalized while the call was pending
 * UNSUPPORTED       valid, but this build, machine or setting cannot do it
 * NO_MEMORY         memory, shared memory or its limit is exhausted
 * SYSTEM            the operating system refused something
 * TRANSPORT         MPI or the network failed
 * ABI               caller and library, or two ranks, do not fit in version
 * INTERNAL          a bug in Tutti
 */
#define TUTTI_STATUS_LIST(X)                                                                       \
    X(TUTTI_OK, 0, "success")                                                                      \
    X(TUTTI_ERR_INVALID_ARGUMENT, 1, "invalid argument")                                           \
    X(TUTTI_ERR_MISMATCH, 2, "ranks came with different calls")                                    \
    X(TUTTI_ERR_PEER_LOST, 3, "a peer was lost")                                                   \
    X(TUTTI_ERR_TIMEOUT, 4, "timed out")                                                           \
    X(TUTTI_ERR_SHUTDOWN, 5, "shut down")                                                          \
    X(TUTTI_ERR_UNSUPPORTED, 6, "not supported")                                                   \
    X(TUTTI_ERR_NO_MEMORY, 7, "out of memory")                                                     \
    X(TUTTI_ERR_SYSTEM, 8, "system call failed")                                                   \
    X(TUTTI_ERR_TRANSPORT, 9, "transport failed")                                                  \
    X(TUTTI_ERR_ABI, 10, "versions do not fit")                                                    \
    X(TUTTI_ERR_INTERNAL, 11, "internal error")

typedef enum {
#define TUTTI_STATUS_ENUM(name, number, text) name = number,
    TUTTI_STATUS_LIST(TUTTI_STATUS_ENUM)
#undef TUTTI_STATUS_ENUM
        TUTTI_STATUS_FORCE_INT = 0x7fffffff
} tutti_status_t;

/*
 * Element types.
 *
 * FLOAT16 is IEEE binary16, BFLOAT16 the upper half of a FLOAT32; FLOAT8_E4M3 (no infinity, largest
 * 448) and FLOAT8_E5M2 are those of the OCP 8-bit floating point specification. Within one pass
 * over several ranks' data these four are kept in float32 and rounded once, to nearest even; what
 * is larger than the type can hold becomes infinity, or NaN where there is none.
 *
 * BOOL is one byte; everything but 0 is true, results are 0 or 1.
 *
 * The last four are pairs of a value and an index, for MINLOC and MAXLOC only, laid out as a
 * C structure of the two.
 */
typedef enum {
    TUTTI_INT8 = 1,
    TUTTI_UINT8 = 2,
    TUTTI_INT16 = 3,
    TUTTI_UINT16 = 4,
    TUTTI_INT32 = 5,
    TUTTI_UINT32 = 6,
    TUTTI_INT64 = 7,
    TUTTI_UINT64 = 8,
    TUTTI_FLOAT16 = 9,
    TUTTI_BFLOAT16 = 10,
    TUTTI_FLOAT32 = 11,
    TUTTI_FLOAT64 = 12,
    TUTTI_FLOAT8_E4M3 = 13,
    TUTTI_FLOAT8_E5M2 = 14,
    TUTTI_BOOL = 15,
    TUTTI_FLOAT32_INT32 = 16,
    TUTTI_FLOAT64_INT64 = 17,
    TUTTI_INT32_INT32 = 18,
    TUTTI_INT64_INT64 = 19,
    TUTTI_DTYPE_FORCE_INT = 0x7fffffff
} tutti_dtype_t;

/*
 * Reduction operations, and the types they are for; other pairs answer TUTTI_ERR_UNSUPPORTED.
 *
 *   SUM, PROD        all numbers; integers wrap around. Of BOOL, SUM is or, PROD is and
 *   AVG              all numbers, not BOOL: the sum divided by the number of ranks. For integers
 *                    the sum wraps around and the quotient is truncated toward zero
 *   MIN, MAX         all numbers: NaN if any operand is a NaN; -0 is less than +0. Of BOOL, MIN is
 *                    and, MAX is or
 *   BAND, BOR, BXOR  integers and BOOL: bit by bit
 *   LAND, LOR, LXOR  integers and BOOL: 0 is false, all else true; results are 0 or 1
 *   MINLOC, MAXLOC   pairs: the least or largest value with its index; of equal values the lowest
 *                    index; -0 is less than +0; a NaN wins over all numbers, of several the lowest
 *                    index
 *
 * All of them give the same bits in whatever order two operands stand. A single operand (of a world
 * of one, or rank 0's of a scan) is copied as it is. tutti_op_create makes more.
 */
typedef enum {
    TUTTI_SUM = 1,
    TUTTI_AVG = 2,
    TUTTI_MIN = 3,
    TUTTI_MAX = 4,
    TUTTI_PROD = 5,
    TUTTI_BAND = 6,
    TUTTI_BOR = 7,
    TUTTI_BXOR = 8,
    TUTTI_LAND = 9,
    TUTTI_LOR = 10,
    TUTTI_LXOR = 11,
    TUTTI_MINLOC = 12,
    TUTTI_MAXLOC = 13,
    TUTTI_OP_FORCE_INT = 0x7fffffff
} tutti_op_t;

/*
 * An operation of the caller's own: dst[i] = left[i] (op) right[i] for `count` elements.
 *
 * dst      may be `left` or `right` itself; else they do not overlap. No alignment is promised
 *          beyond that of the buffers of the call
 * dtype    of the call
 * context  as given to tutti_op_create
 *
 * Must be associative. Called on the thread that makes the collective call, or on the library's for
 * asynchronous ones; several threads may be in it at once. It must not call Tutti.
 */
typedef void (*tutti_op_function_t)(void *dst, const void *left, const void *right, size_t count,
                                    tutti_dtype_t dtype, void *context);

/*
 * Make an operation from a function.
 *
 * function     the operation
 * context      handed to it with each call
 * commutative  0: operands always stand in the order of their ranks, lower ranks left. This limits
 *              the algorithms that serve it
 * ret_op       to be passed as `op` to any reducing call, with any type
 *
 * Local: every rank makes its own. Ranks that call together must have the same number for it, as
 * numbers are what is compared. A process gives the lowest that is free; so make and free
 * operations in the same order on all ranks, those too that only a group of ranks uses.
 * TUTTI_ERR_NO_MEMORY: there are 1024 already. Any thread. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_op_create(tutti_op_function_t function, void *context,
                                         int commutative, tutti_op_t *ret_op);

/*
 * Forget an operation from tutti_op_create; no call that uses it may be pending.
 *
 * op  its number
 *
 * TUTTI_ERR_INVALID_ARGUMENT: it is none. Its number may be given again. Any thread. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_op_free(tutti_op_t op);

/* A group of ranks that call collectives together. Opaque, and no address: see "Handles" in
   tutti.h. */
typedef struct tutti_comm tutti_comm_t;

/* One asynchronous operation, from its start until tutti_wait. Opaque, and no address. */
typedef struct tutti_request tutti_request_t;

/*
 * The name of a status, such as "a peer was lost"; for numbers it does not know "unknown status".
 *
 * status  what a call has returned
 *
 * The text belongs to the library and lives for ever. Any thread, any time. Since 0.1.
 */
TUTTI_API const char *tutti_strerror(tutti_status_t status);

/*
 * The calling thread's last failure in words: what failed, with which rank or tensor, and why.
 * "" if no call of this thread failed yet.
 *
 * The text belongs to the library and is valid until this thread's next failing call. Since 0.1.
 */
TUTTI_API const char *tutti_last_error(void);

/*
 * The size of one element in bytes, or 0 if `dtype` is no element type.
 *
 * dtype  the type of the element
 *
 * Any thread, any time. Since 0.1.
 */
TUTTI_API size_t tutti_dtype_bytes(tutti_dtype_t dtype);

/*
 * The name of an element type in messages, such as "float32"; "unknown type" if `dtype` is none.
 *
 * dtype  the type of the element
 *
 * The text belongs to the library and lives for ever. Any thread, any time. Since 0.1.
 */
TUTTI_API const char *tutti_dtype_name(tutti_dtype_t dtype);

/*
 * The name of an operation in messages, such as "sum"; "user operation" for a number that
 * tutti_op_create may give, and "unknown operation" for all others.
 *
 * op  the operation
 *
 * The text belongs to the library and lives for ever. Any thread, any time. Since 0.1.
 */
TUTTI_API const char *tutti_op_name(tutti_op_t op);

#endif
#endif
