/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A world over MPI between pretended hosts, and communicators from tutti_comm_connect beside it.
 * Started by mpi_connect.sh. The argument is the level for MPI_Init_thread. At a low level only the
 * program's thread may call MPI. So while this thread waits for a request of the other
 * communicator, it must do the world's work.
 */
#include "api/api.h"

#include <dlfcn.h>
#include <stdlib.h>

typedef int init_fn_t(int *argc, char ***argv, int required, int *provided);
typedef int finalize_fn_t(void);

static void *find(const char *name)
{
    void *mpi = dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
    void *found = mpi != NULL ? dlsym(mpi, name) : NULL;

    CHECK(found != NULL);
    return found;
}

/* The ranks connect with an id of rank 0, which is broadcast in the world. */
static tutti_comm_t *connect_all(int rank, int size)
{
    tutti_options_t options = TUTTI_OPTIONS_INIT;
    tutti_unique_id_t id;
    tutti_comm_t *comm;

    if (rank == 0)
        CHECK_OK(tutti_unique_id_create(&id));
    CHECK_OK(tutti_broadcast(&id, sizeof(id), TUTTI_UINT8, 0, tutti_world()));
    options.unique_id = &id;
    options.rank = rank;
    options.nranks = size;
    CHECK_OK(tutti_comm_connect(&options, &comm));
    return comm;
}

/* Rank 0 first waits for the connected communicator's request. The other ranks submit this request
   only after the world's request is done, and the world's request needs rank 0. */
static void crossed(tutti_comm_t *comm, int rank, int size, const char *name)
{
    int x = 1, y = 1;
    tutti_request_t *over_mpi, *beside;

    CHECK_OK(tutti_allreduce_async("world", &x, &x, 1, TUTTI_INT32, TUTTI_SUM, tutti_world(), NULL,
                                   &over_mpi));
    if (rank != 0)
        CHECK_OK(tutti_wait(over_mpi, -1));
    CHECK_OK(tutti_allreduce_async(name, &y, &y, 1, TUTTI_INT32, TUTTI_SUM, comm, NULL, &beside));
    CHECK_OK(tutti_wait(beside, -1));
    if (rank == 0)
        CHECK_OK(tutti_wait(over_mpi, -1));
    CHECK_INT(x, size);
    CHECK_INT(y, size);
}

int main(int argc, char **argv)
{
    tutti_comm_t *comm;
    int level, rank, size, x = 1;

    CHECK(argc == 2);
    alarm(100);
    CHECK_INT(((init_fn_t *)find("MPI_Init_thread"))(NULL, NULL, atoi(argv[1]), &level), 0);
    CHECK_OK(tutti_init(NULL));
    rank = tutti_rank(tutti_world());
    size = tutti_size(tutti_world());
    CHECK(tutti_host_count(tutti_world()) > 1);
    comm = connect_all(rank, size);
    for (int i = 0; i < 20; i++)
        crossed(comm, rank, size, i % 2 ? "beside" : NULL);
    /* A call without a name, over MPI. */
    for (int i = 0; i < 20; i++) {
        tutti_request_t *request;
        int y = 1;

        CHECK_OK(tutti_allreduce_async(NULL, &y, &y, 1, TUTTI_INT32, TUTTI_SUM, tutti_world(), NULL,
                                       &request));
        CHECK_OK(tutti_wait(request, -1));
        CHECK_INT(y, size);
    }
    CHECK_OK(tutti_barrier(tutti_world()));
    CHECK_OK(tutti_finalize());
    CHECK_OK(tutti_allreduce(&x, &x, 1, TUTTI_INT32, TUTTI_SUM, comm));
    CHECK_INT(x, size);
    CHECK_OK(tutti_barrier(comm));
    CHECK_OK(tutti_comm_free(comm));
    CHECK_INT(((finalize_fn_t *)find("MPI_Finalize"))(), 0);
    printf("rank %d of %d: level %d\n", rank, size, level);
    return 0;
}
