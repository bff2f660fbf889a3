/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine as the owner of its agreement (agree/agree.h): this rank's calls go in, and tensors
 * that all ranks agreed on come out, bucket by bucket.
 *
 * With the token, unless a comment says otherwise.
 */
#include "engine/state.h"

#include "base/constants.h"
#include "base/hash.h"
#include "base/time.h"

#include <stdlib.h>
#include <string.h>

/* ---- metadata of calls ---- */

static uint64_t bits_of(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* Add counts that are equal on all ranks. */
static void take_recvcounts(tutti__metadata_t *m, const size_t *recvcounts, uint32_t size)
{
    m->count = 0;
    for (uint32_t r = 0; r < size; r++)
        m->count += recvcounts[r];
    m->more = tutti__hash(recvcounts, size * sizeof(*recvcounts));
}

static void take_message(tutti__metadata_t *m, const tutti__call_t *call)
{
    int sends = call->kind != TUTTI_CALL_RECV, both = call->kind == TUTTI_CALL_SENDRECV;

    m->count = sends ? call->count : 0;
    m->more = both ? call->recvcount : sends ? 0 : call->count;
    m->root = sends ? call->root : TUTTI__NOBODY;
    m->source = both ? call->source : sends ? TUTTI__NOBODY : call->root;
}

static inline tutti__metadata_t metadata_of_call(const tutti__engine_t *e,
                                                 const tutti__call_t *call, uint8_t phase)
{
    tutti__metadata_t m = {
        .count = call->count,
        .prescale = bits_of(call->prescale),
        .postscale = bits_of(call->postscale),
        .kind = (uint8_t)call->kind,
        .dtype = (uint8_t)call->dtype,
        .phase = phase,
        .on_device = call->on_device != 0,
    };

    /* Most calls need no other fields. */
    if (TUTTI__LIKELY(call->kind == TUTTI_CALL_ALLREDUCE)) {
        m.op = (uint32_t)call->op;
        return m;
    }
    if (tutti__call_has_root(call->kind))
        m.root = call->root;
    if (tutti__call_reduces(call->kind))
        m.op = (uint32_t)call->op;
    if (tutti__call_is_message(call->kind))
        take_message(&m, call);
    if (tutti__call_by_pair(call->kind))
        m.count = m.on_device = 0;
    if (call->kind == TUTTI_CALL_ALLGATHERV)
        m.on_device = 0;
    if (call->kind == TUTTI_CALL_REDUCE_SCATTERV || call->kind == TUTTI_CALL_ALLGATHERV)
        m.count = 0;
    if (call->kind == TUTTI_CALL_BARRIER)
        m.count = m.dtype = 0;
    /* The first phase has compared the other fields. */
    if (phase > 0)
        return m;
    if (call->kind == TUTTI_CALL_ALLGATHERV && call->recvcounts == NULL)
        m.unsure = 1;
    else if (call->kind == TUTTI_CALL_REDUCE_SCATTERV || call->kind == TUTTI_CALL_ALLGATHERV)
        take_recvcounts(&m, call->recvcounts, e->size);
    return m;
}

tutti__metadata_t tutti__agreed_metadata(const tutti__engine_t *e, const tutti__request_t *request)
{
    return metadata_of_call(e, &request->call, request->phase);
}

void tutti__engine_call_text(const tutti__engine_t *e, const tutti__call_t *call, char *text,
                             size_t bytes)
{
    tutti__metadata_t m = metadata_of_call(e, call, 0);

    tutti__metadata_call_text(text, bytes, &m);
}

/* ---- in ---- */

void tutti__agreed_submit(tutti__engine_t *e, tutti__request_t *request)
{
    static const tutti__group_msg_t alone;
    size_t bytes = request->name_bytes;
    char name[TUTTI__NAME_BYTES];
    tutti__metadata_t m;

    if (request->joins) {
        tutti__agree_join(e->agree);
        return;
    }
    m = tutti__agreed_metadata(e, request);
    /* At rank 0 this may end the request, and a waiter may free it while the name is in use. */
    memcpy(name, request->name, bytes);
    tutti__agree_submit(e->agree, name, bytes, &m, request->phase == 0 ? &request->group : &alone);
}

int tutti__agreed_missing(tutti__engine_t *e, const tutti__request_t *request, char *text,
                          size_t bytes)
{
    tutti__metadata_t m = tutti__agreed_metadata(e, request);

    if (request->joins)
        return tutti__agree_missing_join(e->agree, text, bytes);
    if (atomic_load(&request->counted) == 1) {
        snprintf(text, bytes, "this rank has not called tutti_request_receive");
        return 1;
    }
    return tutti__agree_missing(e->agree, request->name, request->name_bytes, &m, text, bytes);
}

/* With enough work in lanes and on the device, new tensors collect into larger buckets. */
static int has_room(const tutti__engine_t *e)
{
    return e->in_flight < TUTTI__LANES - 1 && e->ncompletions < TUTTI__MOST_COMPLETIONS;
}

int tutti__agreed_step(tutti__engine_t *e)
{
    int moved = 0;

    if (e->parent >= 0)
        return 0;
    tutti__agree_late(e->agree);
    while (has_room(e) && tutti__agree_bucket(e->agree))
        moved = 1;
    return moved;
}

void tutti__agreed_clear(tutti__engine_t *e)
{
    tutti__agree_clear(e->agree);
    tutti__bucket_free(e->filling);
    e->filling = NULL;
    while (e->zeros != NULL) {
        tutti__request_t *zero = e->zeros;

        e->zeros = zero->next;
        tutti__request_free(zero);
    }
}

/* ---- out ---- */

static void send_message(void *owner, uint32_t link, uint32_t kind, const void *body, size_t bytes,
                         int urgent)
{
    tutti__engine_t *e = owner;

    tutti__links_send(e->watch, link, kind, body, bytes, urgent);
}

/* The request that a bucket names. If this rank has joined, it makes a zero
   contribution instead. */
static tutti__request_t *find_request(tutti__engine_t *e, const tutti__agreed_t *tensor)
{
    tutti__request_t *request = tutti__request_find(e, tensor->name, tensor->name_bytes);

    if (request == NULL && tensor->metadata != NULL && tutti__agree_has_joined(e->agree))
        return tutti__join_zero(e, tensor->metadata, tensor->name, tensor->name_bytes);
    if (request == NULL)
        tutti__watch_end(e->watch,
                         tutti__watch_any_left(e->watch) ? TUTTI_ERR_SHUTDOWN : TUTTI_ERR_INTERNAL,
                         "a bucket names a tensor that is not pending");
    return request;
}

static void append(tutti__bucket_t *bucket, tutti__request_t *request)
{
    request->agreed = 1;
    request->next = NULL;
    if (bucket->last != NULL)
        bucket->last->next = request;
    else
        bucket->first = request;
    bucket->last = request;
    bucket->nrequests++;
    bucket->on_device = request->call.on_device != 0;
}

/* The coordinator's messages name the tensors of one bucket after another. */
static int serve(void *owner, const tutti__agreed_t *tensor)
{
    tutti__engine_t *e = owner;
    tutti__bucket_t *bucket = e->filling;
    tutti__request_t *request;

    if (bucket == NULL) {
        bucket = e->filling = calloc(1, sizeof(*bucket));
        if (bucket == NULL) {
            tutti__watch_end(e->watch, TUTTI_ERR_NO_MEMORY, "no memory for a bucket");
            return 0;
        }
        bucket->number = tensor->bucket;
    }
    if (tensor->is_mine) {
        request = find_request(e, tensor);
        if (request == NULL)
            return 0;
        append(bucket, request);
    }
    bucket->counts = tensor->counts;
    bucket->joined = tensor->metadata != NULL;
    if (tensor->last) {
        e->filling = NULL;
        tutti__lanes_add(e, bucket);
    }
    return 1;
}

static void reject(void *owner, const tutti__rejected_t *tensor)
{
    tutti__engine_t *e = owner;
    tutti__request_t *request = tutti__request_find(e, tensor->name, tensor->name_bytes);

    if (request != NULL && request->phase == tensor->phase)
        tutti__request_finish(e, request, tensor->status, tensor->text);
}

static void joined(void *owner, uint32_t last_rank)
{
    tutti__engine_t *e = owner;
    tutti__request_t *join;

    tutti__mutex_lock(&e->queue_lock);
    join = e->join;
    tutti__mutex_unlock(&e->queue_lock);
    if (join == NULL)
        return;
    join->last_rank = last_rank;
    tutti__request_finish(e, join, TUTTI_OK, NULL);
}

static void fail(void *owner, tutti_status_t status, const char *text)
{
    const tutti__engine_t *e = owner;

    tutti__watch_end(e->watch, status, text);
}

static uint64_t now_ns(void *owner)
{
    (void)owner;
    return tutti__now_ns();
}

static const char *rank_name(void *owner, uint32_t rank)
{
    const tutti__engine_t *e = owner;

    return tutti__boot_rank_name(e->env.boot, rank);
}

static uint32_t world_rank(void *owner, uint32_t rank, int *ret_is_group)
{
    const tutti__engine_t *e = owner;

    return tutti__boot_world_rank(e->env.boot, rank, ret_is_group);
}

/* ---- opening and closing ---- */

/* The ranks behind each link: all ranks of another host behind its leader; otherwise
   the neighbour. */
static void lay_links(const tutti__engine_t *e, tutti__agree_link_t *links)
{
    const tutti__shape_t *shape = e->env.shape;

    for (uint32_t i = 0; i < tutti__links_count(e->watch); i++) {
        int local;
        uint32_t rank = tutti__links_rank(e->watch, i, &local);
        const uint32_t *first = &shape->host_first[shape->host_of[rank]];

        links[i] =
            (tutti__agree_link_t){ rank, 1, &shape->by_host[first[0] + shape->local_of[rank]] };
        if ((int)i == e->parent)
            links[i].nranks = 0;
        else if (!local)
            links[i] =
                (tutti__agree_link_t){ rank, first[1] - first[0], &shape->by_host[first[0]] };
    }
}

/* The largest bucket in device memory. The processor's caches do not limit it. */
static uint64_t device_bucket_bytes(const tutti__engine_t *e)
{
    const tutti__exec_device_t *device = e->env.exec->device;

    if (device == NULL)
        return e->fusion_bytes;
    if (e->env.conf->fusion_bytes == TUTTI__CONF_AUTO)
        return device->fuse_bytes;
    return TUTTI__MIN(e->fusion_bytes, device->fuse_bytes);
}

tutti_status_t tutti__agreed_open(tutti__engine_t *e)
{
    static const tutti__agree_ops_t ops = { send_message, serve,  reject,    joined,
                                            fail,         now_ns, rank_name, world_rank };
    tutti__agree_env_t env = {
        .rank = e->rank,
        .size = e->size,
        .parent = e->parent,
        .nlinks = tutti__links_count(e->watch),
        .bucket_bytes = e->fusion_bytes,
        .device_bucket_bytes = device_bucket_bytes(e),
        .ops = &ops,
        .owner = e,
    };

    e->agree_links = calloc(tutti__links_count(e->watch) + 1, sizeof(*e->agree_links));
    if (e->agree_links == NULL)
        return tutti__fail(TUTTI_ERR_NO_MEMORY, "engine for %u ranks", e->size);
    lay_links(e, e->agree_links);
    env.links = e->agree_links;
    return tutti__agree_open(&env, &e->agree);
}

void tutti__agreed_close(tutti__engine_t *e)
{
    if (e->agree != NULL)
        tutti__agreed_clear(e);
    tutti__agree_close(e->agree);
    e->agree = NULL;
    free(e->agree_links);
    e->agree_links = NULL;
}
