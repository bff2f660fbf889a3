/* SPDX-License-Identifier: BSD-3-Clause */
/* See names.h. */
#include "base/names.h"

const char *tutti__dtype_name(tutti_dtype_t dtype)
{
    static const char *const names[] = {
        [TUTTI_INT8] = "int8",
        [TUTTI_UINT8] = "uint8",
        [TUTTI_INT16] = "int16",
        [TUTTI_UINT16] = "uint16",
        [TUTTI_INT32] = "int32",
        [TUTTI_UINT32] = "uint32",
        [TUTTI_INT64] = "int64",
        [TUTTI_UINT64] = "uint64",
        [TUTTI_FLOAT16] = "float16",
        [TUTTI_BFLOAT16] = "bfloat16",
        [TUTTI_FLOAT32] = "float32",
        [TUTTI_FLOAT64] = "float64",
        [TUTTI_FLOAT8_E4M3] = "float8_e4m3",
        [TUTTI_FLOAT8_E5M2] = "float8_e5m2",
        [TUTTI_BOOL] = "bool",
    };

    if ((unsigned)dtype >= sizeof(names) / sizeof(names[0]) || names[dtype] == NULL)
        return "unknown type";
    return names[dtype];
}

const char *tutti__op_name(tutti_op_t op)
{
    static const char *const names[] = {
        [TUTTI_SUM] = "sum",   [TUTTI_AVG] = "avg",   [TUTTI_MIN] = "min", [TUTTI_MAX] = "max",
        [TUTTI_PROD] = "prod", [TUTTI_BAND] = "band", [TUTTI_BOR] = "bor", [TUTTI_BXOR] = "bxor",
    };

    if ((unsigned)op >= sizeof(names) / sizeof(names[0]) || names[op] == NULL)
        return "unknown operation";
    return names[op];
}
