/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Status codes, element types and reduction operations.
 *
 * All numbers here are part of the ABI: they are never reused and never change. 0 means success or
 * "not given", so a zeroed structure has the defaults.
 */
#ifndef TUTTI_TYPES_H
#ifndef TUTTI_H
#include <tutti/tutti.h> /* includes this file, in the right order */
#else
#define TUTTI_TYPES_H

/*
 * Status codes of all calls. This is the only list of numbers and texts: X(name, number, text).
 *
 * INVALID_ARGUMENT  an argument or a setting is invalid, or the call is not allowed here; nothing
 *                   was done
 * MISMATCH          ranks made different calls. If this was found before data moved, no recvbuf was
 *                   changed and the communicator stays usable (see tutti.h)
 * PEER_LOST         a rank died, or called tutti_abort; the communicator is dead
 * TIMEOUT           a deadline passed. If it was the timeout_ms of a wait, the request continues
 * SHUTDOWN          this rank or a peer called tutti_finalize or tutti_comm_free while the call was
 *                   pending
 * UNSUPPORTED       the call is valid, but this build, machine or setting cannot do it
 * NO_MEMORY         memory, shared memory or a limit, such as that of open files, is exhausted
 * SYSTEM            a system call failed
 * TRANSPORT         MPI or the network failed
 * ABI               the versions of caller and library, or of two ranks, are incompatible
 * INTERNAL          a bug in Tutti
 */
#define TUTTI_STATUS_LIST(X)                                                                       \
    X(TUTTI_OK, 0, "success")                                                                      \
    X(TUTTI_ERR_INVALID_ARGUMENT, 1, "invalid argument")                                           \
    X(TUTTI_ERR_MISMATCH, 2, "ranks made different calls")                                         \
    X(TUTTI_ERR_PEER_LOST, 3, "a peer was lost")                                                   \
    X(TUTTI_ERR_TIMEOUT, 4, "timed out")                                                           \
    X(TUTTI_ERR_SHUTDOWN, 5, "shut down")                                                          \
    X(TUTTI_ERR_UNSUPPORTED, 6, "not supported")                                                   \
    X(TUTTI_ERR_NO_MEMORY, 7, "memory or a limit is exhausted")                                    \
    X(TUTTI_ERR_SYSTEM, 8, "system call failed")                                                   \
    X(TUTTI_ERR_TRANSPORT, 9, "transport failed")                                                  \
    X(TUTTI_ERR_ABI, 10, "incompatible versions")                                                  \
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
 * FLOAT16 is IEEE binary16. BFLOAT16 is the upper half of a FLOAT32. FLOAT8_E4M3 (no infinity,
 * largest value 448) and FLOAT8_E5M2 follow the OCP 8-bit floating point specification. Operands of
 * these four types are combined in float32. A step of a reduction combines the operands of two or
 * more ranks, and rounds the result once, to nearest even. A result above the type's largest value
 * becomes infinity, or NaN if the type has no infinity.
 *
 * BOOL is one byte: 0 is false, all other values are true. Results are 0 or 1.
 *
 * The last four types are pairs of a value and an index, for MINLOC and MAXLOC only. Their layout
 * is that of a C structure: first the value, then the index.
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
 * Reduction operations and their element types. Other combinations return TUTTI_ERR_UNSUPPORTED.
 *
 *   SUM, PROD        all numbers; integers wrap around. For BOOL, SUM is LOR, PROD is LAND
 *   AVG              all numbers, not BOOL: the sum divided by the number of ranks. For integers
 *                    the sum wraps around and the quotient is truncated toward zero
 *   MIN, MAX         all numbers: NaN if any operand is a NaN; -0 is less than +0. For BOOL, MIN is
 *                    LAND, MAX is LOR
 *   BAND, BOR, BXOR  integers and BOOL: bit by bit
 *   LAND, LOR, LXOR  integers and BOOL: 0 is false, all other values are true; results are 0 or 1
 *   MINLOC, MAXLOC   pairs: the least or largest value with its index. If values are equal, the
 *                    lowest index wins; -0 is less than +0. A NaN wins over all numbers; if there
 *                    are several NaNs, the lowest index wins
 *
 * Swapping two operands does not change any bit of the result. A single operand (a world of one
 * rank, or rank 0 of a scan) is copied unchanged. tutti_op_create makes further operations.
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
 * dst      equal to `left` or to `right`, or overlaps neither of them. The three buffers may be
 *          aligned no better than the buffers of the call
 * dtype    the call's element type
 * context  the pointer passed to tutti_op_create
 *
 * The operation must be associative. A direct call runs it on the calling thread; an asynchronous
 * call runs it on the library's thread or on a waiting thread. Several threads may run it at the
 * same time. It must not call Tutti.
 */
typedef void (*tutti_op_function_t)(void *dst, const void *left, const void *right, size_t count,
                                    tutti_dtype_t dtype, void *context);

/*
 * Make an operation from a function.
 *
 * function     the operation
 * context      passed to each call of `function`
 * commutative  0: operands are always in the order of their ranks, lower ranks left. Fewer
 *              algorithms support such an operation
 * ret_op       valid as `op` of any reducing call, with any type
 *
 * Local: every rank makes the operation for itself. The ranks of a call compare the numbers of
 * their operations, so an operation must have the same number on all ranks. A process assigns the
 * lowest free number. So create and free operations in the same order on all ranks, even if only
 * some ranks use them. TUTTI_ERR_NO_MEMORY: 1024 operations exist already. Any thread. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_op_create(tutti_op_function_t function, void *context,
                                         int commutative, tutti_op_t *ret_op);

/*
 * Free an operation from tutti_op_create; no call that uses it may be pending.
 *
 * op  the operation's number; tutti_op_create may assign it again
 *
 * TUTTI_ERR_INVALID_ARGUMENT: `op` is not from tutti_op_create. Any thread. Since 0.1.
 */
TUTTI_API tutti_status_t tutti_op_free(tutti_op_t op);

/* A set of ranks that make collective calls together. Opaque, and not an address: see "Handles" in
   tutti.h. */
typedef struct tutti_comm tutti_comm_t;

/* One asynchronous operation, from its start until tutti_wait. Opaque, and not an address. */
typedef struct tutti_request tutti_request_t;

/*
 * The text of a status, such as "a peer was lost"; "unknown status" if `status` is no status.
 *
 * status  the return value of a call
 *
 * The text belongs to the library and stays valid. Any thread, any time. Since 0.1.
 */
TUTTI_API const char *tutti_strerror(tutti_status_t status);

/*
 * The text of the calling thread's last error: the failed call, the rank or tensor, and the cause.
 * "" if no call of this thread has failed.
 *
 * The text belongs to the library and is valid until this thread's next failing call. Since 0.1.
 */
TUTTI_API const char *tutti_last_error(void);

/*
 * The size of one element in bytes, or 0 if `dtype` is not an element type.
 *
 * dtype  the type of the element
 *
 * Any thread, any time. Since 0.1.
 */
TUTTI_API size_t tutti_dtype_bytes(tutti_dtype_t dtype);

/*
 * The name of an element type in messages, such as "float32"; "unknown type" if `dtype` is not an
 * element type.
 *
 * dtype  the type of the element
 *
 * The text belongs to the library and stays valid. Any thread, any time. Since 0.1.
 */
TUTTI_API const char *tutti_dtype_name(tutti_dtype_t dtype);

/*
 * The name of an operation in messages, such as "sum"; "user operation" for a number that
 * tutti_op_create may give, and "unknown operation" for all others.
 *
 * op  the operation
 *
 * The text belongs to the library and stays valid. Any thread, any time. Since 0.1.
 */
TUTTI_API const char *tutti_op_name(tutti_op_t op);

#endif
#endif
