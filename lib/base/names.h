/* SPDX-License-Identifier: BSD-3-Clause */
/* Types and operations as people read them in messages: "float32", "sum". */
#ifndef TUTTI__BASE_NAMES_H
#define TUTTI__BASE_NAMES_H

#include <tutti/tutti.h>

/* Operations of the caller's own (tutti_op_create): the number of the first, and how many. */
#define TUTTI__USER_OP_FIRST 64
#define TUTTI__USER_OPS 1024

/* As tutti_dtype_name and tutti_op_name, but with "user operation 3", counting from 0. That text is
   valid until this thread's fourth next one. Any thread. */
const char *tutti__dtype_name(tutti_dtype_t dtype);
const char *tutti__op_name(tutti_op_t op);

#endif
