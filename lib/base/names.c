/* SPDX-License-Identifier: BSD-3-Clause */
/* See names.h. */
#include "base/names.h"

#include <stdio.h>

const char *tutti_dtype_name(tutti_dtype_t dtype)
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
        [TUTTI_FLOAT32_INT32] = "float32_int32",
        [TUTTI_FLOAT64_INT64] = "float64_int64",
        [TUTTI_INT32_INT32] = "int32_int32",
        [TUTTI_INT64_INT64] = "int64_int64",
    };

    if ((unsigned)dtype >= sizeof(names) / sizeof(names[0]) || names[dtype] == NULL)
        return "unknown type";
    return names[dtype];
}

const char *tutti__dtype_name(tutti_dtype_t dtype)
{
    return tutti_dtype_name(dtype);
}

static int is_user_op(tutti_op_t op)
{
    return (unsigned)op - TUTTI__USER_OP_FIRST < TUTTI__USER_OPS;
}

/* Uses four buffers in turn, so that one message can name several operations. */
static const char *user_op_name(unsigned index)
{
    static _Thread_local char texts[4][32];
    static _Thread_local unsigned turn;
    char *text = texts[turn++ % 4];

    snprintf(text, sizeof(texts[0]), "user operation %u", index);
    return text;
}

const char *tutti_op_name(tutti_op_t op)
{
    static const char *const names[] = {
        [TUTTI_SUM] = "sum",       [TUTTI_AVG] = "avg",   [TUTTI_MIN] = "min",
        [TUTTI_MAX] = "max",       [TUTTI_PROD] = "prod", [TUTTI_BAND] = "band",
        [TUTTI_BOR] = "bor",       [TUTTI_BXOR] = "bxor", [TUTTI_LAND] = "land",
        [TUTTI_LOR] = "lor",       [TUTTI_LXOR] = "lxor", [TUTTI_MINLOC] = "minloc",
        [TUTTI_MAXLOC] = "maxloc",
    };

    if (is_user_op(op))
        return "user operation";
    if ((unsigned)op >= sizeof(names) / sizeof(names[0]) || names[op] == NULL)
        return "unknown operation";
    return names[op];
}

const char *tutti__op_name(tutti_op_t op)
{
    return is_user_op(op) ? user_op_name((unsigned)op - TUTTI__USER_OP_FIRST) : tutti_op_name(op);
}
