/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks without MPI and without a launcher: `./unique_id 3` itself starts three ranks.
 *
 *     this program --fork--> rank 0, 1, 2      each reads the id from the pipe,
 *          |                     ^
 *          +---- unique id ------+             and calls tutti_init
 *
 * The id contains the ranks' meeting point and a secret. Here it is sent through a pipe; a file or
 * a socket serves as well. This program starts all ranks on one machine. Ranks on several machines
 * can meet in the same way; between them Tutti then needs UCX (docs/hosts.md).
 *
 * To build it with an installed library:
 *
 *     cc unique_id.c $(pkg-config --cflags --libs tutti) -o unique_id
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/tutti.h>

#define MAX_RANKS 64

/* Run one rank. Returns its exit code. */
static int run(int rank, int nranks, int from)
{
    tutti_options_t options = TUTTI_OPTIONS_INIT;
    tutti_unique_id_t id;
    int64_t value = rank + 1;

    if (read(from, &id, sizeof(id)) != sizeof(id))
        return 1; /* the parent has failed, and reports it */
    options.unique_id = &id;
    options.rank = rank;
    options.nranks = nranks;
    if (tutti_init(&options) != TUTTI_OK ||
        tutti_allreduce(&value, &value, 1, TUTTI_INT64, TUTTI_SUM, tutti_world()) != TUTTI_OK) {
        fprintf(stderr, "unique_id: rank %d: %s\n", rank, tutti_last_error());
        tutti_finalize();
        return 1;
    }
    printf("rank %d of %d: the sum is %d\n", rank, nranks, (int)value);
    return tutti_finalize() == TUTTI_OK ? 0 : 1;
}

/* Make an id, and write it once for each rank. */
static int hand_out(int to, int nranks)
{
    tutti_unique_id_t id;

    if (tutti_unique_id_create(&id) != TUTTI_OK) {
        fprintf(stderr, "unique_id: %s\n", tutti_last_error());
        return 1;
    }
    for (int i = 0; i < nranks; i++) {
        if (write(to, &id, sizeof(id)) != sizeof(id)) {
            perror("unique_id: write");
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    const int nranks = argc == 2 ? atoi(argv[1]) : 0;
    int failed, status, ends[2];

    if (nranks < 1 || nranks > MAX_RANKS) {
        fprintf(stderr, "usage: unique_id RANKS, from 1 to %d\n", MAX_RANKS);
        return 2;
    }
    if (pipe(ends) != 0) {
        perror("unique_id: pipe");
        return 1;
    }

    /* fork before the id is made: a child must not use the Tutti objects of its parent */
    for (int rank = 0; rank < nranks; rank++) {
        const pid_t pid = fork();

        if (pid == 0) {
            close(ends[1]); /* otherwise read() would never end if the parent writes no id */
            return run(rank, nranks, ends[0]);
        }
        if (pid < 0) {
            perror("unique_id: fork");
            return 1; /* closes the pipe, which ends the ranks that wait for the id */
        }
    }

    /* this process serves the meeting, so it must stay until all ranks have connected */
    failed = hand_out(ends[1], nranks);
    close(ends[1]);
    while (wait(&status) > 0)
        if (status != 0)
            failed = 1;
    tutti_finalize();
    return failed;
}
