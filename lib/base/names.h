/* SPDX-License-Identifier: BSD-3-Clause */
/* Types and operations as people read them in messages: "float32", "sum". */
#ifndef TUTTI__BASE_NAMES_H
#define TUTTI__BASE_NAMES_H

#include <tutti/tutti.h>

/* Static texts; "unknown type" and "unknown operation" for other numbers. Any thread. */
const char *tutti__dtype_name(tutti_dtype_t dtype);
const char *tutti__op_name(tutti_op_t op);

#endif
