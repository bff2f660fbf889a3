/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Computes the required results of collectives, element by element and one rank after another, with
 * separate code: it uses none of the library's kernels. Values are chosen so that every result is
 * exact with any association: small integers in floating point types, any bits in integers.
 */
#ifndef TUTTI_TESTS_REFERENCE_H
#define TUTTI_TESTS_REFERENCE_H

#include <tutti/tutti.h>

#define REFERENCE_MOST_BYTES 16 /* of one element */

/* Types 1 to REFERENCE_TYPES, operations 1 to REFERENCE_OPS. */
enum {
    REFERENCE_TYPES = 19,
    REFERENCE_OPS = 13
};

/* Are this type and this operation served, according to the table in types.h? */
int reference_serves(tutti_dtype_t dtype, tutti_op_t op);

/* Element i of `rank`'s input; op determines which values are exact. User-defined
   operations: any bits. */
void reference_value(tutti_dtype_t dtype, tutti_op_t op, int rank, size_t i, unsigned salt,
                     void *ret_element);

/* Element i reduced over the ranks [first, end), at least one; AVG divides by their number. */
void reference_fold(tutti_dtype_t dtype, tutti_op_t op, int first, int end, size_t i, unsigned salt,
                    void *ret_element);

/* The following three functions are operations for tutti_op_create. This one composes affine maps x
   -> a x + b, where a and b are the two 32-bit halves of a UINT64. It does not commute. */
void reference_affine(void *dst, const void *left, const void *right, size_t count,
                      tutti_dtype_t dtype, void *context);
/* (1 + a)(1 + b) - 1 of UINT64. This operation commutes. */
void reference_shifted_product(void *dst, const void *left, const void *right, size_t count,
                               tutti_dtype_t dtype, void *context);
/* The result is the left operand, of any type. This operation does not commute. */
void reference_left(void *dst, const void *left, const void *right, size_t count,
                    tutti_dtype_t dtype, void *context);

/* The context of all three functions. */
extern int reference_context;

typedef enum {
    REFERENCE_AFFINE,
    REFERENCE_SHIFTED_PRODUCT,
    REFERENCE_LEFT,
    REFERENCE_USER_OPS
} reference_user_t;

/* Make the operations. Called once in each process, before the first job. */
void reference_create_ops(void);
/* The number of an operation; the functions above accept these numbers. */
tutti_op_t reference_user_op(reference_user_t user);

#endif
