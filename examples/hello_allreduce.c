/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The smallest program with Tutti: all ranks add up their numbers.
 *
 * Started with `mpirun -np 4 ./hello_allreduce`, every rank prints 1 + 2 + 3 + 4 = 10.
 *
 * To build it with an installed library:
 *
 *     cc hello_allreduce.c $(pkg-config --cflags --libs tutti) -o hello_allreduce
 */
#include <stdint.h>
#include <stdio.h>

#include <tutti/tutti.h>

int main(void)
{
    if (tutti_init(NULL) != TUTTI_OK)
        goto failed;

    tutti_comm_t *world = tutti_world();
    int64_t value = tutti_rank(world) + 1;

    /* sendbuf and recvbuf are the same: the sum replaces this rank's number */
    if (tutti_allreduce(&value, &value, 1, TUTTI_INT64, TUTTI_SUM, world) != TUTTI_OK)
        goto failed;

    printf("rank %d of %d: the sum is %d\n", tutti_rank(world), tutti_size(world), (int)value);

    if (tutti_finalize() != TUTTI_OK)
        goto failed;
    return 0;

failed:
    fprintf(stderr, "hello_allreduce: %s\n", tutti_last_error());
    tutti_finalize();
    return 1;
}
