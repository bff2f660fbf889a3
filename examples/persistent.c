/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The same calls in every step: `mpirun -np 3 ./persistent`, or any other number of ranks.
 *
 * A persistent request is made once, from a structure that describes the call, and started in each
 * step. After the wait it is inactive again, and can be started again.
 *
 * To build it with an installed library:
 *
 *     cc persistent.c $(pkg-config --cflags --libs tutti) -o persistent
 */
#include <stdint.h>
#include <stdio.h>

#include <tutti/tutti.h>

#define STEPS 3

/* Make a request for the sum of an array over all ranks, in place. */
static tutti_status_t make_sum(const char *name, float *values, size_t count, tutti_comm_t *comm,
                               tutti_request_t **ret_request)
{
    tutti_call_t call = TUTTI_CALL_INIT;

    call.kind = TUTTI_CALL_ALLREDUCE;
    call.name = name;
    call.sendbuf = call.recvbuf = values;
    call.count = count;
    call.dtype = TUTTI_FLOAT32;
    call.op = TUTTI_SUM;
    return tutti_persistent_create(&call, comm, ret_request);
}

/* One step: start both requests, compute something else, wait for both. */
static tutti_status_t make_step(tutti_request_t **requests)
{
    tutti_status_t status, waited;

    status = tutti_start(requests[0]);
    if (status == TUTTI_OK)
        status = tutti_start(requests[1]);

    /* even if a start failed, wait for the started request; inactive requests are skipped */
    waited = tutti_wait_all(requests, 2, -1);
    return status != TUTTI_OK ? status : waited;
}

int main(void)
{
    tutti_request_t *requests[2] = { NULL, NULL };
    float weight[4], bias[2];
    tutti_comm_t *world;
    int rank;

    if (tutti_init(NULL) != TUTTI_OK)
        goto failed;
    world = tutti_world();
    rank = tutti_rank(world);
    if (make_sum("weight", weight, 4, world, &requests[0]) != TUTTI_OK ||
        make_sum("bias", bias, 2, world, &requests[1]) != TUTTI_OK)
        goto failed;

    for (int step = 1; step <= STEPS; step++) {
        for (int i = 0; i < 4; i++)
            weight[i] = (float)(step * (rank + i));
        bias[0] = bias[1] = (float)step;
        if (make_step(requests) != TUTTI_OK)
            goto failed;
        printf("rank %d of %d: step %d, weight %g %g, bias %g\n", rank, tutti_size(world), step,
               weight[0], weight[3], bias[0]);
    }

    if (tutti_request_free(requests[0]) != TUTTI_OK ||
        tutti_request_free(requests[1]) != TUTTI_OK || tutti_finalize() != TUTTI_OK)
        goto failed;
    return 0;

failed:
    fprintf(stderr, "persistent: %s\n", tutti_last_error());
    tutti_finalize();
    return 1;
}
