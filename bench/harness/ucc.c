/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * --peer ucc: UCC's collective of the same name, in a UCC team of all ranks.
 *
 * A call consists of the steps that UCC's users write: init, post, progress until it is done,
 * finalize. The first call, which is not timed, makes the team; its ranks find each other by MPI.
 */
#include "harness/peers.h"

#include <stdlib.h>
#include <string.h>

#ifdef HAVE_UCC

#include <ucc/api/ucc.h>

static ucc_lib_h library;
static ucc_context_h context;
static ucc_team_h team;

static int failed(const char *what, ucc_status_t status)
{
    if (status == UCC_OK)
        return 0;
    fprintf(stderr, "--peer ucc: %s: %s\n", what, ucc_status_string(status));
    return 1;
}

/* ---- exchanges while the team is made ---- */

/* Not MPI_Allgather: a rank that waits in it makes no progress for UCC. */
static ucc_status_t exchange(void *mine, void *all, size_t bytes, void *info, void **ret_request)
{
    MPI_Request *request = bench_allocate(1, sizeof(*request));
    int status = MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                                MPI_COMM_WORLD, request);

    (void)info;
    *ret_request = request;
    return status == MPI_SUCCESS ? UCC_OK : UCC_ERR_NO_MESSAGE;
}

static ucc_status_t exchange_test(void *request)
{
    int done = 0;

    if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return UCC_ERR_NO_MESSAGE;
    return done ? UCC_OK : UCC_INPROGRESS;
}

static ucc_status_t exchange_free(void *request)
{
    free(request);
    return UCC_OK;
}

static ucc_oob_coll_t exchange_of(const bench_world_t *world)
{
    return (ucc_oob_coll_t){
        .allgather = exchange,
        .req_test = exchange_test,
        .req_free = exchange_free,
        .n_oob_eps = (uint32_t)world->size,
        .oob_ep = (uint32_t)world->rank,
    };
}

/* ---- library, context, team ---- */

static int open_library(void)
{
    ucc_lib_params_t params = { .mask = UCC_LIB_PARAM_FIELD_THREAD_MODE,
                                .thread_mode = UCC_THREAD_SINGLE };
    ucc_lib_config_h config;
    ucc_status_t status;

    if (failed("ucc_lib_config_read", ucc_lib_config_read(NULL, NULL, &config)))
        return -1;
    status = ucc_init(&params, config, &library);
    ucc_lib_config_release(config);
    return failed("ucc_init", status) ? -1 : 0;
}

static int open_context(const bench_world_t *world)
{
    ucc_context_params_t params = { .mask = UCC_CONTEXT_PARAM_FIELD_OOB,
                                    .oob = exchange_of(world) };
    ucc_context_config_h config;
    ucc_status_t status;

    if (failed("ucc_context_config_read", ucc_context_config_read(library, NULL, &config)))
        return -1;
    status = ucc_context_create(library, &params, config, &context);
    ucc_context_config_release(config);
    return failed("ucc_context_create", status) ? -1 : 0;
}

static int open_team(const bench_world_t *world)
{
    ucc_team_params_t params = {
        .mask = UCC_TEAM_PARAM_FIELD_EP | UCC_TEAM_PARAM_FIELD_EP_RANGE | UCC_TEAM_PARAM_FIELD_OOB,
        .ep = (uint64_t)world->rank,
        .ep_range = UCC_COLLECTIVE_EP_RANGE_CONTIG,
        .oob = exchange_of(world),
    };
    ucc_status_t status = ucc_team_create_post(&context, 1, &params, &team);

    while (status == UCC_OK && (status = ucc_team_create_test(team)) == UCC_INPROGRESS)
        status = ucc_context_progress(context);
    return failed("ucc_team_create", status) ? -1 : 0;
}

void bench_ucc_close(void)
{
    ucc_status_t status = UCC_OK;

    if (team != NULL)
        while ((status = ucc_team_destroy(team)) == UCC_INPROGRESS)
            ucc_context_progress(context);
    failed("ucc_team_destroy", status);
    if (context != NULL)
        failed("ucc_context_destroy", ucc_context_destroy(context));
    if (library != NULL)
        failed("ucc_finalize", ucc_finalize(library));
    team = NULL;
    context = NULL;
    library = NULL;
}

/* ---- calls ---- */

static ucc_datatype_t type_of(const bench_type_t *type)
{
    switch (type->dtype) {
    case TUTTI_FLOAT32:
        return UCC_DT_FLOAT32;
    case TUTTI_FLOAT64:
        return UCC_DT_FLOAT64;
    case TUTTI_BFLOAT16:
        return UCC_DT_BFLOAT16;
    case TUTTI_INT32:
        return UCC_DT_INT32;
    case TUTTI_INT64:
        return UCC_DT_INT64;
    case TUTTI_INT8:
        return UCC_DT_INT8;
    default:
        return UCC_DT_UINT8;
    }
}

static ucc_coll_args_t arguments(const bench_call_t *call, ucc_coll_type_t what, size_t send_count,
                                 size_t recv_count)
{
    ucc_coll_args_t args = { .coll_type = what, .op = UCC_OP_SUM };

    args.src.info.buffer = (void *)(uintptr_t)call->sendbuf;
    args.src.info.count = send_count;
    args.src.info.datatype = type_of(call->type);
    args.src.info.mem_type = UCC_MEMORY_TYPE_HOST;
    args.dst.info = args.src.info;
    args.dst.info.buffer = call->recvbuf;
    args.dst.info.count = recv_count;
    if (call->in_place) {
        args.mask = UCC_COLL_ARGS_FIELD_FLAGS;
        args.flags = UCC_COLL_ARGS_FLAG_IN_PLACE;
    }
    return args;
}

static int run(const bench_call_t *call, ucc_coll_args_t *args)
{
    ucc_coll_req_h request;
    ucc_status_t status;

    if (team == NULL &&
        (open_library() != 0 || open_context(call->world) != 0 || open_team(call->world) != 0))
        return -1;
    status = ucc_collective_init(args, &request, team);
    if (failed("ucc_collective_init", status))
        return -1;
    status = ucc_collective_post(request);
    while (status == UCC_OK && (status = ucc_collective_test(request)) == UCC_INPROGRESS)
        status = ucc_context_progress(context);
    if (failed("the collective", status))
        return -1;
    return failed("ucc_collective_finalize", ucc_collective_finalize(request)) ? -1 : 0;
}

static size_t of_all(const bench_call_t *call)
{
    return call->count * (size_t)call->world->size;
}

int bench_ucc_allreduce(const bench_call_t *call)
{
    ucc_coll_args_t args = arguments(call, UCC_COLL_TYPE_ALLREDUCE, call->count, call->count);

    return run(call, &args);
}

int bench_ucc_reduce(const bench_call_t *call)
{
    ucc_coll_args_t args = arguments(call, UCC_COLL_TYPE_REDUCE, call->count, call->count);

    return run(call, &args);
}

/* For equal parts, UCC's reduce_scatter; otherwise its reduce_scatterv. */
int bench_ucc_reduce_scatter(const bench_call_t *call)
{
    static uint32_t *counts;
    size_t share = bench_share(call->count, call->world->size, call->world->rank);
    size_t begin = bench_share_begin(call->count, call->world->size, call->world->rank);
    int even = call->count % (size_t)call->world->size == 0;
    ucc_coll_type_t what = even ? UCC_COLL_TYPE_REDUCE_SCATTER : UCC_COLL_TYPE_REDUCE_SCATTERV;
    size_t recv_count = call->in_place ? call->count : share;
    ucc_coll_args_t args = arguments(call, what, call->count, recv_count);
    int status;

    if (!even) {
        if (counts == NULL)
            counts = bench_allocate((size_t)call->world->size, sizeof(*counts));
        for (int i = 0; i < call->world->size; i++)
            counts[i] = (uint32_t)bench_share(call->count, call->world->size, i);
        args.dst.info_v.buffer = call->recvbuf;
        args.dst.info_v.counts = (ucc_count_t *)counts; /* 32 bits, by default */
        args.dst.info_v.displacements = NULL;
        args.dst.info_v.datatype = type_of(call->type);
        args.dst.info_v.mem_type = UCC_MEMORY_TYPE_HOST;
    }
    status = run(call, &args);
    if (call->in_place) /* UCC's result is at this rank's part */
        memmove(call->recvbuf, (char *)call->recvbuf + begin * call->type->bytes,
                share * call->type->bytes);
    return status;
}

int bench_ucc_allgather(const bench_call_t *call)
{
    ucc_coll_args_t args = arguments(call, UCC_COLL_TYPE_ALLGATHER, call->count, of_all(call));

    return run(call, &args);
}

int bench_ucc_broadcast(const bench_call_t *call)
{
    ucc_coll_args_t args = arguments(call, UCC_COLL_TYPE_BCAST, call->count, call->count);

    args.src.info.buffer = call->recvbuf;
    return run(call, &args);
}

int bench_ucc_alltoall(const bench_call_t *call)
{
    ucc_coll_args_t args = arguments(call, UCC_COLL_TYPE_ALLTOALL, of_all(call), of_all(call));

    return run(call, &args);
}

int bench_ucc_barrier(const bench_call_t *call)
{
    ucc_coll_args_t args = { .coll_type = UCC_COLL_TYPE_BARRIER };

    return run(call, &args);
}

#endif
