/* SPDX-License-Identifier: BSD-3-Clause */
/* tutti_op_create, tutti_op_free: user operations. */
#include <tutti/tutti.h>

#include "base/names.h"
#include "base/status.h"
#include "reduce/reduce.h"

tutti_status_t tutti_op_create(tutti_op_function_t function, void *context, int commutative,
                               tutti_op_t *ret_op)
{
    tutti_op_t op;

    if (function == NULL || ret_op == NULL)
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "tutti_op_create: %s is NULL",
                           function == NULL ? "function" : "ret_op");
    op = tutti__user_op_make(function, context, commutative);
    if ((int)op == 0)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "there are %d operations already; free some",
                           TUTTI__USER_OPS);
    *ret_op = op;
    return TUTTI_OK;
}

tutti_status_t tutti_op_free(tutti_op_t op)
{
    if (!tutti__user_op_drop(op))
        return tutti__fail(TUTTI_ERR_INVALID_ARGUMENT, "%d is no operation of tutti_op_create",
                           (int)op);
    return TUTTI_OK;
}
