/* SPDX-License-Identifier: BSD-3-Clause */
/* Names of types and operations for messages: "float32", "sum". */
#ifndef TUTTI__BASE_NAMES_H
#define TUTTI__BASE_NAMES_H

#include <tutti/tutti.h>

/* User operations (tutti_op_create): the first number, and the largest number of operations. */
#define TUTTI__USER_OP_FIRST 64
#define TUTTI__USER_OPS 1024

/* As tutti_dtype_name and tutti_op_name, but user operations have names such as "user operation 3",
   counted from 0. Such a name is valid until this thread has made four further calls with a user
   operation. Any thread. */
const char *tutti__dtype_name(tutti_dtype_t dtype);
const char *tutti__op_name(tutti_op_t op);

#endif
