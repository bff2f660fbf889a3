/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An application that uses MPI itself and passes its own communicator to tutti_init: app_mpi LEVEL,
 * where LEVEL is single or multiple. app_mpi.sh starts it. The communicator has the ranks in
 * reverse order. The application uses MPI while Tutti is initialised, and after tutti_finalize.
 *
 * `app_mpi absent` calls MPI_Init but not tutti_init, and waits until it is ended; see late.sh.
 */
#include <tutti/tutti.h>

#include <mpi.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

static int wrong(const char *what)
{
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, tutti_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}

/* Checks that Tutti does not affect the application's own messages and error handler. */
static int mpi_works(MPI_Comm comm)
{
    int sum = -1;

    return MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS &&
           sum == size * (size - 1) / 2;
}

static int tutti_works(void)
{
    static float x[100000];
    tutti_request_t *request;

    for (int i = 0; i < 100000; i++)
        x[i] = (float)(rank + i % 5);
    if (tutti_allreduce(x, x, 100000, TUTTI_FLOAT32, TUTTI_SUM, tutti_world()) != TUTTI_OK)
        return 0;
    for (int i = 0; i < 100000; i++)
        if (x[i] != (float)(size * (size - 1) / 2 + size * (i % 5)))
            return 0;
    if (tutti_allreduce_async("x", x, x, 100000, TUTTI_FLOAT32, TUTTI_MAX, tutti_world(), NULL,
                              &request) != TUTTI_OK)
        return 0;
    return tutti_wait(request, -1) == TUTTI_OK;
}

int main(int argc, char **argv)
{
    tutti_options_t options = TUTTI_OPTIONS_INIT;
    int multiple = argc > 1 && strcmp(argv[1], "multiple") == 0;
    int provided = MPI_THREAD_SINGLE, finalized = 0;
    MPI_Comm reverse;

    if (multiple)
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    else
        MPI_Init(&argc, &argv);
    if (argc > 1 && strcmp(argv[1], "absent") == 0) {
        sleep(50);
        return 1;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &reverse);
    MPI_Comm_rank(reverse, &rank);
    options.mpi_comm = &reverse;
    for (int times = 0; times < 2; times++) {
        if (tutti_init(&options) != TUTTI_OK)
            return wrong("tutti_init");
        if (tutti_rank(tutti_world()) != rank || tutti_size(tutti_world()) != size)
            return wrong("another rank than in the communicator");
        /* Tutti has duplicated the communicator, so the caller may free its own. */
        if (times == 1)
            MPI_Comm_free(&reverse);
        if (!tutti_works())
            return wrong("Tutti");
        if (!mpi_works(times == 1 ? MPI_COMM_WORLD : reverse))
            return wrong("MPI beside Tutti");
        if (!tutti_works())
            return wrong("Tutti after MPI");
        tutti_finalize();
        MPI_Finalized(&finalized);
        if (finalized)
            return wrong("tutti_finalize has finalized the application's MPI");
    }
    if (!mpi_works(MPI_COMM_WORLD))
        return wrong("MPI after Tutti");
    MPI_Finalize();
    printf("rank %d of %d: app_mpi passed\n", rank, size);
    return 0;
}
