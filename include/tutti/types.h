/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Status codes, element types and reduction operations.
 *
 * All numbers here are part of the ABI: they are never reused and never change. 0 is a success, or
 * "not given", so that zeroed structures mean defaults.
 */
#ifndef TUTTI_TYPES_H
#define TUTTI_TYPES_H

#ifndef TUTTI_H
#error "include <tutti/tutti.h>, not its parts"
#endif

/*
 * What a call answers. The one list of numbers and texts: X(name, number, text).
 *
 * INVALID_ARGUMENT  the call makes no sense; nothing was done
 * MISMATCH          ranks came with different calls; where that was found before data moved, no
 *                   recvbuf was changed and the communicator stays usable (see tutti.h)
 * PEER_LOST         a rank died, or called tutti_abort; the communicator is dead
 * TIMEOUT           a deadline passed; from tutti_wait with a timeout the request lives on
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
 * Element types. In this version FLOAT32, FLOAT64, INT32, INT64, UINT8 and BFLOAT16 are served;
 * the others answer TUTTI_ERR_UNSUPPORTED.
 *
 * BFLOAT16 is the upper half of a FLOAT32. Within one pass over several ranks' data its sums are
 * kept in float32 and rounded once, to nearest even.
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
    TUTTI_DTYPE_FORCE_INT = 0x7fffffff
} tutti_dtype_t;

/*
 * Reduction operations. In this version SUM, AVG, MIN and MAX are served; the others answer
 * TUTTI_ERR_UNSUPPORTED.
 *
 * AVG is the sum divided by the number of ranks; for integers the quotient is truncated toward
 * zero. Integer sums wrap around, the sum inside an AVG too. MIN and MAX propagate NaN.
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
    TUTTI_OP_FORCE_INT = 0x7fffffff
} tutti_op_t;

/* A group of ranks that call collectives together. Opaque; belongs to the library. */
typedef struct tutti_comm tutti_comm_t;

/* One asynchronous operation, from its start until tutti_wait. Opaque. */
typedef struct tutti_request tutti_request_t;

/*
 * The name of a status, such as "a peer was lost"; for numbers it does not know "unknown status".
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
 * Any thread, any time. Since 0.1.
 */
TUTTI_API size_t tutti_dtype_bytes(tutti_dtype_t dtype);

#endif
