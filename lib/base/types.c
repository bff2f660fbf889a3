/* SPDX-License-Identifier: BSD-3-Clause */
/* The library's version, and the sizes of the element types. */
#include <tutti/tutti.h>

unsigned tutti_version(void)
{
    return TUTTI_API_VERSION;
}

size_t tutti_dtype_bytes(tutti_dtype_t dtype)
{
    switch (dtype) {
    case TUTTI_INT8:
    case TUTTI_UINT8:
    case TUTTI_FLOAT8_E4M3:
    case TUTTI_FLOAT8_E5M2:
    case TUTTI_BOOL:
        return 1;
    case TUTTI_INT16:
    case TUTTI_UINT16:
    case TUTTI_FLOAT16:
    case TUTTI_BFLOAT16:
        return 2;
    case TUTTI_INT32:
    case TUTTI_UINT32:
    case TUTTI_FLOAT32:
        return 4;
    case TUTTI_INT64:
    case TUTTI_UINT64:
    case TUTTI_FLOAT64:
    case TUTTI_FLOAT32_INT32:
    case TUTTI_INT32_INT32:
        return 8;
    case TUTTI_FLOAT64_INT64:
    case TUTTI_INT64_INT64:
        return 16;
    case TUTTI_DTYPE_FORCE_INT:
        break;
    }
    return 0;
}
