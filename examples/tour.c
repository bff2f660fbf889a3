/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A tour of further calls: `mpirun -np 3 ./tour`, or any other number of ranks.
 *
 *     sum_both     two asynchronous allreduces at the same time, and one wait for both
 *     sum_group    a communicator of some ranks
 *     find_common  a user operation
 *
 * Three ranks print, in any order:
 *
 *     rank 0 of 3: weight 3, bias 30; a group of 2, sum 2; common divisor 6
 *     rank 1 of 3: weight 3, bias 30; a group of 1, sum 1; common divisor 6
 *     rank 2 of 3: weight 3, bias 30; a group of 2, sum 2; common divisor 6
 *
 * The weight is 0 + 1 + 2, and the bias 0 + 10 + 20. Ranks 0 and 2 are a group, whose sum is 0 + 2;
 * rank 1 is a group alone. The divisor is that of 12, 18 and 24.
 *
 * To build it with an installed library:
 *
 *     cc tour.c $(pkg-config --cflags --libs tutti) -o tour
 */
#include <stdint.h>
#include <stdio.h>

#include <tutti/tutti.h>

/* Add up two arrays over all ranks; the program could compute before the wait. */
static tutti_status_t sum_both(tutti_comm_t *world, float weight[4], float bias[2])
{
    tutti_request_t *requests[2] = { NULL, NULL };
    tutti_status_t status, waited;

    status = tutti_allreduce_async("weight", weight, weight, 4, TUTTI_FLOAT32, TUTTI_SUM, world,
                                   NULL, &requests[0]);
    if (status == TUTTI_OK)
        status = tutti_allreduce_async("bias", bias, bias, 2, TUTTI_FLOAT32, TUTTI_SUM, world, NULL,
                                       &requests[1]);

    /* even if a call failed, wait for the requests that were started; NULL entries are skipped */
    waited = tutti_wait_all(requests, 2, -1);
    return status != TUTTI_OK ? status : waited;
}

/* Add up the even ranks in one group, and the odd ranks in another. */
static tutti_status_t sum_group(tutti_comm_t *world, int *ret_size, int32_t *ret_sum)
{
    int rank = tutti_rank(world);
    tutti_comm_t *group;
    tutti_status_t status, freed;

    status = tutti_comm_split(world, rank % 2, rank, &group);
    if (status != TUTTI_OK)
        return status;
    *ret_size = tutti_size(group);
    *ret_sum = rank;
    status = tutti_allreduce(ret_sum, ret_sum, 1, TUTTI_INT32, TUTTI_SUM, group);
    freed = tutti_comm_free(group);
    return status != TUTTI_OK ? status : freed;
}

/* A tutti_op_function_t: greatest common divisors, by Euclid. dst may be left or right. */
static void divisor(void *dst, const void *left, const void *right, size_t count,
                    tutti_dtype_t dtype, void *context)
{
    const int64_t *a = left, *b = right;
    int64_t *common = dst;

    (void)dtype, (void)context; /* this program uses it with INT64 only */
    for (size_t i = 0; i < count; i++) {
        int64_t x = a[i], y = b[i];

        while (y != 0) {
            int64_t rest = x % y;

            x = y;
            y = rest;
        }
        common[i] = x;
    }
}

/* The greatest common divisor of all ranks' numbers. */
static tutti_status_t find_common(tutti_comm_t *world, int64_t *number)
{
    tutti_status_t status, freed;
    tutti_op_t op;

    status = tutti_op_create(divisor, NULL, 1, &op);
    if (status != TUTTI_OK)
        return status;
    status = tutti_allreduce(number, number, 1, TUTTI_INT64, op, world);
    freed = tutti_op_free(op);
    return status != TUTTI_OK ? status : freed;
}

int main(void)
{
    tutti_comm_t *world;
    int rank, group_size;
    int32_t group_sum;

    if (tutti_init(NULL) != TUTTI_OK)
        goto failed;
    world = tutti_world();
    rank = tutti_rank(world);

    float weight[4] = { (float)rank, 1, 2, 3 }, bias[2] = { 10 * (float)rank, 1 };
    int64_t number = 6 * (rank + 2);

    if (sum_both(world, weight, bias) != TUTTI_OK ||
        sum_group(world, &group_size, &group_sum) != TUTTI_OK ||
        find_common(world, &number) != TUTTI_OK)
        goto failed;
    printf("rank %d of %d: weight %g, bias %g; a group of %d, sum %d; common divisor %d\n", rank,
           tutti_size(world), weight[0], bias[0], group_size, (int)group_sum, (int)number);

    if (tutti_finalize() != TUTTI_OK)
        goto failed;
    return 0;

failed:
    /* tutti_finalize ends the calls of ranks that wait for this rank */
    fprintf(stderr, "tour: %s\n", tutti_last_error());
    tutti_finalize();
    return 1;
}
