/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Nails down every size, offset and number that programs were compiled with.
 *
 * A change here breaks programs that exist. New fields and numbers get a line of their own; lines
 * that are here stay. It passes by compiling.
 */
#include <tutti/tutti.h>

#include <stddef.h>

#define NUMBER(name, value) _Static_assert((name) == (value), #name " has changed")
#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), "size of " #type " has changed")
#define OFFSET(type, field, bytes)                                                                 \
    _Static_assert(offsetof(type, field) == (bytes), #type "." #field " has moved")

SIZE(tutti_options_t, 2 * sizeof(size_t) + 8);
OFFSET(tutti_options_t, size, 0);
OFFSET(tutti_options_t, api_version, sizeof(size_t));
OFFSET(tutti_options_t, reserved, sizeof(size_t) + 4);
OFFSET(tutti_options_t, mpi_comm, sizeof(size_t) + 8);

SIZE(tutti_async_options_t, sizeof(size_t));
OFFSET(tutti_async_options_t, size, 0);

SIZE(tutti_status_t, 4);
NUMBER(TUTTI_OK, 0);
NUMBER(TUTTI_ERR_INVALID_ARGUMENT, 1);
NUMBER(TUTTI_ERR_MISMATCH, 2);
NUMBER(TUTTI_ERR_PEER_LOST, 3);
NUMBER(TUTTI_ERR_TIMEOUT, 4);
NUMBER(TUTTI_ERR_SHUTDOWN, 5);
NUMBER(TUTTI_ERR_UNSUPPORTED, 6);
NUMBER(TUTTI_ERR_NO_MEMORY, 7);
NUMBER(TUTTI_ERR_SYSTEM, 8);
NUMBER(TUTTI_ERR_TRANSPORT, 9);
NUMBER(TUTTI_ERR_ABI, 10);
NUMBER(TUTTI_ERR_INTERNAL, 11);
NUMBER(TUTTI_STATUS_FORCE_INT, 0x7fffffff);

SIZE(tutti_dtype_t, 4);
NUMBER(TUTTI_INT8, 1);
NUMBER(TUTTI_UINT8, 2);
NUMBER(TUTTI_INT16, 3);
NUMBER(TUTTI_UINT16, 4);
NUMBER(TUTTI_INT32, 5);
NUMBER(TUTTI_UINT32, 6);
NUMBER(TUTTI_INT64, 7);
NUMBER(TUTTI_UINT64, 8);
NUMBER(TUTTI_FLOAT16, 9);
NUMBER(TUTTI_BFLOAT16, 10);
NUMBER(TUTTI_FLOAT32, 11);
NUMBER(TUTTI_FLOAT64, 12);
NUMBER(TUTTI_FLOAT8_E4M3, 13);
NUMBER(TUTTI_FLOAT8_E5M2, 14);
NUMBER(TUTTI_BOOL, 15);
NUMBER(TUTTI_DTYPE_FORCE_INT, 0x7fffffff);

SIZE(tutti_op_t, 4);
NUMBER(TUTTI_SUM, 1);
NUMBER(TUTTI_AVG, 2);
NUMBER(TUTTI_MIN, 3);
NUMBER(TUTTI_MAX, 4);
NUMBER(TUTTI_PROD, 5);
NUMBER(TUTTI_BAND, 6);
NUMBER(TUTTI_BOR, 7);
NUMBER(TUTTI_BXOR, 8);
NUMBER(TUTTI_OP_FORCE_INT, 0x7fffffff);

int main(void)
{
    return 0;
}
